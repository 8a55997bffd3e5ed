"""The files of a database: their modes, sizes, locks, and whether they are still the same."""
