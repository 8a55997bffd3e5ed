"""Commands about triggers."""
