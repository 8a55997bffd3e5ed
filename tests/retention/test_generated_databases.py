"""Retention of generated databases: live rows stay, expired rows go, and a second pass removes nothing."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from craftcore.activities.model import Decision
from craftcore.config import RetentionSettings
from craftcore.storage.repeated_reads import RepeatedReads
from craftcore.triggers.backoff import RetryPolicy
from craftcore.triggers.model import DedupScope
from craftcore.triggers.settlement import Succeeded, Suspended
from tests.support.activity_steps import DONE, UNKNOWN, an_activity, decide
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.retention_harness import DAY, assert_sound, batches
from tests.support.task_steps import (
    RECORDER,
    Running,
    a_question,
    a_sleep,
    begin,
    begin_child,
    complete,
    enter,
    fail,
    finish,
    for_event,
    go_on,
    on_event,
    suspend,
)
from tests.support.trigger_steps import BROKEN, ack, claim_all, emit, start

SHORT = RetentionSettings(triggers=1 * DAY, dead=3 * DAY, keys=9 * DAY, bodies=2 * DAY, history=9 * DAY, audit=9 * DAY)
FAR = 10_000 * DAY
ONCE = RetryPolicy(max_attempts=1, base=0, cap=0)

BUSY_TASK = """
SELECT seq FROM tasks WHERE status IN ('RUNNING', 'WAITING')
    OR (status = 'FAILED' AND ended_at > :dead)
    OR seq IN (SELECT task_seq FROM questions WHERE status = 'OPEN')
    OR seq IN (SELECT task_seq FROM activity_log WHERE status = 'INTENT' OR (status = 'UNKNOWN' AND decision IS NULL))
"""
LAST_TURN = f"(SELECT turn FROM tasks WHERE tasks.seq = task_seq AND tasks.seq IN ({BUSY_TASK}))"
CHILDREN = """
SELECT payload_json ->> 'id' FROM events JOIN tasks ON tasks.seq = task_seq AND tasks.turn = events.turn
 WHERE type = 'CHILD_STARTED' AND tasks.seq IN ({busy})
"""
LIVE_ROWS = {
    "tasks": f"SELECT * FROM tasks WHERE seq IN ({{busy}}) OR id IN ({CHILDREN})",
    "waits": f"SELECT * FROM waits WHERE turn = {LAST_TURN} OR status = 'WAITING'",
    "questions": "SELECT * FROM questions WHERE status = 'OPEN'",
    "mailbox": "SELECT * FROM mailbox WHERE status = 'UNREAD'",
    "activities": f"""SELECT * FROM activity_log WHERE status IN ('INTENT', 'UNKNOWN') OR turn = {LAST_TURN}
        OR (idem_key GLOB '*:key-*' AND task_seq IN ({{busy}}))""",
    "activity_decisions": f"""SELECT * FROM activity_decisions WHERE activity_seq IN
        (SELECT seq FROM activity_log WHERE status = 'UNKNOWN' OR turn = {LAST_TURN})""",
    "triggers": """SELECT * FROM triggers WHERE status IN ('PENDING', 'CLAIMED')
        OR id IN (SELECT id FROM tasks WHERE seq IN ({busy}))
        OR id IN (SELECT trigger_id FROM tasks WHERE seq IN ({busy}))
        OR id IN (SELECT trigger_id FROM mailbox WHERE status = 'UNREAD')
        OR (status = 'DEAD' AND settled_at > :dead)""",
    "events": f"SELECT * FROM events WHERE memo IS NOT NULL AND turn = {LAST_TURN}",
    "executions": f"""SELECT * FROM executions
        WHERE seq IN (SELECT execution_seq FROM events WHERE memo IS NOT NULL AND turn = {LAST_TURN})
           OR (ended_at IS NULL AND trigger_id IN (SELECT id FROM triggers WHERE status = 'CLAIMED'))""",
    "blobs": f"""SELECT * FROM blobs WHERE execution_seq IN
        (SELECT execution_seq FROM events WHERE memo IS NOT NULL AND turn = {LAST_TURN})""",
    "facts": "SELECT * FROM facts",
    "schedules": "SELECT * FROM schedules",
}
"""The rows that the last turn of a busy task can still read, activities in doubt, and work that waits or runs."""

EXPIRED_ROWS = {
    "records": """SELECT id FROM executions WHERE coalesce(ended_at, created_at) <= :history
        AND seq NOT IN ({kept}) AND seq < (SELECT max(seq) FROM executions)
        AND NOT (ended_at IS NULL AND trigger_id IN (SELECT id FROM triggers WHERE status = 'CLAIMED'))""",
    "waits": """SELECT id FROM waits WHERE resolved_at <= :history
        AND turn < (SELECT turn FROM tasks WHERE seq = task_seq AND status IN ('RUNNING', 'WAITING'))""",
    "read mail": """SELECT seq FROM mailbox WHERE status = 'READ' AND wait_seq IN (SELECT seq FROM waits
         WHERE resolved_at <= :history
           AND turn < (SELECT turn FROM tasks WHERE tasks.seq = task_seq AND status IN ('RUNNING', 'WAITING')))""",
    "triggers": """SELECT id FROM triggers WHERE status = 'DONE' AND settled_at <= :keys
        AND seq < (SELECT max(seq) FROM triggers)
        AND id NOT IN (SELECT id FROM tasks WHERE seq IN ({busy}))
        AND id NOT IN (SELECT trigger_id FROM tasks WHERE seq IN ({busy}) AND trigger_id IS NOT NULL)
        AND id NOT IN (SELECT trigger_id FROM mailbox WHERE status = 'UNREAD' AND trigger_id IS NOT NULL)""",
}
"""The rows past their retention time that nothing reads. They include those of ended turns of a live task."""
KEPT = f"""
SELECT execution_seq FROM events WHERE memo IS NOT NULL AND turn = {LAST_TURN}
 UNION SELECT events.execution_seq FROM events JOIN activity_log ON activity_log.seq = activity_seq
        WHERE activity_log.status IN ('INTENT', 'UNKNOWN')
