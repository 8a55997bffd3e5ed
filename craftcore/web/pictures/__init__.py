"""Pictures of a task: its rows become marks, and marks get places. Pure."""
