"""The options by which a person decides about an action in doubt, on a database and on a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from craftcore.activities.model import Decision

C = TypeVar("C", bound=Callable[..., Any])

NOT_SAID = "\0"
"""`--happened` without a reference. No argument of a process can hold this."""

OPTIONS = (
    click.option(
        "--happened", metavar="[REF]", is_flag=False, flag_value=NOT_SAID, help="It did; the provider's reference."
    ),
    click.option("--resend", is_flag=True, help="It did not, or a second call does no harm: call it again."),
    click.option("--give-up", is_flag=True, help="The outcome stays unknown: leave it, and let its task fail."),
    click.option("--note", metavar="TEXT", help="Why; stored with the decision."),
    click.option("--yes", is_flag=True, help="Do not ask; without a terminal nothing is asked."),
)


def decision_options(command: C) -> C:
    """Give a command the options: `happened`, `resend`, `give_up`, `note` and `yes`."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def choose_decision(happened: str | None, resend: bool, give_up: bool) -> tuple[Decision, str | None]:
    """Return the decision of the options, and the provider's reference, if it was given. Raises UsageError."""
    given = {Decision.HAPPENED: happened is not None, Decision.RESEND: resend, Decision.GIVE_UP: give_up}
    chosen = [decision for decision, is_given in given.items() if is_given]
    if len(chosen) != 1:
        raise click.UsageError("give one of --happened, --resend and --give-up")
    return chosen[0], None if happened == NOT_SAID else happened
