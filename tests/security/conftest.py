"""The command line and a world for it, as its own tests have them."""

from tests.cli.conftest import cli, clock, database, here, made

__all__ = ["cli", "clock", "database", "here", "made"]
