"""The command `crashtest`."""
