"""The ends of the chains as they stand, without a walk over what leads there."""

from __future__ import annotations

from craftcore.executions.chain.head import Head
from craftcore.executions.chain.verify_store import VerifyingStore
from craftcore.storage.transaction import Reader


def read_head(reader: Reader, now: float) -> Head | None:
    """Return None where the file has lost them, or they are none: `craftcore verify` says what is wrong."""
    store = VerifyingStore()
    try:
        [ends] = store.chain_states(reader)
        last = reader.fetch_one("SELECT seq, hash FROM audit_log ORDER BY seq DESC LIMIT 1")
        return Head(
            at=now,
            place=ends.head_seq,
            hash=ends.head_hash,
            newest=store.numbers(reader).newest,
            unchained_to=ends.unchained_to,
            removed=ends.removed,
            audit_place=ends.audit_anchor_seq if last is None else last["seq"],
            audit_hash=ends.audit_anchor_hash if last is None else last["hash"],
        )
    except ValueError:
        return None
