"""Bodies of records go after a week, whole records after ninety days, in the order of their chain."""

from __future__ import annotations

from typing import Any

import pytest

from craftcore.errors import RowInvalid
from craftcore.executions.record import ExecutionRecord, why_not_replayable
from craftcore.executions.record_store import RecordStore
from craftcore.executions.verification import Verification
from craftcore.retention.model import BATCH
from craftcore.retention.service import Retention
from craftcore.triggers.settlement import Succeeded, Suspended
from tests.executions.attempts import RECORDER, Begun, again, begin, boot, end
from tests.executions.recorded import LARGE
from tests.retention.sweeping import DAY, assert_sound, batches, only, sweep
from tests.tasks.life import a_sleep, complete, enter_next, finish, suspend
from tests.tasks.life import begin as begin_task
from tests.virtual import VirtualCore

DONE = Succeeded(result_json='"Hello Ada"')
STRIPPING = only(bodies=7 * DAY)
REMOVING = only(history=90 * DAY)


def run(core: VirtualCore, **spec: Any) -> Begun:
    begun = begin(core, **spec)
    end(core, begun, DONE)
    return begun


def rest(core: VirtualCore, until: float) -> None:
    """A task at its first turn, which sleeps."""
    running = begin_task(core)
    complete(core, running)
    core.do(RECORDER.close_all, [(running.record, Suspended(reason="sleep#1"))])
    suspend(core, running, a_sleep(until))


def wake(core: VirtualCore) -> None:
    """And its second, at which it ends."""
    running = enter_next(core)
    core.do(RECORDER.close_all, [(running.record, DONE)])
    finish(core, running)


def record(core: VirtualCore, begun: Begun) -> ExecutionRecord:
    found = core.do(RecordStore().get, begun.id)
    assert found is not None
    return found


def numbers(core: VirtualCore) -> list[int]:
    return [row["seq"] for row in core.rows("SELECT seq FROM executions ORDER BY seq")]


# Bodies


def test_a_record_loses_its_bodies_after_a_week_and_not_a_second_before(core, clock):
    begun = run(core, payload={"text": LARGE})
    assert core.rows("SELECT part FROM blobs") == [{"part": "envelope"}]
    whole = record(core, begun)

    clock.advance(7 * DAY - 1)
    assert sweep(core, STRIPPING).rows == 0
    clock.advance(1)
    taken = sweep(core, STRIPPING)

    left = record(core, begun)
    assert dict(+taken.stripped) == {"executions": 1, "events": len(whole.events)}
    assert dict(+taken.removed) == {"blobs": 1}
    assert (left.envelope_json, left.response_json) == (None, None)
    assert {event.payload_json for event in left.events} == {""}
    assert (left.record_hash, left.envelope_hash, left.response_hash) == (
        whole.record_hash,
        whole.envelope_hash,
        whole.response_hash,
    )
    assert why_not_replayable(left) == "body_stripped"
    assert sweep(core, STRIPPING).rows == 0


def test_the_records_of_a_live_task_keep_their_bodies_whatever_their_age(core, clock):
    rest(core, clock.now() + 300 * DAY)
    clock.advance(299 * DAY)

    assert sweep(core).rows == 0

    clock.advance(DAY)
    wake(core)
    clock.advance(7 * DAY)
    assert sweep(core, STRIPPING).stripped["executions"] == 2


def test_a_record_that_a_crash_left_open_loses_its_bodies_once_its_trigger_is_settled(core, clock):
    left = begin(core, payload={"text": LARGE})
    boot(core)
    clock.advance(8 * DAY)
    assert sweep(core, STRIPPING).rows == 0, "its trigger waits to be run again"

    end(core, again(core, epoch=2), DONE)
    taken = sweep(core, STRIPPING)

    assert taken.stripped["executions"] == 1
    assert record(core, left).envelope is None
    assert record(core, left).ended_at is None


def test_an_attempt_that_runs_for_a_month_keeps_what_it_was_given(core, clock):
    running = begin(core, payload={"name": "Ada"})
    clock.advance(400 * DAY)

    assert sweep(core).rows == 0
    end(core, running, DONE)
    assert record(core, running).envelope is not None


def test_a_long_record_loses_its_texts_over_several_batches_each_of_which_can_be_the_last(core, clock):
    running = begin_task(core)
    for n in range(2 * BATCH):
        complete(core, running, f"step:fetch:{n}", "x")
    core.do(RECORDER.close_all, [(running.record, DONE)])
    finish(core, running)
    clock.advance(8 * DAY)

    sizes = []
    for _, taken in batches(core, STRIPPING):
        assert_sound(core)
        sizes.append(taken.rows)

    assert len(sizes) == 3
    assert max(sizes) <= BATCH + 3
    assert core.rows("SELECT count(*) AS n FROM events WHERE payload_json <> ''") == [{"n": 0}]


