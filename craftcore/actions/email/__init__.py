"""The action `email.send`."""
