"""Fixtures of the security tests: the command line and the populated database of tests/cli."""

from tests.cli.conftest import cli, clock, database, here, made

__all__ = ["cli", "clock", "database", "here", "made"]
