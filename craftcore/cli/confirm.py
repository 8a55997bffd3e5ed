"""Ids or --all, and a question before --all."""

from __future__ import annotations

import sys

import click


def ids_or_all(ids: tuple[str, ...], everything: bool, yes: bool, what: str) -> None:
    """Refuse neither, both, and --all that nobody confirmed: asked for on a terminal, given as --yes elsewhere."""
    if bool(ids) == everything:
        raise click.UsageError("give ids, or --all; not both")
    if not everything or yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"--all would {what}; without a terminal to ask, add --yes")
    if not click.confirm(f"This will {what}. Go on?", err=True):
        raise click.Abort("nothing was changed")
