"""The entries of turns on a worker: they run the user's code, and their journal is the workflow of the task."""
