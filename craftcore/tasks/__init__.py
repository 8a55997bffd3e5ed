"""The WHAT: tasks, the waits and questions between their turns, and the messages to them."""
