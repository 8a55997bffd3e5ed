"""Flipped bits in copies of a database, and the commands that find them."""

from __future__ import annotations

import random
import shutil
import signal
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import apsw

from craftcore.cli.main import BUG, main
from tests.support.processes import PATIENCE

PAGE = 4096
HEADER = 100

Place = tuple[str, str]
"""A table or index and the kind of its pages. The first part is "" for the header and for other pages."""

PAGES = "SELECT name, pagetype, pageno FROM dbstat"
OWN = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite!_%' ESCAPE '!' ORDER BY name"


@dataclass(frozen=True, slots=True)
class Flip:
    """One flipped bit: its byte offset in the file, and its number in the byte."""

    place: Place
    offset: int
    bit: int


@dataclass(frozen=True, slots=True)
class FlipResult:
    """The result of one flip.

    `found_by`: the commands that report a fault. `differs`: when no command does, the cells with a changed value, as
    (table, column, key of the row).
    """

    flip: Flip
    found_by: list[str]
    differs: set[tuple[str, str, Any]]


def read_pages(path: Path) -> dict[Place, list[int]]:
    """Return the numbers of all pages of the file, counted from 0, by their place."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    pages: dict[Place, list[int]] = defaultdict(list)
    count = connection.execute("PRAGMA page_count").get
    for name, kind, number in connection.execute(PAGES):
        pages[str(name), str(kind)].append(int(number) - 1)
    used = {page for found in pages.values() for page in found}
    connection.close()
    for page in sorted(set(range(int(count))) - used):
        pages["", "pointer map" if page % (PAGE // 5 + 1) == 1 else "free"].append(page)
    return dict(pages)


def choose_flips(path: Path, rng: random.Random, counts: dict[str, int], default_count: int) -> Iterator[Flip]:
    """Yield flips in every kind of page, most of them in bytes that are not 0.

    `counts`: the number of flips by the name of the table; `default_count` applies to the others.
    """
    text = path.read_bytes()
    for _ in range(default_count * 3):
        yield Flip(("", "header"), rng.randrange(HEADER), rng.randrange(8))
    for place, pages in sorted(read_pages(path).items()):
        for _ in range(counts.get(place[0], default_count)):
            start = rng.choice(pages) * PAGE
            written = [start + n for n in range(PAGE) if text[start + n]]
            offset = rng.choice(written) if written and rng.random() < 0.8 else start + rng.randrange(PAGE)
            yield Flip(place, offset, rng.randrange(8))


def check_flip(flip: Flip, sound: Path, folder: Path) -> FlipResult:
    """Flip a bit in a copy, and run both commands. Raises AssertionError when one of them breaks or hangs."""
    path = folder / "flipped.db"
    for left in folder.glob("flipped.db*"):
        left.unlink()
    shutil.copy(sound, path)
    with path.open("r+b") as file:
        file.seek(flip.offset)
        [byte] = file.read(1)
        file.seek(flip.offset)
        file.write(bytes([byte ^ 1 << flip.bit]))
    found_by = [" ".join(command) for command in (("db", "check"), ("verify",)) if _reports_fault(path, flip, *command)]
    return FlipResult(flip, found_by, set() if found_by else differences(sound, path))


def _reports_fault(path: Path, flip: Flip, *command: str) -> bool:
    """Return whether the command reports a fault."""
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err), _time_limit():
        code = main(["--db", str(path), *command])
    report = f"{flip}: {command} ended with {code}\n{out.getvalue()[-2000:]}\n{err.getvalue()[-2000:]}"
    assert code != BUG, report
    assert code == 0 or out.getvalue() + err.getvalue(), report
    return code != 0


@contextmanager
def _time_limit() -> Iterator[None]:
    def raise_hung(*_: object) -> None:
        raise AssertionError("the command hangs")

    before = signal.signal(signal.SIGALRM, raise_hung)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def differences(sound: Path, flipped: Path) -> set[tuple[str, str, Any]]:
    """Return the cells of all tables that differ between two files, with all cells of a row that one file lacks."""
    before, after = read_cells(sound), read_cells(flipped)
    return {cell for cell in before.keys() | after.keys() if before.get(cell, cell) != after.get(cell, cell)}


def read_cells(path: Path) -> dict[tuple[str, str, Any], Any]:
    """Return the values of all tables with their types. Texts are bytes."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    cells: dict[tuple[str, str, Any], Any] = {}
    for table in ["sqlite_schema", *(str(name) for (name,) in connection.execute(OWN))]:
        columns = connection.execute("SELECT name, pk FROM pragma_table_info(?)", (table,)).fetchall()
        keys = [str(name) for name, pk in sorted(columns, key=lambda column: str(column[1])) if pk] or ["rowid"]
        names = [str(name) for name, _ in columns]
        values = ", ".join(
            f"typeof({n}), CASE typeof({n}) WHEN 'text' THEN CAST({n} AS BLOB) ELSE {n} END" for n in names
        )
        for row in connection.execute(
            f"SELECT {values}, {', '.join(f'CAST({key} AS BLOB)' for key in keys)} FROM {table}"
        ):
            key = row[2 * len(names) :]
            for number, name in enumerate(names):
                cells[table, name, key] = row[2 * number : 2 * number + 2]
    connection.close()
    return cells
