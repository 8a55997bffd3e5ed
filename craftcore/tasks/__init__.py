"""WHAT: tasks, the waits and questions between their turns, and what is sent to them."""
