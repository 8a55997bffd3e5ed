"""The command `top`."""
