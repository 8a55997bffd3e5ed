"""The command `craftcore` and what all its commands share. A command's module is imported when it is called."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

COMMANDS = {
    "run": "run:run",
    "init": "init:init",
    "check": "check:check",
    "status": "status:status",
    "doctor": "doctor:doctor",
    "top": "top:top",
    "release": "status:release",
    "reload": "reload:reload",
    "emit": "emit:emit",
    "trigger": "trigger:trigger",
    "dead": "dead:dead",
    "task": "task:task",
    "inbox": "inbox:inbox",
    "activity": "activity:activity",
    "inspect": "inspect:inspect",
    "invalidate": "invalidate:invalidate",
    "execution": "execution:execution",
    "replay": "replay:replay",
    "diff": "diff:diff",
    "export": "export:export",
    "schedule": "schedule:schedule",
    "audit": "audit:audit",
    "verify": "verify:verify",
    "db": "db:db",
    "systemd": "systemd:systemd",
    "completion": "completion:completion",
    "demo": "demo:demo",
}
"""Name -> module:function, in the order of the help text: from the first day to the last."""


class Command(click.Command):
    """A command that takes the global options, too."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(global_options())
        for param in self.params:
            _complete(param)


class Changing(Command):
    """A command that writes: with --read-only it is refused before it begins."""

    def invoke(self, ctx: click.Context) -> Any:
        ctx.obj.require_writing(name_of(ctx))
        return super().invoke(ctx)


class ByHand(Changing):
    """What a person does to what is in the database. Its way in is `session.changing`, which writes down who did it."""


def name_of(ctx: click.Context) -> str:
    """The command's whole name, as one types it: `task cancel`."""
    return ctx.command_path.partition(" ")[2]


class Noun(click.Group):
    """A noun of the command line with its verbs."""

    command_class = Command

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(global_options())
        for param in self.params:
            _complete(param)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            near = get_close_matches(args[0], self.list_commands(ctx), n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(self.list_commands(ctx))}"
            ctx.fail(f"no command {args[0]!r:.80}; {hint}")
        return super().resolve_command(ctx, args)


class Root(Noun):
    """All commands; none is imported before it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """Commands by their names alone: what each is for would cost the import of all of them."""
        names = [CompletionItem(name) for name in COMMANDS if name.startswith(incomplete)]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, function = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(f"craftcore.cli.{module}"), function)
        return command


def global_options() -> list[click.Parameter]:
    """--db, --config, --json, --read-only, --version: accepted before the command and after it."""
    return [
        click.Option(["--db"], metavar="PATH", expose_value=False, callback=_remember, help="The database file."),
        click.Option(
            ["--config", "config_file"], metavar="FILE", expose_value=False, callback=_remember, help="The settings."
        ),
        click.Option(["--json"], is_flag=True, expose_value=False, callback=_remember, help="One JSON document."),
        click.Option(
            ["--read-only"], is_flag=True, expose_value=False, callback=_remember, help="Refuse whatever would write."
        ),
        click.Option(
            ["--version"], is_flag=True, expose_value=False, is_eager=True, callback=_version, help="Say the version."
        ),
    ]


def _complete(param: click.Parameter) -> None:
    """Let a shell be offered what is there."""

    def offer(ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        from craftcore.cli.completing import offered

        return offered(ctx, param, incomplete)

    param.shell_complete = offer  # type: ignore[method-assign]


def _remember(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if value == "":  # an unset variable in a script; another database than the one meant would be worse than none
        raise click.BadParameter("it is empty", ctx, param)
    if value and param.name:
        setattr(ctx.obj, param.name, value)


def _version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:  # which completes a line and runs none
        from importlib.metadata import version

        click.echo(f"craftcore {version('craftcore')}")
        ctx.exit()


@click.group(cls=Root, context_settings={"help_option_names": ["-h", "--help"]})
def root() -> None:
    """Durable triggers and tasks on one SQLite file.

    The database is --db, else $CRAFTCORE_DB, else craftcore.db in the state directory. Exit codes: 0 ok, 1 a problem
    was found, 4 the awaited work failed, 10 no such id, 11 not replayable, 12 bad filter, 64 usage or refused input, 65
    database, 70 bug, 73 cannot create, 74 I/O, 75 try later, 77 permission or read only, 78 configuration.
    """
