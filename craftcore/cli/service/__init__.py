"""Commands that run the daemon and check its files."""
