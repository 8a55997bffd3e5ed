"""When: durable triggers, from emit to settle."""