# Whole records


def test_a_record_goes_after_ninety_days_and_not_a_second_before_and_the_anchor_with_it(core, clock):
    first, last = run(core), run(core)
    clock.advance(90 * DAY - 1)
    assert sweep(core, REMOVING).rows == 0

    clock.advance(1)
    taken = sweep(core, REMOVING)

    assert taken.removed["executions"] == 1
    assert core.do(RecordStore().get, first.id) is None
    [chain] = core.rows("SELECT anchor_seq, anchor_hash, head_seq, removed FROM record_chain")
    assert (chain["anchor_seq"], chain["head_seq"], chain["removed"]) == (1, 2, 1)
    assert record(core, last).prev_hash == chain["anchor_hash"]


def test_the_newest_record_stays_because_its_number_must_not_be_given_again(core, clock):
    run(core)
    clock.advance(400 * DAY)
    sweep(core)
    assert numbers(core) == [1]

    run(core)
    sweep(core)

    assert numbers(core) == [2]


def test_one_that_may_not_go_yet_keeps_all_that_ended_after_it(core, clock):
    before = run(core)
    rest(core, clock.now() + 300 * DAY)
    after = [run(core) for _ in range(3)]
    clock.advance(200 * DAY)

    sweep(core, REMOVING)
    assert numbers(core) == [2, 3, 4, 5]
    assert core.do(RecordStore().get, before.id) is None

    clock.advance(101 * DAY)
    wake(core)
    clock.advance(90 * DAY)
    sweep(core, REMOVING)
    assert numbers(core) == [6]
    assert core.do(RecordStore().get, after[0].id) is None


def test_records_go_in_the_order_in_which_they_ended(core, clock):
    """The first to begin is the last to end."""
    slow = begin(core)
    quick = [run(core) for _ in range(3)]
    clock.advance(50 * DAY)
    end(core, slow, DONE)
    run(core)

    clock.advance(40 * DAY)
    sweep(core, REMOVING)
    assert numbers(core) == [1, 5]
    clock.advance(50 * DAY)
    sweep(core, REMOVING)

    assert numbers(core) == [5]
    assert core.do(RecordStore().get, quick[0].id) is None


def test_a_record_that_a_crash_left_open_goes_too_and_is_counted(core, clock):
    begin(core)
    boot(core)
    end(core, again(core, epoch=2), DONE)
    run(core)
    clock.advance(90 * DAY)

    sweep(core, REMOVING)

    assert numbers(core) == [3]
    assert core.rows("SELECT removed FROM record_chain") == [{"removed": 2}]


def test_more_than_a_batch_goes_in_several_and_verify_is_clean_after_each(core, clock):
    for _ in range(150):
        run(core)
    clock.advance(90 * DAY)

    sizes = []
    for _, taken in batches(core, REMOVING):
        assert_sound(core)
        sizes.append(taken.rows)

    assert len(sizes) > 1
    assert max(sizes) < BATCH + 20
    assert numbers(core) == [150]


def test_a_head_from_before_still_holds(core, clock):
    for _ in range(5):
        run(core)
    with core.reading() as reader:
        verification = Verification(reader, clock.now())
        assert list(verification.faults()) == []
    clock.advance(90 * DAY)
    sweep(core)

    with core.reading() as reader:
        assert list(Verification(reader, clock.now(), verification.head).faults()) == []


def test_nobody_else_removes_a_record(core):
    """What retention may do is what the file's own guards let pass."""
    run(core)
    with pytest.raises(RowInvalid):
        core.do(lambda tx: tx.run("DELETE FROM events"))


# What keeps others from going


def test_the_record_that_keeps_old_ones_is_named_until_its_task_is_over(core, clock):
    retention = Retention(REMOVING)

    def blocker() -> Any:
        with core.reading() as reader:
            return retention.blocker(reader, clock.now())

    run(core)
    rest(core, clock.now() + 300 * DAY)
    for _ in range(3):
        run(core)
    assert blocker() is None, "nothing is old"

    clock.advance(90 * DAY)
    assert blocker() is None, "the oldest may go"
    sweep(core, REMOVING)
    assert (blocker().record_id, blocker().kept) == (core.rows("SELECT id FROM executions ORDER BY seq")[0]["id"], 3)

    clock.advance(210 * DAY)
    wake(core)
    assert blocker() is None
    sweep(core, REMOVING)
    assert blocker() is None


def test_what_is_kept_is_counted_to_a_limit(core, clock, monkeypatch):
    monkeypatch.setattr("craftcore.retention.record_store.KEPT_LOOKED_AT", 2)
    rest(core, clock.now() + 300 * DAY)
    for _ in range(3):
        run(core)
    clock.advance(90 * DAY)

    with core.reading() as reader:
        found = Retention(REMOVING).blocker(reader, clock.now())
    assert found is not None
    assert found.kept == 2
