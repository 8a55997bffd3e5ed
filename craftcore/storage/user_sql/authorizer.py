"""The permissions of user SQL: it reads every table and changes only its own.

It prevents mistakes and is not a sandbox: Python code here can open the file itself.
"""

from __future__ import annotations

import apsw

from craftcore.storage.migrations import list_migrations, object_names_of

SQLITES_OWN = {"data_version", "page_size"}
"""Settings that SQLite itself reads for a full-text or spatial index of the user's."""

RULES = (
    "a user transaction reads every table and changes your own; it begins and ends with its function, and has no "
    "PRAGMA, ATTACH, ANALYZE or temporary tables"
)


def refusal(
    action: int, first: str | None, second: str | None, where: str | None, trigger: str | None, reserved: frozenset[str]
) -> str | None:
    """Return why user SQL may not do this, with the arguments of SQLite's authorizer; None when it may.

    `trigger` is the SQLite trigger that would do it. Unknown operations are refused. SQLite itself refuses to write
    sqlite_schema.
    """
    match action:
        case apsw.SQLITE_SELECT | apsw.SQLITE_READ | apsw.SQLITE_FUNCTION | apsw.SQLITE_RECURSIVE:
            return None
        case apsw.SQLITE_PRAGMA if first in SQLITES_OWN and second is None:
            return None
        case apsw.SQLITE_PRAGMA if first == "quick_check":  # of the rows there are, when a column is added
            return None
        case apsw.SQLITE_INSERT | apsw.SQLITE_UPDATE | apsw.SQLITE_DELETE | apsw.SQLITE_REINDEX:
            names = [first]
        case apsw.SQLITE_ALTER_TABLE:
            names = [second]
        case (
            apsw.SQLITE_CREATE_TABLE
            | apsw.SQLITE_CREATE_INDEX
            | apsw.SQLITE_CREATE_VIEW
            | apsw.SQLITE_CREATE_TRIGGER
            | apsw.SQLITE_CREATE_VTABLE
            | apsw.SQLITE_DROP_TABLE
            | apsw.SQLITE_DROP_INDEX
            | apsw.SQLITE_DROP_VIEW
            | apsw.SQLITE_DROP_TRIGGER
            | apsw.SQLITE_DROP_VTABLE
        ) if where == "main":
            names = [first, second]
        case _:
            return f"{_quote_name(action, first, second)}{_object_text(trigger)} is refused: {RULES}"
    for name in names:
        if name is not None and name.lower() in reserved:
            return (
                f"{_quote_name(action, name)}{_object_text(trigger)} is refused: it is craftcore's own, which "
                "you may read, not change"
            )
    return None


def list_reserved_names() -> frozenset[str]:
    """Return every table, index and view of this program's schema. Those of a later one cannot be foreseen: where the
    user has a table of such a name, the migration that makes it is refused and nothing is changed."""
    return object_names_of(list_migrations())


def _quote_name(action: int, *names: str | None) -> str:
    verb = str(apsw.mapping_authorizer_function[action]).removeprefix("SQLITE_").replace("_", " ")
    return " ".join([verb, *filter(None, names)])


def _object_text(trigger: str | None) -> str:
    return f" by the trigger {trigger}" if trigger else ""
