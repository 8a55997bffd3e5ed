"""How it is kept: one SQLite file, two doors to a transaction, one writer thread in the daemon."""
