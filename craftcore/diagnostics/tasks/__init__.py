"""The rows of a task, gathered for people."""
