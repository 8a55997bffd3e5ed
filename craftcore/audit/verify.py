"""The verification of the audit log: each row alone, and each in its position. Pure."""

from __future__ import annotations

from craftcore.audit.model import AuditRow
from craftcore.serialization.canonical import canonicalize


class AuditChain:
    """Follows the log from its anchor on. `last` and `hash`: of the row that was seen last."""

    def __init__(self, anchor_seq: int, anchor_hash: str) -> None:
        self._anchor_seq = anchor_seq
        self.last = anchor_seq
        self.hash = anchor_hash

    def look(self, seq: int, row: AuditRow | None, wrong: list[str]) -> list[str]:
        """Return what is wrong with the next row: before it, with its place, and what it is by itself (`wrong`). `row`
        is None where it cannot be read."""
        if seq <= self._anchor_seq:
            return ["retention has removed what stood here"]
        follows = seq == self.last + 1
        if not follows:
            are = f"row {self.last + 1} is" if seq == self.last + 2 else f"rows {self.last + 1} to {seq - 1} are"
            wrong = [f"before it, {are} missing", *wrong]
        elif row is not None and row.prev_hash != self.hash:
            wrong = [*wrong, "it does not follow the row before it"]
        self.last = seq
        self.hash = "" if row is None else row.hash
        return wrong


def audit_faults(row: AuditRow) -> list[str]:
    """Return the parts of one row that are not as written, wherever it is; [] when all are. Raises ValueError when it
    is not JSON."""
    is_whole = row.hash_now == row.hash and canonicalize(row.details) == row.details_json
    return [] if is_whole else ["it is not the one that its hash was made of"]
