"""A person says that a record is not to be replayed. The record stays as it was: the operators' log says it."""

from __future__ import annotations

from craftcore.audit.model import Actor
from craftcore.audit.store import audit
from craftcore.errors import NotFound, StateRefused
from craftcore.executions.record import ExecutionRecord
from craftcore.executions.record_store import INVALIDATE, RecordStore
from craftcore.storage.transaction import Transaction


def invalidate_record(tx: Transaction, execution_id: str, actor: Actor, reason: str) -> ExecutionRecord:
    """Mark a record so that it is not replayed without force. Return the record as it is read then.

    A record without a response may be invalidated, too: a person may know before its end that the result will be
    wrong. Raises NotFound; StateRefused when it is invalidated already.
    """
    records = RecordStore()
    record = records.get(tx, execution_id)
    if record is None:
        raise NotFound(f"no execution {execution_id}")
    if record.invalidated is not None:
        why = f": {record.invalidated}" if record.invalidated else ""
        raise StateRefused(f"{execution_id} is invalidated already{why}; nothing was written")
    audit(tx, actor, INVALIDATE, execution_id, reason=reason, details={"record_hash": record.record_hash})
    after = records.get(tx, execution_id)
    assert after is not None, execution_id
    return after
