"""What was seen: one record per attempt, and the events in it."""
