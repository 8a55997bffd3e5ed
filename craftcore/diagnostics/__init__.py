"""Diagnostics: the state of the engine and of its work, as plain data."""
