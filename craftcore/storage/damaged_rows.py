"""The decoding of rows that contain invalid text.

Their texts are read as bytes (`CAST(name AS BLOB)`), which can always be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from functools import cache, partial, wraps
from typing import Any, NamedTuple, TypeVar, get_args, get_type_hints

from craftcore.errors import UnreadableRow
from craftcore.storage.transaction import Reader, Row

Model = TypeVar("Model")
Other = TypeVar("Other")

UNREADABLE = (ValueError, TypeError, OverflowError, RecursionError)
"""The exceptions of reading a damaged row. Text that is not UTF-8 is a ValueError."""


class Damaged(NamedTuple):
    """A row that cannot be decoded. `id`: bad bytes as escapes; None: the id is unknown. `seq`: its number, if it was
    read."""

    id: str | None
    wrong: str
    seq: int | None = None


def read_rows(
    tx: Reader, sql: str, model: Callable[[Row], Model], /, *, key: str = "id", **params: Any
) -> list[Model | Damaged]:
    """Return every row as its model, a damaged row as Damaged. `key`: the column that names a row."""
    try:
        return [model(row) for row in tx.fetch_all(sql, **params)]
    except UNREADABLE:  # one is at fault, and the others must not pay
        return [_read_row(row, model, key) for row in tx.fetch_all_as_bytes(sql, **params)]


def try_read(id: str | None, read: Callable[[], Model], seq: int | None = None) -> Model | Damaged:
    """Return what `read` makes of a row, or what is wrong with that row."""
    try:
        return read()
    except UNREADABLE as error:
        return Damaged(id, describe_damage(error), seq)


def map_rows(rows: Iterable[Model | Damaged], make: Callable[[Model], Other | Damaged]) -> list[Other | Damaged]:
    """Return what `make` returns for each row, in their order. Damaged rows stay as they are, and a row for which
    `make` fails becomes one."""
    return [row if isinstance(row, Damaged) else try_read(_id_of(row), partial(make, row)) for row in rows]


def require_readable(rows: list[Model | Damaged]) -> list[Model]:
    """Return the rows when all are readable. Raises UnreadableRow when one is damaged."""
    for one in list_damaged(rows):
        raise UnreadableRow(f"{one.id}: {one.wrong}")
    return omit_damaged(rows)


def omit_damaged(rows: Iterable[Model | Damaged]) -> list[Model]:
    """Return the rows without the damaged ones."""
    return [row for row in rows if not isinstance(row, Damaged)]


def list_damaged(rows: Iterable[object]) -> list[Damaged]:
    """Return the damaged ones of these rows."""
    return [row for row in rows if isinstance(row, Damaged)]


def row_document(row: Model | Damaged, make: Callable[[Model], Other]) -> Other | dict[str, Any]:
    """Return the JSON document of a row: what `make` returns, or that of a damaged row."""
    return {"id": row.id, "damaged": row.wrong} if isinstance(row, Damaged) else make(row)


def describe_damage(error: BaseException) -> str:
    """Return what a damaged row raised, for people."""
    if isinstance(error, UnicodeDecodeError):
        return f"a text is not UTF-8: {error.object!r:.200}"
    return f"{error!s:.300}"


def model_reader(model: Callable[[Row], Model]) -> Callable[[Row], Model]:
    """Return the same function; a row that it cannot read raises UnreadableRow, which says which row it is."""

    @wraps(model)
    def read(row: Row) -> Model:
        id = row.get("id") or row.get("idem_key") or row.get("schedule_id")
        try:
            return model(row)
        except UnreadableRow:
            raise
        except UNREADABLE as error:
            raise UnreadableRow(f"{id}: {describe_damage(error)}") from error

    return read


def model_of(kind: Callable[..., Model], row: Row, **others: Any) -> Model:
    """Return the model whose fields are the columns of this row, and `others`. Columns without a field are left out.

    A text or a number becomes the enum or the bool of its field. Raises ValueError for a value that the enum lacks.
    """
    conversions = _field_types(kind)
    values = {name: value for name, value in row.items() if name in conversions}
    for name, convert in conversions.items():
        if convert is not None and values.get(name) is not None:
            values[name] = convert(values[name])
    return kind(**{**values, **others})


@cache
def _field_types(kind: Callable[..., Any]) -> dict[str, Callable[[Any], Any] | None]:
    """Return the fields of a model, each with the enum or the bool that it is of; None for what is stored as it is."""
    readers: dict[str, Callable[[Any], Any] | None] = {}
    for name, hint in get_type_hints(kind).items():
        types = (one for one in (hint, *get_args(hint)) if isinstance(one, type))
        readers[name] = next((one for one in types if one is bool or issubclass(one, Enum)), None)
    return readers


def invalid_text(row: Row) -> str | None:
    """Return the name of the first text that is invalid; None when all are valid."""
    for name, value in row.items():
        try:
            if isinstance(value, bytes):
                value.decode()
        except UnicodeDecodeError:
            return f"{name} is not UTF-8: {value!r:.200}"
    return None


def readable_text(value: bytes | None) -> str | None:
    """Return a text, bad bytes as escapes."""
    return None if value is None else value.decode(errors="backslashreplace")


def readable_value(value: Any) -> Any:
    """Return the text of bytes, and any other value as it is."""
    return readable_text(value) if isinstance(value, bytes) else value


def readable_row(row: Row) -> Row:
    """Return a row with texts instead of bytes."""
    return {name: readable_value(value) for name, value in row.items()}


def _id_of(row: Any) -> str | None:
    """Return the id or the key of a model, of a document, or of the model that a tuple begins with."""
    if isinstance(row, dict):
        return row.get("id")
    name = next((name for name in ("id", "key") if hasattr(row, name)), None)
    if name is not None:
        return str(getattr(row, name))
    return _id_of(row[0]) if isinstance(row, tuple) else None


def _read_row(row: Row, model: Callable[[Row], Model], key: str) -> Model | Damaged:
    id = None if row[key] is None else str(readable_value(row[key]))
    if wrong := invalid_text(row):
        return Damaged(id, wrong, row.get("seq"))
    return try_read(id, lambda: model(readable_row(row)), row.get("seq"))
