"""The command `craftcore` and what all its commands share. A command's module is imported when it is called."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from craftcore.cli import help_format
from craftcore.cli.exit_codes import MEANINGS, NO_SUCH

SECTIONS = {
    "Run it, and see whether it is well": {
        "run": "service.run:run",
        "init": "init:init",
        "check": "service.check:check",
        "status": "status.status:status",
        "top": "top.command:top",
        "doctor": "status.doctor:doctor",
        "release": "status.status:release",
        "reload": "service.reload:reload",
        "demo": "demo.command:demo",
    },
    "Triggers and schedules": {
        "emit": "trigger.emit:emit",
        "trigger": "trigger.commands:trigger",
        "dead": "trigger.dead:dead",
        "schedule": "schedule.group:schedule",
    },
    "Tasks, their questions, irreversible actions": {
        "task": "task.commands:task",
        "inbox": "task.inbox:inbox",
        "activity": "activity.commands:activity",
    },
    "Executions: what was seen of each attempt": {
        "inspect": "execution.inspect:inspect",
        "replay": "execution.replay:replay",
        "verify": "execution.verify:verify",
        "invalidate": "execution.invalidate:invalidate",
        "export": "execution.export:export",
        "diff": "execution.diff:diff",
        "execution": "execution.operate:execution",
    },
    "The file, the people, the machine": {
        "db": "database.commands:db",
        "audit": "audit:audit",
        "systemd": "service.systemd:systemd",
        "completion": "completion.command:completion",
    },
}
"""The commands as the help shows them. Name -> module:function."""

COMMANDS = {name: place for section in SECTIONS.values() for name, place in section.items()}


ENVIRONMENT = [
    ("CRAFTCORE_DB", "the database, unless --db says which"),
    ("CRAFTCORE_CONFIG", "the settings, unless --config says which"),
    ("CRAFTCORE_READ_ONLY", "anything but 0: as --read-only"),
    ("CRAFTCORE_TRACEBACK", "anything: show where a bug is"),
    ("NO_COLOR", "anything: no colours on a terminal"),
]


NEVER_EMPTY = {"NAME", "SESSION", "FILE", "DIR", "PATH"}
"""What such an option names is something, or it is left out."""


class Command(click.Command):
    """A command that takes the global options, too, and says of itself what its help ends with.

    `touches`: a sentence on what it reads or writes, and whether a daemon may run meanwhile. `exits`: the exit codes it
    can end with beyond 0 and 64 and what each means here; None: what the table says. `examples`: lines to paste.
    `see`: commands and pages to read on.
    """

    default_touches = "Only reads, and may run beside a daemon."

    def __init__(
        self,
        *args: Any,
        touches: str | None = None,
        exits: Mapping[int, str | None] | None = None,
        examples: Sequence[str] = (),
        see: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.touches = self.default_touches if touches is None else touches
        self.exits = {NO_SUCH: None} if exits is None else exits
        self.examples = examples
        self.see = see
        self.common = global_options()
        self.params.extend(self.common)
        for param in self.params:
            _tell(param)
            _complete(param)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        help_format.write_text(formatter, f"{inspect.cleandoc(self.help or '')}\n\n{self.touches}")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        help_format.write_options(formatter, ctx, self.common)
        help_format.write_exit_codes(formatter, self, self.exits)
        help_format.write_see(formatter, self.see)
        help_format.write_lines(formatter, "Examples", self.examples)


class Changing(Command):
    """A command that writes: with --read-only it is refused before it begins."""

    default_touches = ""

    def invoke(self, ctx: click.Context) -> Any:
        ctx.obj.require_writing(name_of(ctx))
        return super().invoke(ctx)


class ByHand(Changing):
    """What a person does to what is in the database. Its way in is `session.changing`, which writes down who did it."""

    default_touches = (
        "Writes in one commit, beside a daemon or without one; who did it and why stands in `craftcore audit`."
    )


def name_of(ctx: click.Context) -> str:
    """The command's whole name, as one types it: `task cancel`."""
    return ctx.command_path.partition(" ")[2]


class Noun(click.Group):
    """A noun of the command line with its verbs, in the order in which `verbs` has them; else as they were declared."""

    command_class = Command

    def __init__(self, *args: Any, verbs: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.verbs = verbs
        self.common = global_options()
        self.params.extend(self.common)
        for param in self.params:
            _complete(param)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.verbs or self.commands)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        help_format.write_text(formatter, self.help or "")

    def sections(self) -> Mapping[str, Sequence[str]]:
        """The commands of a group under their titles."""
        return {"Commands": self.list_commands(click.Context(self))}

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(len(name) for name in self.list_commands(ctx))
        for title, names in self.sections().items():
            commands = [(name, self.get_command(ctx, name)) for name in names]
            rows = [(name.ljust(width), summary(command)) for name, command in commands if command is not None]
            help_format.write_rows(formatter, title, rows)
        help_format.write_options(formatter, ctx, self.common)

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

    def sections(self) -> Mapping[str, Sequence[str]]:
        return {title: list(commands) for title, commands in SECTIONS.items()}

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        help_format.write_rows(formatter, "Environment", ENVIRONMENT)
        help_format.write_rows(formatter, "Exit codes", [(str(code), means) for code, means in MEANINGS.items()])

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


def summary(command: click.Command) -> str:
    """What it is for, in one line: the first paragraph of its help."""
    return " ".join((command.help or "").partition("\n\n")[0].split())


def global_options() -> list[click.Parameter]:
    """--db, --config, --json, --read-only, --version: accepted before the command and after it."""
    given: dict[str, Any] = {"expose_value": False, "callback": _remember}
    return [
        click.Option(["--db"], metavar="PATH", help="The database file.", **given),
        click.Option(["--config", "config_file"], metavar="FILE", help="The settings, a TOML file.", **given),
        click.Option(["--json"], is_flag=True, help="Print one JSON document, of an error, too.", **given),
        click.Option(["--read-only"], is_flag=True, help="Refuse whatever would write.", **given),
        click.Option(
            ["--version"], is_flag=True, expose_value=False, is_eager=True, callback=_version, help="Say the version."
        ),
    ]


def _tell(param: click.Parameter) -> None:
    """Let what an option takes, and why something is none, be told in words."""
    if isinstance(param.type, click.IntRange):
        param.metavar = param.metavar or "N"
        param.type.name = f"number from {param.type.min:,} to {param.type.max:,}"
    if param.metavar in NEVER_EMPTY and param.callback is None:
        param.callback = _require_some


def _require_some(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    if value == "":  # an unset variable in a script
        raise click.BadParameter("it is empty", ctx, param)
    return value


def _complete(param: click.Parameter) -> None:
    """Let a shell be offered what is there."""

    def offer(ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        from craftcore.cli.completion.candidates import offered

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

    What a command does, asks and writes, with examples: craftcore COMMAND --help.

    The database is --db, else $CRAFTCORE_DB, else craftcore.db in $STATE_DIRECTORY, else in
    ~/.local/state/craftcore. Global options may stand before the command and after it.
    """
