"""Whatever a life was and whenever retention looks at it: what is live stays to the letter, a key holds until its
horizon, and a second look finds nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from craftcore.activities.model import Decision
from craftcore.config import RetentionSettings
from craftcore.triggers.backoff import RetryPolicy
from craftcore.triggers.model import DedupScope
from craftcore.triggers.settlement import Succeeded
from tests.activities.life import DONE, UNKNOWN, an_activity, decide
from tests.retention.sweeping import DAY, assert_sound, batches
from tests.tasks.life import (
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
from tests.triggers.life import BROKEN, ack, claim_all, emit, start
from tests.virtual import VirtualClock, VirtualCore

SHORT = RetentionSettings(triggers=1 * DAY, dead=3 * DAY, keys=9 * DAY, bodies=2 * DAY, history=9 * DAY, audit=9 * DAY)
FAR = 10_000 * DAY
ONCE = RetryPolicy(max_attempts=1, base=0, cap=0)

LIVE_TASK = """
SELECT id FROM tasks WHERE status IN ('RUNNING', 'WAITING')
    OR (status = 'FAILED' AND ended_at > :dead)
    OR seq IN (SELECT task_seq FROM questions WHERE status = 'OPEN')
    OR seq IN (SELECT task_seq FROM activity_log WHERE status = 'INTENT' OR (status = 'UNKNOWN' AND decision IS NULL))
