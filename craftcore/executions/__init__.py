"""Records of executions: one for each attempt, with its events."""
