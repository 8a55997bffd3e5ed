"""The records of attempts, for people."""
