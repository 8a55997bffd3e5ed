"""How it is kept: one SQLite file, two ways to a transaction, one writer thread in the daemon."""
