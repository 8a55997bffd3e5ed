"""The command `demo`."""
