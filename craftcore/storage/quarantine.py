"""Quarantine of corrupt rows: find them, make them readable, and settle them, so that all other rows go on.

A table declares in a `Quarantine` which rows are inspected, when one of them is corrupt, and what becomes of it.
Rows are inspected only after a statement over many rows has failed. A sound database pays nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from craftcore.serialization.canonical import canonicalize
from craftcore.storage.damaged_rows import UNREADABLE, describe_damage, invalid_text, readable_row, readable_value
from craftcore.storage.transaction import Reader, Row, Transaction

OWNER = "owner"
"""The column of a query that holds the task that cannot go on without the row."""


class CorruptRow(NamedTuple):
    """A row that the engine cannot use. `row`: its texts as bytes; `owner`: the task that needs it, or None."""

    row: Row
    owner: int | None
    wrong: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """Rows of one table, and the repair of a corrupt one.

    `rows` is a query, and `check` raises for a corrupt row. `becomes` has an SQL expression for each column that the
    repair sets, `nulls` the columns that it empties. Parameters of `becomes` are the columns of the query, `now`,
    `wrong`, and `message`: `wrong` with the row's name. Other texts that are not UTF-8 keep their bad bytes as escapes.
    `json` has the columns that must stay JSON.
    """

    table: str
    kind: str
    name: str | None = "id"
    rows: str
    check: Callable[[Row], object] = dict
    becomes: dict[str, str] = field(default_factory=dict)
    nulls: tuple[str, ...] = ()
    json: tuple[str, ...] = ()
    where: str = "seq = :seq"

    def find(self, tx: Reader) -> list[CorruptRow]:
        """Return the corrupt rows among those of the query."""
        return [corrupt for row in tx.fetch_all_as_bytes(self.rows) if (corrupt := self._inspect(row))]

    def repair_all(self, tx: Transaction) -> list[CorruptRow]:
        """Repair the corrupt rows. Return them as they were."""
        found = self.find(tx)
        for corrupt in found:
            self.repair(tx, corrupt)
        return found

    def repair(self, tx: Transaction, corrupt: CorruptRow) -> int:
        """Make the row readable and write what becomes of it. Return 0 when `where` excludes the row."""
        values = readable_row(corrupt.row)
        values |= {name: _to_json(values[name]) for name in self.json}
        bad = [name for name, value in corrupt.row.items() if invalid_text({name: value})]
        sets = {name: f":{name}" for name in (*bad, *self.json)} | dict.fromkeys(self.nulls, "NULL") | self.becomes
        return tx.run(
            f"UPDATE {self.table} SET {', '.join(f'{name} = {value}' for name, value in sets.items())} "  # noqa: S608
            f"WHERE {self.where}",
            **values,
            wrong=corrupt.wrong,
            message=corrupt.message,
        )

    def _inspect(self, row: Row) -> CorruptRow | None:
        owner = row.pop(OWNER, None)
        wrong = invalid_text(row)
        if wrong is None:
            try:
                self.check(readable_row(row))
                return None
            except UNREADABLE as error:
                wrong = describe_damage(error)
        name = "" if self.name is None else f" {readable_value(row[self.name])!s:.80}"
        return CorruptRow(row, owner, wrong, f"{self.kind}{name}: {wrong}")


def _to_json(text: str | None) -> str | None:
    """Return the text when it is JSON, else a JSON string that holds it."""
    try:
        if text is not None:
            json.loads(text)
    except ValueError:
        return canonicalize(text)
    return text
