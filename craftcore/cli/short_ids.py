"""Short ids in tables: the end of a UUID, because those that are made one after the other begin alike."""

from __future__ import annotations

import re
from collections.abc import Sequence

from craftcore.cli.output import CELL_MAX
from craftcore.storage.transaction import Reader
from craftcore.tasks.listing_store import TaskLists

ID_DIGITS = 12
"""Digits at the end of an id. They are random."""

DIGITS_MIN = 6
_SPARE_DIGITS = 4
"""Digits beyond those that number all rows: one id of 65,000 shares its end with another."""

_WHOLE = re.compile(r"(?:exec-|activity:)?\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-([0-9a-f]{12})")


def count_digits(reader: Reader) -> int:
    """Return how many digits at the end of an id tell it from all others of this database."""
    return min(ID_DIGITS, max(DIGITS_MIN, len(f"{TaskLists().last_seq(reader):x}") + _SPARE_DIGITS))


def shorten_ids(text: str, digits: int) -> str:
    """Return a text with the end of each id in it: `exec-01a1fdfa-4600-7008-9f39-0b2018072e8c.1` as `072e8c.1`."""
    return _WHOLE.sub(lambda found: found[1][-digits:], text)


def shorten_cells(cells: Sequence[object], digits: int) -> list[object]:
    """Return the cells of a row with short ids. A key that is cut for its length keeps its beginning."""
    return [
        cell
        if type(cell) is not str or (cell.startswith("activity:") and len(cell) > CELL_MAX)
        else shorten_ids(cell, digits)
        for cell in cells
    ]
