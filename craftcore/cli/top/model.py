"""The model of `craftcore top`: the lines of a snapshot, and those that fit the terminal. Pure.

All text is escaped here, and nothing of the terminal is known but its height.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from craftcore.diagnostics.text.trigger_text import name_work
from craftcore.log_format import escape_control
from craftcore.serialization.display import format_bytes, shorten
from craftcore.serialization.time_text import clock_time, format_span, relative_text

QUESTION_MAX = 200


class Rates(NamedTuple):
    """Attempts a second, between two looks that are `seconds` apart."""

    seconds: float
    settled_per_second: float
    failed_per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Rows of one kind under a title. `count`: how many there are in all, None when not counted; the column `gives` is
    cut where the terminal is too narrow."""

    title: str
    rows: tuple[tuple[str, ...], ...]
    count: int | None
    gives: int
    style: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A frame before it is drawn: the verdict, lines of facts (first what else is wrong), sections."""

    ok: bool
    verdict: str
    facts: tuple[str, ...]
    sections: tuple[Section, ...]


def rates(ended_before: int, ended: int, failed: int, seconds: float) -> Rates | None:
    """Return None when no time has passed. A file that was restored meanwhile has fewer records: then nothing was
    settled."""
    if seconds <= 0:
        return None
    return Rates(seconds, max(0, ended - ended_before) / seconds, failed / seconds)


def view(found: Mapping[str, Any], now_rates: Rates | None) -> View:
    """Return the whole of what was read."""
    counts, now = found["counts"], found["now"]
    oldest = found["oldest_due_seconds"]
    lag = "nothing is late" if oldest is None else f"the oldest due since {format_span(oldest)}"
    moved = "settled -  failed -"
    if now_rates is not None:
        moved = f"settled {now_rates.settled_per_second:,.1f}/s  failed {now_rates.failed_per_second:,.1f}/s"
    facts = (
        *(escape_control(f"also {reason['text']}") for reason in found["reasons"][1:]),
        "  ".join(f"{name} {counts[name]:,}" for name in ("due", "later", "claimed", "running", "dead"))
        + (f"  failed {failed:,}" if (failed := found["failed_lately"]["count"]) else "")
        + f"  {lag}",
        f"{moved}  file {format_bytes(found['bytes'])}, WAL {format_bytes(found['wal_bytes'])}  {clock_time(now)}",
    )
    sections = (
        *(_running_section(found), _cut_off(found), _next_section(found), _inbox(found)),
        *(_failed_section(found), _dead_section(found), _doubt_section(found)),
    )
    return View(
        ok=found["ok"],
        verdict=escape_control(found["verdict"]),
        facts=facts,
        sections=tuple(section for section in sections if section.rows),
    )


def fit_to_terminal(whole: View, height: int) -> View:
    """Return the view cut to `height` lines: every section with its title and a row, then more rows in turn from the
    first section on.

    A section needs a blank line before it. Sections that do not fit are left out from the end.
    """
    room = height - 1 - len(whole.facts)
    sections: list[Section] = []
    for section in whole.sections:
        if room < 3:
            break
        sections.append(section)
        room -= 3
    shown = [1] * len(sections)
    while room > 0 and any(shown[index] < len(section.rows) for index, section in enumerate(sections)):
        for index, section in enumerate(sections):
            if room > 0 and shown[index] < len(section.rows):
                shown[index], room = shown[index] + 1, room - 1
    cut = tuple(replace(section, rows=section.rows[: shown[index]]) for index, section in enumerate(sections))
    return replace(whole, facts=whole.facts[: max(0, height - 1)], sections=cut)


def _running_section(found: Mapping[str, Any]) -> Section:
    def cells(row: Mapping[str, Any]) -> Sequence[str]:
        lasts = format_span(max(0.0, found["now"] - row["started_at"]))
        return _name(row), row["id"], f"for {lasts}", f"attempt {row['attempt']}"

    rows = _rows(found["running"], cells, columns=4)
    return _section("running", rows, found["counts"]["running"], gives=0)


def _cut_off(found: Mapping[str, Any]) -> Section:
    """Return what ran when the daemon ended: due when one starts."""

    def cells(row: Mapping[str, Any]) -> Sequence[str]:
        return (
            _name(row),
            row["id"],
            f"began {relative_text(row['started_at'], found['now'])}",
            f"attempt {row['attempt']}",
        )

    rows = _rows(found["cut_off"], cells, columns=4)
    return _section("cut off, due when a daemon starts", rows, found["counts"]["cut_off"], gives=0, style="warn")


def _next_section(found: Mapping[str, Any]) -> Section:
    def cells(row: Mapping[str, Any]) -> Sequence[str]:
        return relative_text(row["due_at"], found["now"]), row["kind"], row["id"], _name(row)

    rows = _rows(found["due_next"], cells, columns=4)
    return _section("due next", rows, None, gives=3)


def _inbox(found: Mapping[str, Any]) -> Section:
    def cells(row: Mapping[str, Any]) -> Sequence[str]:
        asked = relative_text(row["created_at"], found["now"])
        return asked, row["id"], str(row["workflow"]), shorten(row["question"], QUESTION_MAX)

    rows = _rows(found["inbox"], cells, columns=4)
    return _section("asked", rows, found["questions"], gives=3, style="warn")


def _failed_section(found: Mapping[str, Any]) -> Section:
    rows = _error_rows(found["failed"], found["now"])
    return _section("failed within a day", rows, found["failed_lately"]["count"], gives=1, style="bad")


def _dead_section(found: Mapping[str, Any]) -> Section:
    rows = _error_rows(found["dead_letters"], found["now"])
    return _section("dead", rows, found["counts"]["dead"], gives=1, style="bad")


def _error_rows(found: Sequence[Mapping[str, Any]], now: float) -> list[Sequence[str]]:
    def cells(row: Mapping[str, Any]) -> Sequence[str]:
        return f"{row['count']:,}", row["error"] or "-", f"the last {relative_text(row['newest_at'], now)}"

    return _rows(found, cells, columns=3)


def _doubt_section(found: Mapping[str, Any]) -> Section:
    oldest = found["in_doubt"]["oldest"]

    def cells(row: Mapping[str, Any]) -> Sequence[str]:
        return row["action"], f"called {relative_text(row['first_call_at'], found['now'])}", row["key"]

    rows = _rows([] if oldest is None else [oldest], cells, columns=3)
    return _section("in doubt", rows, found["in_doubt"]["count"], gives=2, style="warn")


def _rows(
    rows: Sequence[Mapping[str, Any]], cells: Callable[[Mapping[str, Any]], Sequence[str]], *, columns: int
) -> list[Sequence[str]]:
    """Return the cells of each row. A damaged row shows its id and its fault."""

    def to_document(row: Mapping[str, Any]) -> Sequence[str]:
        if "damaged" in row:
            return ("damaged", str(row["id"]), row["damaged"], *[""] * (columns - 3))
        return cells(row)

    return [to_document(row) for row in rows]


def _section(title: str, rows: Sequence[Sequence[str]], count: int | None, *, gives: int, style: str = "") -> Section:
    safe = tuple(tuple(escape_control(cell) for cell in row) for row in rows)
    return Section(title=title, rows=safe, count=count, gives=gives, style=style)


def _name(row: Mapping[str, Any]) -> str:
    """Return what runs; where that is not known yet, what it came from."""
    return name_work(row["workflow"], row.get("schedule_id")) or f"({row['source']})"
