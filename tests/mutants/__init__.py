"""Broken variants of craftcore, which its tests must notice: `python -m tests.mutants`."""
