"""Retention of records: bodies for a week, whole records for ninety days, in the order of the chain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from craftcore.activities.model import Decision
from craftcore.errors import RowInvalid
from craftcore.executions.chain.head import Head
from craftcore.executions.chain.verify import Verification
from craftcore.executions.model import EventType
from craftcore.executions.record import ExecutionRecord, refusal_to_replay
from craftcore.executions.record_store import RecordStore
from craftcore.retention.model import BATCH
from craftcore.serialization.canonical import canonicalize
from craftcore.triggers.settlement import Succeeded, Suspended
from tests.support.activity_steps import UNKNOWN, an_activity, decide
from tests.support.attempts import RECORDER, StartedAttempt, begin, boot, end, start_due
from tests.support.fakes import VirtualCore
from tests.support.recorded_executions import LARGE
from tests.support.retention_harness import DAY, assert_sound, batches, only, sweep
from tests.support.task_steps import a_sleep, complete, end_turn, enter_next, event_of, finish, go_on, suspend
from tests.support.task_steps import begin as begin_task
from tests.support.trigger_steps import HOPELESS

DONE = Succeeded(result_json='"Hello Ada"')
STRIPPING = only(bodies=7 * DAY)
REMOVING = only(history=90 * DAY)


def run(core: VirtualCore, **spec: Any) -> StartedAttempt:
    begun = begin(core, **spec)
    end(core, begun, DONE)
    return begun


def start_sleeping_task(core: VirtualCore, until: float) -> None:
    """Suspend the first turn of a task until a time."""
    running = begin_task(core)
    complete(core, running)
    core.do(RECORDER.close_all, [(running.record, Suspended(reason="sleep#1"))])
    suspend(core, running, a_sleep(until))


def end_sleeping_task(core: VirtualCore) -> None:
    """Run the suspended turn to its end."""
    running = enter_next(core)
    core.do(RECORDER.close_all, [(running.record, DONE)])
    finish(core, running)


def record(core: VirtualCore, begun: StartedAttempt) -> ExecutionRecord:
    found = core.do(RecordStore().get, begun.id)
    assert found is not None
    return found


def record_numbers(core: VirtualCore) -> list[int]:
    return [row["seq"] for row in core.rows("SELECT seq FROM executions ORDER BY seq")]


# Bodies


def test_record_bodies_are_stripped_exactly_after_a_week(core, clock):
    begun = run(core, payload={"text": LARGE})
    assert core.rows("SELECT part FROM blobs") == [{"part": "envelope"}]
    whole = record(core, begun)

    clock.advance(7 * DAY - 1)
    assert sweep(core, STRIPPING).rows == 0
    clock.advance(1)
    taken = sweep(core, STRIPPING)

    left = record(core, begun)
    assert len(left.events) == len(whole.events)
    assert dict(+taken.stripped) == {"executions": 1}
    assert dict(+taken.removed) == {"blobs": 1}
    assert (left.envelope_json, left.response_json) == (None, None)
    assert {event.payload_json for event in left.events} == {""}
    assert (left.record_hash, left.envelope_hash, left.response_hash) == (
        whole.record_hash,
        whole.envelope_hash,
        whole.response_hash,
    )
    assert refusal_to_replay(left) == "body_stripped"
    assert sweep(core, STRIPPING).rows == 0


def test_records_of_a_live_task_keep_bodies_at_any_age(core, clock):
    start_sleeping_task(core, clock.now() + 300 * DAY)
    clock.advance(299 * DAY)

    assert sweep(core).rows == 0

    clock.advance(DAY)
    end_sleeping_task(core)
    clock.advance(7 * DAY)
    assert sweep(core, STRIPPING).stripped["executions"] == 2


def test_record_left_open_by_a_crash_is_stripped_while_the_trigger_waits(core, clock):
    """The next attempt has a record of its own and reads the payload of the trigger."""
    left = begin(core, payload={"text": LARGE})
    boot(core)
    clock.advance(8 * DAY)

    taken = sweep(core, STRIPPING)

    assert taken.stripped["executions"] == 1
    assert record(core, left).envelope is None
    assert record(core, left).ended_at is None
    assert start_due(core, epoch=2).claim.payload_json == canonicalize({"text": LARGE})


def test_record_of_a_running_attempt_keeps_bodies_beside_a_crashed_attempt(core, clock):
    begin(core, payload={"text": "x"})
    boot(core)
    running = start_due(core, epoch=2)
    clock.advance(8 * DAY)

    assert sweep(core, STRIPPING).rows == 0

    end(core, running, DONE)
    assert sweep(core, STRIPPING).stripped["executions"] == 1


def test_record_of_a_long_running_attempt_keeps_the_envelope(core, clock):
    running = begin(core, payload={"name": "Ada"})
    clock.advance(400 * DAY)

    assert sweep(core).rows == 0
    end(core, running, DONE)
    assert record(core, running).envelope is not None


def test_record_with_many_events_is_stripped_over_several_sound_batches(core, clock):
    running = begin_task(core)
    for n in range(2 * BATCH + 1):
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


def test_record_is_removed_exactly_after_ninety_days_and_the_anchor_advances(core, clock):
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


def test_newest_record_is_kept_so_that_a_number_is_never_reused(core, clock):
    run(core)
    clock.advance(400 * DAY)
    sweep(core)
    assert record_numbers(core) == [1]

    run(core)
    sweep(core)

    assert record_numbers(core) == [2]


def test_live_turn_keeps_only_the_record_of_the_turn(core, clock):
    before = run(core)
    start_sleeping_task(core, clock.now() + 300 * DAY)
    after = [run(core) for _ in range(3)]
    clock.advance(200 * DAY)

    sweep(core, REMOVING)
    assert record_numbers(core) == [2, 5], "the record of the turn, and the newest"
    assert core.do(RecordStore().get, before.id) is None
    assert core.do(RecordStore().get, after[0].id) is None
    assert core.rows("SELECT chain_seq, execution_seq FROM retained_records") == [{"chain_seq": 2, "execution_seq": 2}]

    clock.advance(101 * DAY)
    end_sleeping_task(core)
    sweep(core, REMOVING)
    assert record_numbers(core) == [6], "the turn has ended, and its first record was old enough"
    assert core.rows("SELECT * FROM retained_records") == []


def test_record_of_an_ended_turn_is_removed_while_the_task_lives(core, clock):
    running = begin_task(core)
    complete(core, running)
    core.do(RECORDER.close_all, [(running.record, Suspended(reason="continues later"))])
    go_on(core, running, {"n": 1}, a_sleep(clock.now() + 300 * DAY))
    run(core)
    clock.advance(90 * DAY)

    assert sweep(core, REMOVING).removed["executions"] == 1


def test_record_of_the_current_turn_without_steps_is_removed(core, clock):
    """A turn that suspends again and again begins a record each time, and reads none of them."""
    running = begin_task(core)
    core.do(RECORDER.close_all, [(running.record, Suspended(reason="sleep#1"))])
    suspend(core, running, a_sleep(clock.now() + 300 * DAY))
    run(core)
    clock.advance(90 * DAY)

    assert sweep(core, REMOVING).removed["executions"] == 1
    assert sweep(core, REMOVING).rows == 0


def test_record_of_an_act_in_doubt_is_kept_until_the_decision(core, clock):
    running = begin_task(core)
    doubt = an_activity(core, running, UNKNOWN)
    unknown = event_of(running, None)._replace(type=EventType.ACTIVITY_UNKNOWN, activity_seq=doubt.seq)
    core.do(core.turn_recorder.record, unknown)
    core.do(RECORDER.close_all, [(running.record, HOPELESS)])
    end_turn(core, running, HOPELESS)
    run(core)
    clock.advance(900 * DAY)

    assert sweep(core).removed["executions"] == 0

    decide(core, doubt, Decision.GIVE_UP)
    assert sweep(core).removed["executions"] == 1


def test_record_stamped_by_a_clock_ahead_does_not_keep_later_records(core, clock):
    core.clock.advance(365 * DAY)
    run(core)
    core.clock.set_back(365 * DAY)
    for _ in range(3):
        run(core)
    clock.advance(90 * DAY)

    assert sweep(core, REMOVING).removed["executions"] == 2
    assert record_numbers(core) == [1, 4]
    clock.advance(365 * DAY)
    assert sweep(core, REMOVING).removed["executions"] == 1


def test_live_turns_behind_the_anchor_are_passed_once(core, clock, monkeypatch):
    """Behind the anchor, only the list of retained records is read. The search for later records begins after them."""
    monkeypatch.setattr("craftcore.retention.execution_store.BATCH", batch := 10)
    for _ in range(batch + 20):
        start_sleeping_task(core, clock.now() + 3_000 * DAY)
    run(core)
    slow = begin(core)
    run(core)
    clock.advance(90 * DAY)

    for step, taken in batches(core, REMOVING):
        assert taken.rows + taken.passed <= batch + 20, step
        assert_sound(core)

    [ends] = core.rows("SELECT anchor_seq, passed_seq FROM record_chain")
    assert ends == {"anchor_seq": batch + 21, "passed_seq": batch + 21}
    end(core, slow, DONE)
    run(core)
    clock.advance(90 * DAY)
    assert sweep(core, REMOVING).removed["executions"] == 2
    assert [n for n in record_numbers(core) if n > batch + 20] == [batch + 24]


def test_live_turns_beyond_a_window_do_not_keep_other_records(core, clock, monkeypatch):
    monkeypatch.setattr("craftcore.retention.execution_store.BATCH", 5)
    monkeypatch.setattr("craftcore.retention.execution_store.LOOKED_AT", looked_at := 8)
    for _ in range(live := 2 * looked_at + 1):
        start_sleeping_task(core, clock.now() + 3_000 * DAY)
    for _ in range(3):
        run(core)
    clock.advance(90 * DAY)

    assert sweep(core, REMOVING).removed["executions"] == 2
    assert record_numbers(core) == [*range(1, live + 1), live + 3]


# Verification of the records behind the anchor


@pytest.fixture
def retained(core, clock):
    """Build a chain with a record of a live turn at place 2, and the anchor at place 4."""
    run(core)
    start_sleeping_task(core, clock.now() + 3_000 * DAY)
    for _ in range(3):
        run(core)
    clock.advance(90 * DAY)
    sweep(core, REMOVING)
    assert record_numbers(core) == [2, 5]
    return core


def faults(core: VirtualCore, before: Head | None = None) -> list[str]:
    with core.reading() as reader:
        return [fault.wrong for fault in Verification(reader, core.clock.now(), before).faults()]


def head(core: VirtualCore) -> Head:
    with core.reading() as reader:
        found = Verification(reader, core.clock.now())
        assert list(found.faults()) == []
    assert found.head is not None
    return found.head


def run_unguarded(core: VirtualCore, *statements: str) -> None:
    """Drop the guards of the file, then run statements."""
    with core.transaction() as tx:
        for row in tx.fetch_all("SELECT name FROM sqlite_schema WHERE type = 'trigger'"):
            tx.run(f"DROP TRIGGER {row['name']}")
        for sql in statements:
            tx.run(sql)


def test_verify_counts_records_retained_for_live_turns(retained):
    with retained.reading() as reader:
        found = Verification(reader, retained.clock.now())
        assert list(found.faults()) == []
    assert (found.counts.chained, found.counts.retained, found.counts.removed) == (2, 1, 3)


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        (
            ["UPDATE executions SET workflow = 'other' WHERE seq = 2"],
            "its header is not the one that the record's hash was made of",
        ),
        (["UPDATE executions SET record_hash = 'sha256:0' WHERE seq = 2"], "not the record that was kept"),
        (["UPDATE retained_records SET record_hash = 'sha256:0'"], "not the record that was kept"),
        (["UPDATE retained_records SET chain_seq = 3"], "its own place is 2"),
        (["UPDATE retained_records SET chain_seq = 9"], "behind the anchor, which is at place 4"),
        (["DELETE FROM retained_records"], "retention has removed what stood at its place in the chain, 2"),
        (
            ["DELETE FROM event_rows WHERE execution_seq = 2", "DELETE FROM executions WHERE seq = 2"],
            "which retention kept, is missing",
        ),
        (
            [
                "DELETE FROM event_rows WHERE execution_seq = 2",
                "DELETE FROM executions WHERE seq = 2",
                "DELETE FROM retained_records",
            ],
            "1 record is missing that retention did not remove",
        ),
        (
            ["UPDATE record_chain SET anchor_seq = 5, anchor_hash = head_hash"],
            "retention has removed what stood at its place in the chain, 5",
        ),
    ],
)
def test_verify_finds_changes_behind_the_anchor(retained, statements, expected):
    run_unguarded(retained, *statements)

    assert any(expected in wrong for wrong in faults(retained)), faults(retained)


def test_retained_record_cannot_be_deleted_outside_retention(retained):
    for sql in ("DELETE FROM event_rows WHERE execution_seq = 2", "DELETE FROM executions WHERE seq = 2"):
        with pytest.raises(RowInvalid):
            retained.do(lambda tx, sql=sql: tx.run(sql))


def test_head_of_a_retained_record_is_verified_by_hash(core, clock):
    run(core)
    start_sleeping_task(core, clock.now() + 3_000 * DAY)
    before = head(core)
    assert before.place == 2
    for _ in range(3):
        run(core)
    clock.advance(90 * DAY)
    sweep(core, REMOVING)
    assert faults(core, before) == []

    changed = replace(before, hash="sha256:0")
    assert faults(core, changed) == ["record of the chain 2 is not the one that the head from before knew"]


def test_records_are_removed_in_order_of_end(core, clock):
    """The first record begun is the last to end."""
    slow = begin(core)
    quick = [run(core) for _ in range(3)]
    clock.advance(50 * DAY)
    end(core, slow, DONE)
    run(core)

    clock.advance(40 * DAY)
    sweep(core, REMOVING)
    assert record_numbers(core) == [1, 5]
    clock.advance(50 * DAY)
    sweep(core, REMOVING)

    assert record_numbers(core) == [5]
    assert core.do(RecordStore().get, quick[0].id) is None


def test_record_left_open_by_a_crash_is_removed_and_counted(core, clock):
    begin(core)
    boot(core)
    end(core, start_due(core, epoch=2), DONE)
    run(core)
    clock.advance(90 * DAY)

    sweep(core, REMOVING)

    assert record_numbers(core) == [3]
    assert core.rows("SELECT removed FROM record_chain") == [{"removed": 2}]


def test_records_beyond_a_batch_are_removed_over_several_verified_batches(core, clock):
    for _ in range(BATCH + 50):
        run(core)
    clock.advance(90 * DAY)

    sizes = []
    for _, taken in batches(core, REMOVING):
        assert_sound(core)
        sizes.append(taken.rows)

    assert len(sizes) > 1
    assert max(sizes) < BATCH + 20
    assert record_numbers(core) == [BATCH + 50]


def test_head_taken_before_a_sweep_still_verifies(core, clock):
    for _ in range(5):
        run(core)
    with core.reading() as reader:
        verification = Verification(reader, clock.now())
        assert list(verification.faults()) == []
    clock.advance(90 * DAY)
    sweep(core)

    with core.reading() as reader:
        assert list(Verification(reader, clock.now(), verification.head).faults()) == []


def test_record_cannot_be_deleted_outside_retention(core):
    """The guards of the file permit only the deletions of retention."""
    run(core)
    with pytest.raises(RowInvalid):
        core.do(lambda tx: tx.run("DELETE FROM executions"))
