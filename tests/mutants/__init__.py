"""Broken variants of craftcore that its tests must notice: `python -m tests.mutants`."""
