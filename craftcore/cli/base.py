"""The click classes that all commands share: global options, sections of the help, refusals of `--read-only`."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import click
from click.shell_completion import CompletionItem

from craftcore.cli import help_format
from craftcore.cli.exit_codes import NO_SUCH

NEVER_EMPTY = {"NAME", "SESSION", "FILE", "DIR", "PATH"}
"""Metavars of parameters that refuse an empty text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnCluster:
    """The form of a command on a cluster: its differences to that on a database file.

    `help`: the help; None: the same, with `remark` after it. `without`: the parameters and exit codes that it lacks,
    and `params`: parameters of its own. `exits`: the codes whose meaning differs. `examples` and `see`: as those of a
    command; None: the same, each on a cluster.
    """

    help: str | None = None
    remark: str = ""
    without: Collection[str | int] = ()
    params: Sequence[click.Parameter] = ()
    exits: Mapping[int, str | None] = field(default_factory=dict)
    examples: Sequence[str] | None = None
    see: Sequence[str] | None = None


class Command(click.Command):
    """A command that also takes the global options, and has the last sections of its help.

    `touches`: a sentence on the data that it reads or writes, and on a running daemon. `exits`: its exit codes besides
    0 and 64, each with its meaning, or None for the meaning of the table. `examples`: lines to paste. `see`: related
    commands and pages. `on_cluster`: its form on a cluster; None: it is for a database file only.
    """

    default_touches = "Only reads, and may run beside a daemon."
    home = "database"
    """The place that has to be there: the meaning of an exit code names it."""

    def __init__(
        self,
        *args: Any,
        touches: str | None = None,
        exits: Mapping[int, str | None] | None = None,
        examples: Sequence[str] = (),
        see: Sequence[str] = (),
        on_cluster: OnCluster | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.on_cluster = on_cluster
        self.touches = self.default_touches if touches is None else touches
        self.exits = {NO_SUCH: None} if exits is None else exits
        self.examples = examples
        self.see = see
        self.common = global_options()
        self.params.extend(self.common)
        for param in self.params:
            _describe(param)
            _complete(param)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        help_format.write_text(formatter, f"{inspect.cleandoc(self.help or '')}\n\n{self.touches}")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        help_format.write_options(formatter, ctx, self.common)
        help_format.write_exit_codes(formatter, self, self.exits, self.home)
        help_format.write_see(formatter, self.see)
        help_format.write_lines(formatter, "Examples", self.examples)


class WriteCommand(Command):
    """A command that writes, and that --read-only refuses before it begins."""

    default_touches = ""

    def invoke(self, ctx: click.Context) -> Any:
        ctx.obj.require_writing(name_of(ctx))
        return super().invoke(ctx)


class OperatorCommand(WriteCommand):
    """A command by which a person changes the database. It writes in `session.write`, which records the person."""

    default_touches = (
        "Writes in one commit, beside a daemon or without one; `craftcore audit` shows who did it and why."
    )


def name_of(ctx: click.Context) -> str:
    """Return the whole name of the command as it is typed: `task cancel`."""
    return ctx.command_path.partition(" ")[2]


class CommandGroup(click.Group):
    """A noun of the command line with its verbs, in the order of `verbs`, or else in the order of declaration.

    `on_cluster`: its help on a cluster; None: it is for a database file only.
    """

    command_class = Command

    def __init__(self, *args: Any, verbs: Sequence[str] = (), on_cluster: str | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.verbs = verbs
        self.on_cluster = on_cluster
        self.common = global_options()
        self.params.extend(self.common)
        for param in self.params:
            _complete(param)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.verbs or self.commands)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        help_format.write_text(formatter, self.help or "")

    def sections(self) -> Mapping[str, Sequence[str]]:
        """Return the commands of the group under their titles."""
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


def summary(command: click.Command) -> str:
    """Return the purpose of a command in one line: the first paragraph of its help."""
    return " ".join((command.help or "").partition("\n\n")[0].split())


def global_options() -> list[click.Parameter]:
    """Return the options that are accepted both before the command and after it."""
    shared: dict[str, Any] = {"expose_value": False, "callback": _set_on_session}
    return [
        click.Option(["--db"], metavar="PATH", help="The database file.", **shared),
        click.Option(["--config", "config_file"], metavar="FILE", help="The settings, a TOML file.", **shared),
        click.Option(["--json"], is_flag=True, help="Print one JSON document, of an error, too.", **shared),
        click.Option(["--read-only"], is_flag=True, help="Refuse whatever would write.", **shared),
        click.Option(
            ["--version"], is_flag=True, expose_value=False, is_eager=True, callback=_version, help="Say the version."
        ),
    ]


def _describe(param: click.Parameter) -> None:
    """Set the words that the help and an error use for the values of a parameter."""
    if isinstance(param.type, click.IntRange):
        param.metavar = param.metavar or "N"
        param.type.name = f"number from {param.type.min:,} to {param.type.max:,}"
    if param.metavar in NEVER_EMPTY and param.callback is None:
        param.callback = _require_some


def _require_some(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    if value == "":  # an unset variable in a script; without --db another database than the intended one would be used
        raise click.BadParameter("it is empty", ctx, param)
    return value


def _complete(param: click.Parameter) -> None:
    """Let the shell complete the values of a parameter."""

    def shell_complete(ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        from craftcore.cli.completion.candidates import find_candidates  # no other command needs what it imports

        return find_candidates(ctx, param, incomplete)

    param.shell_complete = shell_complete  # type: ignore[method-assign]


def _set_on_session(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if _require_some(ctx, param, value) and param.name:
        setattr(ctx.obj, param.name, value)


def _version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:  # completion runs no command
        from craftcore.version import installed_version

        click.echo(f"craftcore {installed_version()}")
        ctx.exit()