"""
WHAT_STAYS = {
    "tasks": "SELECT * FROM tasks WHERE id IN ({live}) OR parent_id IN ({live})",
    **{
        table: f"SELECT * FROM {table} WHERE task_seq IN (SELECT seq FROM tasks WHERE id IN ({{live}}))"
        for table in ("waits", "questions", "mailbox", "activity_log")
    },
    "doubts": "SELECT * FROM activity_log WHERE status IN ('INTENT', 'UNKNOWN')",
    "activity_decisions": """SELECT * FROM activity_decisions WHERE activity_seq IN
        (SELECT seq FROM activity_log WHERE status = 'UNKNOWN' OR task_id IN ({live}))""",
    "triggers": """SELECT * FROM triggers WHERE status IN ('PENDING', 'CLAIMED') OR coalesce(task_id, id) IN ({live})
        OR id IN (SELECT trigger_id FROM mailbox WHERE status = 'UNREAD')
        OR (status = 'DEAD' AND settled_at > :dead)""",
    "executions": """SELECT * FROM executions WHERE task_id IN ({live})
        OR trigger_id IN (SELECT id FROM triggers WHERE status IN ('PENDING', 'CLAIMED'))""",
    "events": """SELECT * FROM events WHERE task_seq IN (SELECT seq FROM tasks WHERE id IN ({live}))""",
    "blobs": """SELECT * FROM blobs WHERE execution_seq IN (SELECT seq FROM executions WHERE task_id IN ({live}))""",
    "facts": "SELECT * FROM facts",
    "schedules": "SELECT * FROM schedules",
}


class World:
    """A database in which things happen, one after the other."""

    def __init__(self, folder: Path) -> None:
        self.clock = VirtualClock()
        self.core = VirtualCore(folder / "agent.db", self.clock)
        self.keys: dict[str, float] = {}
        """Keys that hold for ever, and when their triggers were settled."""

    def stays(self) -> dict[str, list[dict[str, Any]]]:
        """Every row that nothing may touch, by what it is."""
        dead = self.clock.now() - SHORT.dead
        told = {}
        for name, sql in WHAT_STAYS.items():
            given = {"dead": dead} if ":dead" in (text := sql.format(live=LIVE_TASK)) else {}
            told[name] = sorted(self.core.rows(text, **given), key=repr)
        return told

    # What can happen

    def a_task_ends(self) -> None:
        running = begin(self.core, payload={"text": "x" * 100})
        complete(self.core, running)
        an_activity(self.core, running, DONE)
        finish(self.core, running, {"text": "y" * 100})

    def a_task_fails(self) -> None:
        running = begin(self.core)
        complete(self.core, running)
        fail(self.core, running)

    def a_task_sleeps(self) -> None:
        running = begin(self.core, payload={"city": "Rome"})
        an_activity(self.core, running, DONE)
        complete(self.core, running)
        suspend(self.core, running, a_sleep(self.clock.now() + FAR))

    def a_task_waits_in_its_second_turn(self) -> None:
        running = begin(self.core)
        complete(self.core, running)
        go_on(self.core, running, {"n": 1}, on_event("go"))
        self.core.do(self.core.tasks.signal, running.task.id, "other", {"text": "unread"})

    def a_task_asks(self) -> None:
        suspend(self.core, begin(self.core), a_question())

    def a_task_runs(self) -> None:
        running = begin(self.core)
        complete(self.core, running)
        an_activity(self.core, running)

    def a_task_ends_in_doubt(self) -> None:
        running = begin(self.core)
        an_activity(self.core, running, UNKNOWN)
        fail(self.core, running)

    def a_doubt_is_given_up(self) -> None:
        running = begin(self.core)
        decide(self.core, an_activity(self.core, running, UNKNOWN), Decision.GIVE_UP)
        finish(self.core, running)

    def a_child_ends_before_its_parent(self) -> None:
        parent = begin(self.core)
        child = begin_child(self.core, parent)
        complete(self.core, child)
        finish(self.core, child, "x")
        suspend(self.core, parent, a_sleep(self.clock.now() + FAR))

    def a_parent_ends_before_its_child(self) -> None:
        parent = begin(self.core)
        child = begin_child(self.core, parent)
        suspend(self.core, child, for_event("never"))
        finish(self.core, parent)

    def a_waiting_task_is_woken_and_ends(self) -> None:
        waiting = self.core.rows(
            "SELECT tasks.id FROM tasks JOIN waits ON waits.task_seq = tasks.seq "
            "WHERE waits.status = 'WAITING' AND event = 'go' LIMIT 1"
        )
        for row in waiting:
            self.core.do(self.core.tasks.signal, row["id"], "go", None)
            self._run_what_is_due()

    def a_question_is_answered(self) -> None:
        for row in self.core.rows("SELECT id FROM questions WHERE status = 'OPEN' AND kind = 'ask' LIMIT 1"):
            self.core.do(self.core.tasks.answer, row["id"], "send", answered_by="ada")
            self._run_what_is_due()

    def a_key_for_ever(self) -> None:
        key = f"ever-{len(self.keys)}"
        emit(self.core, dedup_key=key, dedup_scope=DedupScope.EVER, payload={"text": "z"})
        self._run_what_is_due()
        self.keys[key] = self.clock.now()

    def a_key_while_it_lives(self) -> None:
        emit(self.core, dedup_key="active", dedup_scope=DedupScope.ACTIVE, delay=FAR)

    def a_dead_letter(self) -> None:
        emit(self.core)
        for claim in claim_all(self.core):
            ack(self.core, start(self.core, claim), BROKEN, ONCE)

    def a_backoff(self) -> None:
        emit(self.core)
        for claim in claim_all(self.core):
            ack(self.core, start(self.core, claim), BROKEN, RetryPolicy(max_attempts=9, base=FAR, cap=FAR))

    def an_occurrence_comes_later(self) -> None:
        emit(self.core, delay=FAR, payload={"text": "later"})

    def _run_what_is_due(self) -> None:
        for claim in claim_all(self.core):
            if claim.task_id is None:
                ack(self.core, start(self.core, claim), Succeeded(result_json='"done"'))
            else:
                running = enter(self.core, claim)
                assert isinstance(running, Running)
                finish(self.core, running, "woken")


HAPPENINGS: list[Callable[[World], None]] = [
    happening for name, happening in vars(World).items() if name.startswith(("a_", "an_"))
]
STEPS_OF_LIFE = st.lists(
    st.one_of(st.sampled_from(HAPPENINGS), st.sampled_from([0.3, 1.1, 2.2, 5.0, 9.5])), min_size=3, max_size=30
)


@settings(max_examples=80)
@given(STEPS_OF_LIFE)
def test_nothing_that_is_live_is_touched_whenever_retention_looks(life):
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        for step in [*life, 20.0]:
            if not isinstance(step, float):
                step(world)
                continue
            world.clock.advance(step * DAY)
            before = world.stays()

            for _ in batches(world.core, SHORT):
                pass

            assert world.stays() == before
            assert [step for step, taken in batches(world.core, SHORT) if taken.rows] == []
            for key, settled_at in world.keys.items():
                if settled_at > world.clock.now() - SHORT.keys:
                    assert not emit(world.core, dedup_key=key, dedup_scope=DedupScope.EVER).created, key
        assert_sound(world.core)
        world.core.close()
