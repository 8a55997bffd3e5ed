"""The counts of entries and calls: each is counted once."""

from __future__ import annotations

from collections import Counter

import pytest
from temporalio.converter import DataConverter

from craftcore.activities.model import ActivityStatus, Decision
from craftcore.tasks.model import Resume
from craftcore.temporal.records.recorded_state import read_state
from craftcore.temporal.workflow import counts
from craftcore.temporal.workflow.messages import EntryEnd, TaskState
from craftcore.temporal.workflow.task_ledger import begin_call, decide_doubt, leave_behind, settle_call
from tests.temporal.replayed import HISTORIES_FOLDER, read_history
from tests.temporal.test_task_ledger import DONE, KEY, TASK, intent

CALLS = "craftcore_calls"


class Meter:
    """A fake meter that also counts during a replay."""

    def __init__(self) -> None:
        self.counted: Counter[tuple[str, ...]] = Counter()

    def create_counter(self, name: str, _meaning: str) -> Meter:
        self._name = name
        return self

    def add(self, value: int, labels: dict[str, str]) -> None:
        self.counted[(self._name, *labels.values())] += value


@pytest.fixture
def meter(monkeypatch: pytest.MonkeyPatch) -> Meter:
    meter = Meter()
    monkeypatch.setattr("temporalio.workflow.metric_meter", lambda: meter)
    return meter


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["0.1.0-cancel", "0.1.0-cancel-intent"])
async def test_entry_whose_end_meets_its_cancel_is_counted_once(meter, name):
    await read_state(read_history(HISTORIES_FOLDER / f"{name}.json"), DataConverter.default)
    assert {key: count for key, count in meter.counted.items() if key[0] == "craftcore_attempts"} == {
        ("craftcore_attempts", "single", "cancelled"): 1
    }


def test_late_end_of_a_call_that_was_made_again_is_not_counted(meter):
    state = TaskState(task=TASK, resume=Resume.FIRST)
    begin_call(state, 1, intent(), 0.0)
    counts.count_call("pay", ActivityStatus.UNKNOWN)  # the entry has left the call
    leave_behind(state, 1, 5.0)
    decide_doubt(state, KEY, Decision.RESEND, by="ada", reference=None, calls=None, now=6.0)
    begin_call(state, 2, intent(), 7.0)
    for call in (1, 2):
        before = state.acts[KEY]
        settle_call(state, KEY, call, DONE, 8.0)
        counts.count_settled(before, state.acts[KEY])
    assert meter.counted == {(CALLS, "pay", "unknown"): 1, (CALLS, "pay", "done"): 1}


def test_name_that_no_app_declares_adds_no_label(meter):
    end = EntryEnd(status="FAILED", reason="no agent", error_code="CAPABILITY_NOT_FOUND")
    counts.count_entry("emitted", end)
    counts.count_entry("order", EntryEnd(**{**vars(end), "is_task": True}))  # the code of a failure raised by user code
    assert meter.counted == {
        ("craftcore_attempts", "other", "failed"): 1,
        ("craftcore_attempts", "order", "failed"): 1,
    }


@pytest.mark.parametrize("move", ["limited", "handed back"])
def test_entry_that_is_left_to_others_is_not_counted(meter, move):
    counts.count_entry("order", EntryEnd(status="PENDING", reason="busy", move=move))
    assert meter.counted == {}
