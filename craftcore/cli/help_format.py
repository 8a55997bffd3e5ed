"""How the help of a command is laid out, from what is declared with it: exit codes, examples, where to read on.

A page ends with the examples, because readers look for them most.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence

import click

from craftcore.cli.exit_codes import MEANINGS, NO_SUCH

FORMATS = {
    "DURATION": "seconds, or a text like 10s, 5m, 2h, 1d, 1h30m",
    "TIME": "ISO 8601 with a zone, like 2026-12-01T09:00Z, or epoch seconds",
    "ID": "whole, or as much of its beginning as no other has",
    "KEY": "the key, or what follows activity: in it; a beginning will do",
    "ZONE": "an IANA name, like Europe/Berlin",
    "JSON|@FILE|-": "JSON; @FILE reads it from a file, - from standard input",
}
"""The form of each placeholder that options and arguments use."""

INDENT = 2

OF_EVERY_COMMAND = "65-78", "else: the database, the disk, rights, settings; see craftcore --help"

COUNTS = re.compile(r"(\d+)<=x<=(\d+)")

Rows = Sequence[tuple[str, str]]


def write_text(formatter: click.HelpFormatter, text: str) -> None:
    """Write paragraphs. Option names are not broken at their hyphens, as click would."""
    indent = " " * INDENT
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        formatter.write_paragraph()
        line = " ".join(paragraph.split())
        formatter.write(
            textwrap.fill(
                line, formatter.width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
            )
        )
        formatter.write("\n")


def write_rows(formatter: click.HelpFormatter, title: str, rows: Rows) -> None:
    """Write two columns under a title; nothing when there are no rows."""
    if rows:
        with formatter.section(title):
            formatter.write_dl(rows)


def write_options(formatter: click.HelpFormatter, ctx: click.Context, common: Sequence[click.Parameter]) -> None:
    """Write a command's own options, then the global ones and --help."""
    params = ctx.command.get_params(ctx)
    own = [param for param in ctx.command.params if param not in common]
    write_rows(formatter, "Options", _records(ctx, own))
    write_rows(formatter, "Formats", list(_formats(own)))
    write_rows(formatter, "Global options", _records(ctx, [param for param in params if param not in own]))


def write_exit_codes(
    formatter: click.HelpFormatter, command: click.Command, exits: Mapping[int, str | None], home: str
) -> None:
    """Write the exit codes besides 0 and 64, with their meaning for this command, else their general meaning.

    `home`: what is missing where nothing is there, in place of a database.
    """
    takes_id = "ID" in _words(command.params) or "KEY" in _words(command.params)
    means = MEANINGS if takes_id else MEANINGS | {NO_SUCH: "no such database"}
    rows = [(str(code), (exits[code] or means[code]).replace("database", home)) for code in sorted(exits)]
    write_rows(formatter, "Exit codes, beyond 0 and 64", [*rows, OF_EVERY_COMMAND])


def write_see(formatter: click.HelpFormatter, see: Sequence[str]) -> None:
    """Write the related commands on one line, the pages on another."""
    pages = [word for word in see if ".md" in word]
    lines = ", ".join(word for word in see if word not in pages), ", ".join(pages)
    write_lines(formatter, "See also", [line for line in lines if line])


def write_lines(formatter: click.HelpFormatter, title: str, lines: Iterable[str]) -> None:
    """Write lines as they are: a wrapped command cannot be pasted."""
    with formatter.section(title):
        for line in lines:
            formatter.write(f"{' ' * INDENT}{line}\n")


def _records(ctx: click.Context, params: Iterable[click.Parameter]) -> Rows:
    found = [param.get_help_record(ctx) for param in params if isinstance(param, click.Option)]
    return [(name, COUNTS.sub(_range_text, text)) for name, text in filter(None, found)]


def _formats(params: Sequence[click.Parameter]) -> Iterator[tuple[str, str]]:
    words = _words(params)
    for word, means in FORMATS.items():
        if word in words:
            yield word, means


def _words(params: Iterable[click.Parameter]) -> set[str]:
    """Return what the help asks for, in its words."""
    params = list(params)
    arguments = {_strip_markup(param.metavar) for param in params if isinstance(param, click.Argument)}
    options = {_strip_markup(param.metavar) for param in params if isinstance(param, click.Option)}
    return arguments | {word.partition("|FILE")[0] for word in arguments} | options - {"KEY"}  # a dedup key is no id


def _range_text(bounds: re.Match[str]) -> str:
    return f"{int(bounds[1]):,} to {int(bounds[2]):,}"


def _strip_markup(metavar: str | None) -> str:
    return (metavar or "").removesuffix("...").strip("[]").removesuffix("...")
