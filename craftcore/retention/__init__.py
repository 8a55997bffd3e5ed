"""Retention: the age of each kind of row, and the removal in small batches, children before parents."""
