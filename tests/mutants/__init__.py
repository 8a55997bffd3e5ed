"""Broken variants of craftcore that its tests must detect: `python -m tests.mutants`."""
