"""The workflow of a task on Temporal: deterministic, and none of the user's code."""
