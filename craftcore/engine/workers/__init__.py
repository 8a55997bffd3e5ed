"""Worker processes: a pool of spawned Python processes that run plain functions."""
