"""The operators' log: one row for each change by hand, in the commit that made it. Rows are chained by hashes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from craftcore.audit.model import COLUMNS, Actor, AuditRow
from craftcore.errors import DatabaseInvalid
from craftcore.serialization.canonical import canonicalize
from craftcore.storage.damaged_rows import readable_text
from craftcore.storage.transaction import Reader, Transaction

NAME_MAX = 200
TEXT_MAX = 4_000
"""Characters that are kept of a reason, and of each text of the details."""


def audit(
    tx: Transaction,
    actor: Actor,
    action: str,
    subject: str | None = None,
    *,
    reason: str | None = None,
    details: Mapping[str, Any] | None = None,
) -> int:
    """Write an audit row. Return its number. `details` are JSON, with those of the actor. A text that is too long is
    cut."""
    last, before = _last_row(tx)
    row = AuditRow(
        seq=last + 1,
        at=tx.now,
        uid=actor.uid,
        name=_truncate(actor.name, NAME_MAX),
        action=action,
        subject=subject,
        reason=None if reason is None else _truncate(reason, TEXT_MAX),
        details_json=canonicalize(
            {name: _truncate_value(value) for name, value in {**(details or {}), **actor.details}.items()}
        ),
        prev_hash=before,
        hash="",
    )
    tx.run(
        f"INSERT INTO audit_log ({', '.join(COLUMNS)}) VALUES (:{', :'.join(COLUMNS)})",  # noqa: S608 - of the model
        **{**asdict(row), "hash": row.hash_now},
    )
    return row.seq


def last_number(tx: Reader) -> int:
    """Return the number of the newest row; 0: there is none."""
    return tx.fetch_value("SELECT max(seq) FROM audit_log") or 0


def list_rows(tx: Reader, after: int = 0) -> Iterator[AuditRow]:
    """Return every row from that number on, in order; stepped as they are taken."""
    rows = tx.iterate("SELECT * FROM audit_log WHERE seq > :after ORDER BY seq", after=after)
    return (AuditRow(**row) for row in rows)


def _last_row(tx: Reader) -> tuple[int, str]:
    """Return the number and the hash of the row before. A damaged hash does not stop operator commands: `verify`
    reports it."""
    last = tx.fetch_one("SELECT seq, CAST(hash AS BLOB) AS hash FROM audit_log ORDER BY seq DESC LIMIT 1")
    if last is None:  # none was ever written, or retention took them
        last = tx.fetch_one("SELECT audit_anchor_seq AS seq, CAST(audit_anchor_hash AS BLOB) AS hash FROM record_chain")
    if last is None:
        raise DatabaseInvalid("the end of the operators' log is damaged: nothing can be done by hand. Restore a backup")
    return last["seq"], readable_text(last["hash"]) or ""


def _truncate(text: str, limit: int) -> str:
    """Return the part of a text that is kept. A byte that is not text, as in a file name, is escaped: `\\udcff`."""
    return text.encode("utf-8", "backslashreplace").decode()[:limit]


def _truncate_value(value: Any) -> Any:
    return _truncate(value, TEXT_MAX) if isinstance(value, str) else value
