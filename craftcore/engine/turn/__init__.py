"""One turn of a task: its context, steps, actions and waits."""
