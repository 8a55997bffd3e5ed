"""A record as a JSON document."""
