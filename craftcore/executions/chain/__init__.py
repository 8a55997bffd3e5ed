"""The hash chain of closed records."""
