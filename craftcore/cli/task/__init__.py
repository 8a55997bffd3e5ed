"""Commands about tasks and their questions."""