"""


def close(core: VirtualCore, running: Running) -> None:
    """Close the record of an attempt whose turn suspends or ends."""
    core.do(RECORDER.close_all, [(running.record, Suspended(reason="waits"))])


class World:
    """A database, with operations that change it."""

    def __init__(self, folder: Path) -> None:
        self.clock = VirtualClock()
        self.core = VirtualCore(folder / "agent.db", self.clock, database=RepeatedReads)
        self.keys: dict[str, float] = {}
        """Keys of the scope `ever`, and when their triggers were settled."""

    def live_rows(self) -> dict[str, list[dict[str, Any]]]:
        """Return the rows that retention may not touch, by kind."""
        dead = self.clock.now() - SHORT.dead
        rows = {}
        for name, sql in LIVE_ROWS.items():
            text = sql.format(busy=BUSY_TASK)
            rows[name] = sorted(self.core.rows(text, **({"dead": dead} if ":dead" in text else {})), key=repr)
        return rows

    def expired_rows(self) -> dict[str, list[dict[str, Any]]]:
        """Return the rows past their retention time that nothing reads, by kind."""
        now = self.clock.now()
        cutoffs = {"dead": now - SHORT.dead, "history": now - SHORT.history, "keys": now - SHORT.keys}
        found = {}
        for name, sql in EXPIRED_ROWS.items():
            text = sql.format(busy=BUSY_TASK, kept=KEPT)
            found[name] = self.core.rows(text, **{name: at for name, at in cutoffs.items() if f":{name}" in text})
        return {name: rows for name, rows in found.items() if rows}

    # Operations: all other public methods

    def end_task(self) -> None:
        running = begin(self.core, payload={"text": "x" * 100})
        complete(self.core, running)
        an_activity(self.core, running, DONE)
        finish(self.core, running, {"text": "y" * 100})

    def fail_task(self) -> None:
        running = begin(self.core)
        complete(self.core, running)
        fail(self.core, running)

    def suspend_task(self) -> None:
        running = begin(self.core, payload={"city": "Rome"})
        an_activity(self.core, running, DONE)
        complete(self.core, running)
        suspend(self.core, running, a_sleep(self.clock.now() + FAR))

    def wait_in_second_turn(self) -> None:
        running = begin(self.core)
        complete(self.core, running)
        go_on(self.core, running, {"n": 1}, on_event("go"))
        self.core.do(self.core.tasks.signal, running.task.id, "other", {"text": "unread"})

    def enter_fourth_turn(self) -> None:
        """Enter the fourth turn of a task whose earlier turns each had a step, activities, a message and a child."""
        running = begin(self.core, payload={"text": "x" * 100})
        for n in range(3):
            complete(self.core, running, f"step:fetch:{n}")
            an_activity(self.core, running, DONE, f"{n + 1}.1")
            an_activity(self.core, running, DONE, f"key-{n}")
            child = begin_child(self.core, running)
            close(self.core, child)
            finish(self.core, child, n)
            self.core.do(self.core.tasks.signal, running.task.id, "note", {"text": "read"})
            close(self.core, running)
            suspend(self.core, running, for_event("note", name=f"wait_for#{n}"))
            running = self._enter(running.task.id)
            close(self.core, running)
            go_on(self.core, running, {"n": n})
            running = self._enter(running.task.id)
        complete(self.core, running, "step:last")
        close(self.core, running)
        suspend(self.core, running, a_sleep(self.clock.now() + FAR))

    def _enter(self, task_id: str) -> Running:
        [claim] = [claim for claim in claim_all(self.core) if claim.task_id == task_id]
        running = enter(self.core, claim)
        assert isinstance(running, Running)
        return running

    def ask_question(self) -> None:
        suspend(self.core, begin(self.core), a_question())

    def run_task(self) -> None:
        running = begin(self.core)
        complete(self.core, running)
        an_activity(self.core, running)

    def end_task_in_doubt(self) -> None:
        running = begin(self.core)
        an_activity(self.core, running, UNKNOWN)
        fail(self.core, running)

    def give_up_doubt(self) -> None:
        running = begin(self.core)
        decide(self.core, an_activity(self.core, running, UNKNOWN), Decision.GIVE_UP)
        finish(self.core, running)

    def end_child_before_parent(self) -> None:
        parent = begin(self.core)
        child = begin_child(self.core, parent)
        complete(self.core, child)
        finish(self.core, child, "x")
        suspend(self.core, parent, a_sleep(self.clock.now() + FAR))

    def end_parent_before_child(self) -> None:
        parent = begin(self.core)
        child = begin_child(self.core, parent)
        suspend(self.core, child, for_event("never"))
        finish(self.core, parent)

    def wake_and_end_task(self) -> None:
        waiting = self.core.rows(
            "SELECT tasks.id FROM tasks JOIN waits ON waits.task_seq = tasks.seq "
            "WHERE waits.status = 'WAITING' AND event = 'go' LIMIT 1"
        )
        for row in waiting:
            self.core.do(self.core.tasks.signal, row["id"], "go", None)
            self._run_due_triggers()

    def answer_question(self) -> None:
        for row in self.core.rows("SELECT id FROM questions WHERE status = 'OPEN' AND kind = 'ask' LIMIT 1"):
            self.core.do(self.core.tasks.answer, row["id"], "send", answered_by="ada")
            self._run_due_triggers()

    def settle_ever_key(self) -> None:
        key = f"ever-{len(self.keys)}"
        emit(self.core, dedup_key=key, dedup_scope=DedupScope.EVER, payload={"text": "z"})
        self._run_due_triggers()
        self.keys[key] = self.clock.now()

    def hold_active_key(self) -> None:
        emit(self.core, dedup_key="active", dedup_scope=DedupScope.ACTIVE, delay=FAR)

    def make_dead_letter(self) -> None:
        emit(self.core)
        for claim in claim_all(self.core):
            ack(self.core, start(self.core, claim), BROKEN, ONCE)

    def begin_backoff(self) -> None:
        emit(self.core)
        for claim in claim_all(self.core):
            ack(self.core, start(self.core, claim), BROKEN, RetryPolicy(max_attempts=9, base=FAR, cap=FAR))

    def delay_trigger(self) -> None:
        emit(self.core, delay=FAR, payload={"text": "later"})

    def _run_due_triggers(self) -> None:
        for claim in claim_all(self.core):
            if claim.task_id is None:
                ack(self.core, start(self.core, claim), Succeeded(result_json='"done"'))
            else:
                running = enter(self.core, claim)
                assert isinstance(running, Running)
                finish(self.core, running, "woken")


OPERATIONS: list[Callable[[World], None]] = [
    operation
    for name, operation in vars(World).items()
    if not name.startswith("_") and name not in ("live_rows", "expired_rows")
]
DAYS = [0.3, 1.1, 2.2, 5.0, 9.5]
SEQUENCES = st.lists(st.one_of(st.sampled_from(OPERATIONS), st.sampled_from(DAYS)), min_size=3, max_size=30)


@pytest.mark.parametrize(("seed", "is_repeated"), [*((seed, False) for seed in range(5)), (5, True)])
def test_retention_never_touches_live_rows_and_removes_all_expired_rows(seed, is_repeated):
    """Each seed gives an order of all operations, with days between them. The last sequence repeats some of them."""
    drawn = random.Random(seed)
    operations = drawn.choices(OPERATIONS, k=20) if is_repeated else OPERATIONS
    sequence = [*operations, *drawn.choices(DAYS, k=6)]
    drawn.shuffle(sequence)

    assert check_retention(sequence) == 7


@pytest.mark.campaign
@settings(max_examples=400)
@given(SEQUENCES)
def test_retention_touches_no_live_rows_in_four_hundred_sequences(sequence):
    assert check_retention(sequence) > 0


def check_retention(sequence: list[Any]) -> int:
    """Run a pass of retention at each number of days in a sequence, check it, and return the number of passes."""
    passes = 0
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        for step in [*sequence, 20.0]:
            if not isinstance(step, float):
                step(world)
                continue
            world.clock.advance(step * DAY)
            before = world.live_rows()
            passes += 1

            for _ in batches(world.core, SHORT):
                pass

            assert world.live_rows() == before
            assert world.expired_rows() == {}
            assert [step for step, taken in batches(world.core, SHORT) if taken.rows] == []
            for key, settled_at in world.keys.items():
                if settled_at > world.clock.now() - SHORT.keys:
                    assert not emit(world.core, dedup_key=key, dedup_scope=DedupScope.EVER).created, key
        assert_sound(world.core)
        world.core.close()
    return passes
