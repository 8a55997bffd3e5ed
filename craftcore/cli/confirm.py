"""Ids or --all, and a question before what cannot be taken back."""

from __future__ import annotations

import sys

import click


def ids_or_all(ids: tuple[str, ...], everything: bool, yes: bool, what: str) -> None:
    """Refuse neither, both, and --all without confirmation."""
    if bool(ids) == everything:
        raise click.UsageError("give ids, or --all; not both")
    if everything:
        confirm(yes, what, who="--all")


def confirm_by_person(yes: bool, what: str) -> None:
    """Ask a person at a terminal, who may have meant another id. A script that gives an id is not asked."""
    confirm(yes or not sys.stdin.isatty(), what)


def confirm(yes: bool, what: str, *, who: str = "this") -> None:
    """Require a confirmation: asked for on a terminal, given as --yes elsewhere."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{who} would {what}; without a terminal to ask, add --yes")
    if not click.confirm(f"This will {what}. Go on?", err=True):
        raise click.Abort("nothing was changed")
