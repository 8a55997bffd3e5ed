"""Handles of emitted work, and the callers that wait for its end: beside the engine, and in other processes."""
