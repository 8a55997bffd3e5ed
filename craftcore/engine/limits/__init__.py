"""Limits of workflows: as a whole, for each key, and what they know of earlier starts."""
