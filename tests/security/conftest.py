"""Fixtures of the security tests: the command line and its world, as the tests of tests/cli have them."""

from tests.cli.conftest import cli, clock, database, here, made

__all__ = ["cli", "clock", "database", "here", "made"]
