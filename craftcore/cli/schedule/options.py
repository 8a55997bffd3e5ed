"""The arguments that `schedule add` and `schedule edit` share: the options, and the command after `--`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import click

from craftcore.cli.base import OperatorCommand
from craftcore.cli.payload import read_payload
from craftcore.clock import Clock
from craftcore.schedules.recurrence.moment_text import read_moment
from craftcore.serialization.time_text import parse_duration

F = TypeVar("F", bound=Callable[..., Any])

OPTIONS = (
    click.option("--workflow", metavar="NAME", help="The workflow it runs; or give a command after --."),
    click.option("--payload", metavar="JSON|@FILE|-", help="A JSON object: the workflow's keyword arguments."),
    click.option(
        "--irreversible/--no-irreversible",
        default=None,
        help="The command may have done something that must not be done twice: in doubt a person is asked.",
    ),
    click.option("--timezone", metavar="ZONE", help="The zone of times of day; by default the machine's."),
    click.option(
        "--catch-up", metavar="latest|all|none", help="Which of those missed while down still fire; by default latest."
    ),
    click.option("--catch-up-window", metavar="DURATION", help="How old a missed one may be; by default 1d."),
    click.option("--catch-up-max", type=int, metavar="N", help="How many missed ones fire at most; by default 20."),
    click.option("--catch-up-spacing", metavar="DURATION", help="How far apart they fire; by default 5s."),
    click.option(
        "--overlap",
        metavar="buffer_one|skip|allow",
        help="How to treat an occurrence while the task of an earlier one has not ended; by default it waits "
        "(buffer_one).",
    ),
    click.option(
        "--jitter",
        metavar="DURATION",
        help="Each fires up to so much later, the same one always by the same; by default 0.",
    ),
    click.option("--start", metavar="TIME", help="None before."),
    click.option("--until", metavar="TIME", help="None after."),
    click.option("--max-runs", type=int, metavar="N", help="Finish after this many."),
    click.option(
        "--expires-after", metavar="DURATION", help="Not started within this, it settles as stale; by default never."
    ),
    click.option("--session", "session_id", metavar="SESSION", help="Triggers of one session run in order."),
    click.option(
        "--deliver",
        metavar="session",
        help="Send each as a message to the live task of --session, instead of --workflow.",
    ),
    click.option(
        "--source", metavar="SOURCE", help="Where its triggers come from, like PROACTIVE; by default SCHEDULED."
    ),
    click.option(
        "--priority", type=int, metavar="0-99", help="Lower is sooner; by default 30, and 20 of what comes once."
    ),
    click.option("--description", metavar="TEXT", help="A description for people."),
    click.option(
        "--max-attempts", type=int, metavar="N", help="How often one is tried; by default as its workflow says."
    ),
)

READ: dict[str, Callable[[str], Any]] = {
    "payload": read_payload,
    "source": str.upper,
    "catch_up_window": parse_duration,
    "catch_up_spacing": parse_duration,
    "jitter": parse_duration,
    "expires_after": parse_duration,
}
"""How what is typed becomes what ScheduleSpec takes; the others are taken as they are."""

MOMENTS = ("start", "until")


def schedule_options(fn: F) -> F:
    """Return all of them."""
    for option in reversed(OPTIONS):
        fn = option(fn)
    return fn


def read_options(given: dict[str, Any], clock: Clock) -> dict[str, Any]:
    """Return what was given and nothing else, as fields of ScheduleSpec. Raises InvalidInput for what cannot be
    read."""
    read = {name: READ[name](value) if name in READ else value for name, value in given.items() if value is not None}
    for name in (name for name in MOMENTS if name in read):
        read[name] = read_moment(name, read[name], clock.now(), given.get("timezone") or clock.zone()).at
    return read


class WithCommand(OperatorCommand):
    """A command line that may end with `-- PROGRAM ARGUMENTS`, as the parameter `command`; None when it does not."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        left = super().parse_args(ctx, args[:end])
        ctx.params["command"] = args[end + 1 :] if end < len(args) else None
        return left

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND...]"]


def command_payload(command: list[str]) -> dict[str, Any]:
    """Return the payload that makes `command.run` run it. Raises UsageError when there is no program."""
    if not command or not command[0]:
        raise click.UsageError("after -- there is no command")
    return {"argv": command}


def irreversible_payload(payload: dict[str, Any], irreversible: bool | None) -> dict[str, Any]:
    """Return the payload of a command that is irreversible, or is not; None: as it is."""
    if irreversible is None:
        return payload
    if irreversible:
        return {**payload, "irreversible": True}
    return {name: value for name, value in payload.items() if name not in ("irreversible", "no_effect_exit_codes")}


def refuse_irreversible() -> NoReturn:
    """Raise UsageError: there is no command that could be."""
    raise click.UsageError(
        "--irreversible is for a command: give it after --. A payload of command.run says it with "
        '"irreversible": true; what else a workflow does once, its code says with ctx.act'
    )
