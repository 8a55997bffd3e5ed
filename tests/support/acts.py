"""A fake provider of irreversible actions that records its calls, and queries of the ledger."""

from __future__ import annotations

import json
import threading
from typing import Any

import anyio
import pytest

from craftcore import Call
from craftcore.engine.turn.sqlite_journal import SqliteJournal
from tests.support.engine_harness import Lab
from tests.support.processes import PATIENCE


class Provider:
    """A provider that records its calls in order, each as (key, attempt, to).

    It answers with the next of `answers`: a value, an exception to raise, or an async function of the call. After the
    last one it answers with `ref-1`, `ref-2` …
    """

    def __init__(self, *answers: Any) -> None:
        self.calls: list[tuple[str, int, Any]] = []
        self.answers = list(answers)

    async def __call__(self, call: Call, *, to: Any = None) -> Any:
        self.calls.append((call.key, call.attempt, to))
        answer = self.answers.pop(0) if self.answers else f"ref-{len(self.calls)}"
        if isinstance(answer, BaseException):
            raise answer
        return await answer(call) if callable(answer) else answer

    @property
    def attempts(self) -> list[int]:
        return [attempt for _, attempt, _ in self.calls]


class Gate:
    """An answer that blocks its call: the call sets `inside`, and `go` lets all calls return `ref`."""

    def __init__(self, ref: Any = "through the gate") -> None:
        self.inside, self.go = anyio.Event(), anyio.Event()
        self.ref = ref

    async def __call__(self, call: Call) -> Any:
        self.inside.set()
        await self.go.wait()
        if isinstance(self.ref, BaseException):
            raise self.ref
        return self.ref


def ledger(it: Lab) -> list[dict[str, Any]]:
    """Return the rows of the ledger, the oldest first."""
    return it.rows("SELECT * FROM activity_log ORDER BY seq")


def statuses(it: Lab) -> list[str]:
    return [row["status"] for row in ledger(it)]


def stream(it: Lab, task_id: str) -> list[str]:
    """Return the event types of all records of a task, in order."""
    return [
        row["type"]
        for row in it.rows(
            "SELECT type FROM events JOIN executions ON executions.seq = execution_seq WHERE task_id = :id "
            "ORDER BY execution_seq, events.seq",
            id=task_id,
        )
    ]


def activity_events(it: Lab, task_id: str) -> list[str]:
    """Return the events of activities in the stream of a task: INTENT, DONE, FAILED, UNKNOWN, RESOLVED."""
    prefix = "ACTIVITY_"
    return [type_.removeprefix(prefix) for type_ in stream(it, task_id) if type_.startswith(prefix)]


def questions(it: Lab) -> list[tuple[str, str]]:
    """Return kind and status of each question, the oldest first."""
    return [(row["kind"], row["status"]) for row in it.rows("SELECT kind, status FROM questions ORDER BY seq")]


def decisions(it: Lab) -> list[tuple[str, str]]:
    """Return each decision about an activity and its person, the oldest first."""
    rows = it.rows("SELECT decision, decided_by FROM activity_decisions ORDER BY seq")
    return [(row["decision"], row["decided_by"]) for row in rows]


def assert_records_are_whole(it: Lab) -> None:
    """Check that the events of every record are numbered from 1 without a gap, and end with the final response."""
    for record in it.rows("SELECT seq FROM executions"):
        events = it.rows("SELECT seq, type FROM events WHERE execution_seq = :seq ORDER BY seq", seq=record["seq"])
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        assert "FINAL_RESPONSE" not in [event["type"] for event in events[:-1]]


def event_payload(row: dict[str, Any]) -> Any:
    """Return the payload of an event's row."""
    return json.loads(row["payload_json"])


class HeldBatch:
    """A hold of the writer before the flush of the batch in which a rule of the ledger runs for the nth time. `owner`:
    the class that has the rule; None: it is one of the journal's."""

    def __init__(
        self, it: Lab, monkeypatch: pytest.MonkeyPatch, rule: str, *, nth: int = 1, owner: type | None = None
    ) -> None:
        self._inside, self._go_on = threading.Event(), threading.Event()
        remaining = nth
        journal = it.engine._runner._services.journal
        assert isinstance(journal, SqliteJournal)
        acts = owner or journal._acts
        work = getattr(acts, rule)

        def held(*args: Any) -> Any:
            nonlocal remaining
            answer = work(*args)
            remaining -= 1
            if remaining == 0:
                self._inside.set()
                self._go_on.wait(PATIENCE)
            return answer

        monkeypatch.setattr(acts, rule, held)

    async def inside(self) -> None:
        await anyio.to_thread.run_sync(self._inside.wait)

    def go_on(self) -> None:
        self._go_on.set()
