"""The output of a command: plain lines and tables for people, one document with --json. Nothing printed can act.

Whatever comes from the database is escaped: a payload that speaks to a terminal, or begins a line of its own, is shown
and not obeyed. JSON is ASCII and escapes by itself.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from craftcore.cli.folded_text import INDENT, count_columns, fold_text
from craftcore.diagnostics.text.command_text import paste
from craftcore.diagnostics.text.printable import Verbatim
from craftcore.errors import UnreadableRow
from craftcore.log_format import escape_control

CELL_MAX = 60
GAP, NOTHING = "  ", "-"
_COLOURS = {"good": "32", "bad": "31", "warn": "33", "dim": "2", "bold": "1"}


def document_text(value: Any, *, indent: int | None = 2) -> str:
    """Return the value as JSON text. Raises UnreadableRow for NaN and infinities: only a damaged row has one."""
    try:
        return json.dumps(value, indent=indent, default=str, allow_nan=False)
    except ValueError as error:
        raise UnreadableRow(f"a number in it is infinite, or not a number ({error})") from error


class Output:
    """Standard output for the answer, and standard error for remarks."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    def document(self, value: Any) -> None:
        """Print the JSON document. Raises UnreadableRow for NaN and infinity, which JSON does not have."""
        print(document_text(value), flush=True)

    def line(self, text: str = "", verbatim: Verbatim | None = None, *, style: str = "", indent: int = INDENT) -> None:
        """Print one line for people. `text` is escaped, line breaks included; `verbatim` comes after it.

        On a terminal that is too narrow, text continues on the next line, `indent` columns in.
        """
        width = count_columns(sys.stdout) if verbatim is None else None
        for part in fold_text(escape_control(text) + (verbatim or ""), width, indent):
            print(self._style(part, style), flush=True)

    def print_note(self, text: str) -> None:
        """Print a remark on standard error, for people only."""
        if not self.as_json:
            self.print_problem(text)

    def print_problem(self, text: str) -> None:
        """Print a problem with the answer on standard error, also with --json."""
        for part in fold_text(f"craftcore: {escape_control(text)}", count_columns(sys.stderr)):
            print(part, file=sys.stderr, flush=True)

    def quote(self, text: str) -> None:
        """Print foreign text, each line behind a bar, so that it cannot pass for output of craftcore."""
        for line in text.splitlines() or [""]:
            print(f"  | {escape_control(line.expandtabs())}".rstrip(), flush=True)

    def command(self, *words: str) -> None:
        """Print a command to paste into a shell."""
        print(f"  {paste(*words)}", flush=True)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print aligned columns. A cell that is too long is cut, the last column as little as possible.

        A row is one line. On a terminal that is too narrow it continues on the next line, without empty columns, and
        nothing is cut for that.
        """
        cells = [[_cell(value, last=index == len(row) - 1) for index, value in enumerate(row)] for row in rows]
        table = [list(map(escape_control, columns)), *cells]  # a time zone out of the file stands in one
        widths = [max(len(row[index]) for row in table) for index in range(len(columns))]
        lines = _fold_columns(widths, count_columns(sys.stdout))
        for number, row in enumerate(table):
            for line in lines:
                if line[0] != 0 and all(row[index] == NOTHING for index in line):
                    continue
                text = GAP.join(row[index].ljust(widths[index]) for index in line).rstrip()
                print(self._style(text if line[0] == 0 else " " * INDENT + text, "bold" if number == 0 else ""))
        sys.stdout.flush()

    def facts(self, facts: Mapping[str, object]) -> None:
        """Print names and values, one a line; None is left out."""
        shown = {name: value for name, value in facts.items() if value is not None}
        width = max((len(name) for name in shown), default=0)
        for name, value in shown.items():
            before = f"{name.ljust(width)}  "
            verbatim = value if isinstance(value, Verbatim) else None
            self.line(f"{before}{'' if verbatim else value}", verbatim, indent=len(before))

    def _style(self, text: str, style: str) -> str:
        if style and "NO_COLOR" not in os.environ and sys.stdout.isatty():
            return f"\x1b[{_COLOURS[style]}m{text}\x1b[0m"
        return text


def _fold_columns(widths: Sequence[int], room: int | None) -> list[list[int]]:
    """Return which columns share a line, so that each line has room; None: there is no end to it."""
    lines, used = [[0]], widths[0]
    for index, width in enumerate(widths[1:], 1):
        if room is None or used + len(GAP) + width <= room:
            lines[-1].append(index)
            used += len(GAP) + width
        else:
            lines.append([index])
            used = INDENT + width
    return lines


def _cell(value: object, *, last: bool) -> str:
    text = (
        NOTHING
        if value is None or value == ""
        else value
        if isinstance(value, Verbatim)
        else escape_control(str(value))
    )
    limit = CELL_MAX * 2 if last else CELL_MAX
    return text if len(text) <= limit else text[: limit - 1] + "…"
