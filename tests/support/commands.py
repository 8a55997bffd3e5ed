"""Every command with a call on a `World`, by kind: commands that read, operator commands, and commands that run work.

Every new command belongs to one of the three kinds, or tests/cli/test_command_kinds.py fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import click

from craftcore.cli.root import root
from craftcore.cli.short_ids import DIGITS_MIN, shorten_ids
from tests.support.populated_database import World


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a command: the `arguments` after its name, and the `subjects` of its audit rows, one for each row."""

    arguments: Callable[[World], list[str]] = lambda world: []
    subjects: Callable[[World], list[str | None]] = lambda world: [None]


READS: dict[str, Call] = {
    "check": Call(),
    "status": Call(),
    "doctor": Call(),
    "top": Call(),
    "audit": Call(),
    "trigger list": Call(),
    "trigger show": Call(lambda world: [world.waiting]),
    "trigger why": Call(lambda world: [world.waiting]),
    "dead list": Call(),
    "task list": Call(),
    "task show": Call(lambda world: [world.nap]),
    "task events": Call(lambda world: [world.nap]),
    "task stream": Call(lambda world: [world.nap]),
    "inbox list": Call(),
    "session history": Call(lambda world: ["lobby"]),
    "activity list": Call(),
    "activity show": Call(lambda world: [world.in_doubt]),
    "inspect": Call(lambda world: [world.died]),
    "replay": Call(lambda world: [world.ended]),
    "diff": Call(lambda world: [world.ended, world.ended]),
    "export": Call(lambda world: [world.ended]),
    "schedule list": Call(),
    "schedule show": Call(lambda world: ["nightly"]),
    "schedule why": Call(lambda world: ["nightly"]),
    "schedule preview": Call(lambda world: ["nightly"]),
    "schedule history": Call(lambda world: ["nightly"]),
    "verify": Call(),
    "db check": Call(),
    "db stats": Call(),
    "completion": Call(lambda world: ["bash"]),
    "systemd print": Call(lambda world: ["--program", "/opt/craftcore/bin/craftcore"]),
}

BY_HAND: dict[str, Call] = {
    "hold": Call(lambda world: ["--workflow", "nap"]),
    "release": Call(),
    "trigger cancel": Call(lambda world: [world.waiting], lambda world: [world.waiting]),
    "trigger requeue": Call(lambda world: [world.dead], lambda world: [world.dead]),
    "dead requeue": Call(lambda world: ["--all", "--yes"], lambda world: [world.dead]),
    "dead discard": Call(lambda world: [world.dead], lambda world: [world.dead]),
    "task signal": Call(lambda world: [world.waits, "approved", "true"], lambda world: [world.waits]),
    "task cancel": Call(lambda world: [world.nap, "--reason", "why not"], lambda world: [world.nap]),
    "task stop": Call(lambda world: [world.asks, "--reason", "why not"], lambda world: [world.asks]),
    "task retry": Call(lambda world: [world.failed], lambda world: [world.failed]),
    "inbox answer": Call(lambda world: [world.question, "send"], lambda world: [world.question]),
    "session forget": Call(lambda world: ["lobby"], lambda world: ["lobby"]),
    "activity resolve": Call(lambda world: [world.in_doubt, "--happened", "ref-9"], lambda world: [world.in_doubt]),
    "invalidate": Call(lambda world: [world.died, "--reason", "why not"], lambda world: [world.died]),
    "execution retry": Call(lambda world: [world.died, "--reason", "why not"], lambda world: [world.died]),
    "execution skip": Call(lambda world: [world.died, "--reason", "why not"], lambda world: [world.died]),
    "schedule add": Call(lambda world: ["new", "@daily", "--workflow", "nap"], lambda world: ["new"]),
    "schedule edit": Call(lambda world: ["nightly", "--jitter", "5m"], lambda world: ["nightly"]),
    "schedule pause": Call(lambda world: ["nightly"], lambda world: ["nightly"]),
    "schedule resume": Call(lambda world: ["paused"], lambda world: ["paused"]),
    "schedule run-now": Call(lambda world: ["nightly"], lambda world: ["nightly"]),
    "schedule skip-next": Call(lambda world: ["nightly"], lambda world: ["nightly"]),
    "schedule backfill": Call(
        lambda world: ["nightly", "--from", "2026-11-19T00:00Z", "--to", "2026-11-21T00:00Z"], lambda world: ["nightly"]
    ),
    "schedule remove": Call(lambda world: ["nightly"], lambda world: ["nightly"]),
    "schedule trust-clock": Call(),
    "schedule reanchor": Call(lambda world: [], lambda world: ["ahead"]),
    "db migrate": Call(),
    "db restore": Call(lambda world: ["backup.db", "--yes"]),
    "db gc": Call(),
}
"""Commands with their own tests: `db migrate` needs an older file than the world's, and `db restore` a backup."""

NEED_MORE = {"db migrate", "db restore"}

WORKS: dict[str, Call] = {
    "run": Call(lambda world: ["--until-idle"]),
    "emit": Call(lambda world: ["nap"]),
    "init": Call(lambda world: ["new"]),
    "systemd install": Call(lambda world: ["--program", "/opt/craftcore/bin/craftcore", "--root", "image"]),
    "demo": Call(),
    "crashtest": Call(lambda world: ["app:app", "--emit", "nap", "--at", "writer.flushed:1"]),
    "reload": Call(),
    "db backup": Call(lambda world: ["-o", "backup.db"]),
}
"""Commands that write work or other files, without an audit row. Read-only mode refuses them."""

SERVES: dict[str, Call] = {"web": Call()}
"""Commands that read until a signal ends them. tests/cli/test_web.py calls them."""


def commands(
    command: click.Command | None = root, name: str = "", *, on_cluster: bool = False
) -> Iterator[tuple[str, click.Command]]:
    """Yield each command with its whole name. The commands on a cluster are left out: tests/temporal runs them."""
    assert command is not None, name
    if not isinstance(command, click.Group):
        yield name, command
        return
    context = click.Context(command)
    for verb in command.list_commands(context):
        if command is root and verb == "temporal" and not on_cluster:
            continue
        yield from commands(command.get_command(context, verb), f"{name} {verb}".lstrip(), on_cluster=on_cluster)


def line(name: str, call: Call, world: World) -> list[str]:
    """Return the command with its arguments."""
    return [*name.split(), *call.arguments(world)]


def short(id: str) -> str:
    """Return the id as the tables of a small database show it."""
    return shorten_ids(id, DIGITS_MIN)
