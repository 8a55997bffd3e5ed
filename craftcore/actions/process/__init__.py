"""The action `command.run`."""
