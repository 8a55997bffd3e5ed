"""The version of craftcore, as it is installed."""

from functools import cache


@cache
def installed_version() -> str:
    """Return the version. It is read once a process: an upgrade beside a running daemon does not change it."""
    from importlib.metadata import version

    return version("craftcore")
