"""Single steps of an activity, each in its own transaction."""

from __future__ import annotations

from typing import Any

from craftcore.activities.ledger import Ledger
from craftcore.activities.listing_store import ActivityListStore
from craftcore.activities.model import (
    Activity,
    ActivityStatus,
    CallOutcome,
    Decision,
    NewIntent,
    OnUnknown,
    StartedCall,
)
from craftcore.activities.store import ActivityStore
from craftcore.storage.restored_work import RestoredWork
from tests.support.fakes import VirtualCore
from tests.support.task_steps import Running

LEDGER = Ledger(RestoredWork())
STORE = ActivityStore()
LISTING = ActivityListStore()

DONE = CallOutcome(ActivityStatus.DONE, "the provider answered", result_json='"ref-1"', provider_ref="ref-1")
NOTHING = CallOutcome(ActivityStatus.FAILED, "nothing happened", error_message="refused", may_retry=True)
REFUSED = CallOutcome(ActivityStatus.FAILED, "the provider refused", error_code="CARD", error_message="declined")
UNKNOWN = CallOutcome(ActivityStatus.UNKNOWN, "it did not answer in time", error_message="within 60 s", may_retry=True)


def an_intent(running: Running, place: str = "1.1", **changes: Any) -> NewIntent:
    task = running.task
    return NewIntent(
        f"activity:{task.id}:{place}",
        task.id,
        task.seq,
        task.turn,
        "pay",
        OnUnknown.ASK,
        "hash",
        '{"amount":7}',
        running.record.seq,
        1,
    )._replace(**changes)


def begin_call(core: VirtualCore, intent: NewIntent) -> StartedCall | Activity | Exception:
    [answer] = core.do(LEDGER.begin_all, [intent])
    return answer


def start_call(core: VirtualCore, intent: NewIntent) -> StartedCall:
    answer = begin_call(core, intent)
    assert isinstance(answer, StartedCall), answer
    return answer


def end_call(core: VirtualCore, call: StartedCall, end: CallOutcome) -> bool:
    """Record the outcome of a call; return whether this call was still open."""
    return core.do(STORE.settle_all, [(call, end)]) == {call.seq}


def an_activity(core: VirtualCore, running: Running, end: CallOutcome | None = None, place: str = "1.1") -> Activity:
    """Create an activity that was called with this outcome. None leaves the call open."""
    call = start_call(core, an_intent(running, place))
    if end is not None:
        assert end_call(core, call, end)
    return look(core, call.seq)


def decide(core: VirtualCore, activity: Activity, decision: Decision, **more: Any) -> Activity:
    return core.do(LEDGER.decide, activity, decision, decided_by="ada", **more)


def look(core: VirtualCore, seq: int) -> Activity:
    return core.do(STORE.get_by_seq, seq)
