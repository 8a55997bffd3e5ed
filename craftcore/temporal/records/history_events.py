"""The events of a task's history in the words of a task: attempts, their events, and what people did. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from craftcore.temporal.workflow.journal_messages import JournalCall, complete_draft, read_batch

UNKNOWN_ACTION = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEvent:
    """One event. `entry` 0: it is of no entry of a turn."""

    at: float
    entry: int
    turn: int
    type: str
    payload: dict[str, Any]


@dataclass(slots=True, kw_only=True)
class TaskAttempt:
    """One entry of a turn. `ended_at` None: it runs, or waits for a worker. Moments are epoch seconds."""

    entry: int
    turn: int
    attempt: int
    resume: str
    scheduled_at: float
    began_at: float | None = None
    worker: str | None = None
    ended_at: float | None = None
    status: str = "RUNNING"
    reason: str = ""
    error_code: str | None = None
    error_message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One call of a person, or of a program, from outside."""

    at: float
    by: str | None
    action: str
    subject: str
    note: str | None
    details: dict[str, Any]


@dataclass(slots=True, kw_only=True)
class TaskHistory:
    """The content of the history of a task. `end` None: it is live."""

    start: dict[str, Any] = field(default_factory=dict)
    started_at: float = 0.0
    attempts: list[TaskAttempt] = field(default_factory=list)
    events: list[TaskEvent] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    end: dict[str, Any] | None = None
    ended_at: float | None = None


class HistoryReader:
    """Takes the events of all runs in their order."""

    def __init__(self) -> None:
        self.history = TaskHistory()
        self._by_schedule: dict[int, TaskAttempt] = {}
        self._asked: dict[str, tuple[str, list[Any]]] = {}
        self._actions: dict[str, str] = {}

    def add(self, at: float, type: str, payload: dict[str, Any], entry: int = 0) -> None:
        """Add an event. Outside of an entry it belongs to the turn of the last one."""
        attempts = self.history.attempts
        turn = next((one.turn for one in reversed(attempts) if entry in (0, one.entry)), 1)
        self.history.events.append(TaskEvent(at=at, entry=entry, turn=turn, type=type, payload=payload))

    def start(self, at: float, given: list[Any], memo: dict[str, Any], *, continued: bool) -> None:
        """Begin a run. A run that continues the one before adds no event."""
        self._by_schedule.clear()
        if not self.history.start:
            self.history.start, self.history.started_at = given[0], at
        if "craftcore_retried_by" in memo:
            self.history.end = self.history.ended_at = None
            self._add_operation(
                at, memo["craftcore_retried_by"], "task retry", "", memo.get("craftcore_retried_note"), {}
            )

    def enter(self, at: float, schedule: int, given: list[Any]) -> None:
        """Begin an entry of a turn."""
        entry = given[0]
        attempt = TaskAttempt(
            entry=entry["token"],
            turn=entry["task"]["turn"],
            attempt=entry["attempts"],
            resume=entry["resume"],
            scheduled_at=at,
        )
        self.history.attempts.append(attempt)
        self._by_schedule[schedule] = attempt
        self.add(
            at, "TURN_ENTERED", {"resume": attempt.resume, "completed": len(entry.get("memo") or {})}, attempt.entry
        )

    def take(self, at: float, schedule: int, worker: str) -> None:
        """Note that a worker has begun the entry."""
        if (attempt := self._by_schedule.get(schedule)) is not None:
            attempt.began_at, attempt.worker = at, worker

    def leave(self, at: float, schedule: int, end: dict[str, Any]) -> None:
        if (attempt := self._by_schedule.get(schedule)) is None:
            return
        attempt.ended_at, attempt.status, attempt.reason = at, end.get("move") or end["status"], end["reason"]
        attempt.error_code, attempt.error_message = end.get("error_code"), end.get("error_message")
        match end.get("move"):
            case "suspends":
                self.add(at, "TURN_SUSPENDED", _list_wait_facts(end["wait"]), attempt.entry)
            case "continues":
                self.add(at, "TURN_CONTINUED", {}, attempt.entry)
            case _:
                code = end.get("error_code")
                self.add(at, "FINAL_RESPONSE", {"status": end["status"], "error_code": code}, attempt.entry)

    def lose(self, at: float, schedule: int, message: str) -> None:
        """End an entry whose worker died, or was silent for too long."""
        if (attempt := self._by_schedule.get(schedule)) is not None:
            attempt.ended_at, attempt.status, attempt.reason = at, "CRASHED", message
            began = attempt.began_at or attempt.scheduled_at
            facts = {
                "agent": self.history.start.get("workflow"),
                "status": "CRASHED",
                "latency_ms": (at - began) * 1000,
            }
            self.add(at, "AGENT_ATTEMPT_END", facts, attempt.entry)

    def ask(self, at: float, id: str, name: str, given: list[Any]) -> None:
        """Take an update that was accepted. Those that may be refused count when they are confirmed."""
        self._asked[id] = (name, given)

    def confirm(self, at: float, id: str, answers: list[Any], failure: str | None) -> None:
        """Take the end of an update."""
        name, given = self._asked.pop(id, ("", []))
        if failure is not None:
            return
        match name:
            case "journal":
                batch = read_batch(given[0])
                for call, answer in zip(batch.calls, answers[0], strict=True):
                    self._record(at, batch.token, call, answer)
            case "answer":
                question, choice, by, *rest = given
                self._add_operation(at, by, "inbox answer", question, _get_note(rest), {"answer": choice})
            case "decide":
                key, decision, reference, by, *rest = given
                details = {"decision": decision, "reference": reference, "action_name": self._actions.get(key)}
                self._add_operation(at, by, "activity resolve", key, _get_note(rest), details)

    def take_signal(self, at: float, name: str, given: list[Any]) -> None:
        match name:
            case "deliver":
                mail = given[0]
                details = {"event": mail["event"], "payload": json.loads(mail["payload_json"])}
                self._add_operation(at, mail.get("sent_by"), "task signal", "", None, details)
            case "note_operation":
                action, by, note = given
                self._add_operation(at, by, action, "", note, {})

    def end(self, at: float, end: dict[str, Any]) -> None:
        """End the task, or one run of it: a retry goes on with it."""
        self.history.end, self.history.ended_at = end, at

    def _add_operation(
        self, at: float, by: str | None, action: str, subject: str, note: str | None, details: dict[str, Any]
    ) -> None:
        self.history.operations.append(
            Operation(at=at, by=by, action=action, subject=subject, note=note, details=details)
        )
        type = action.replace(" ", "_").upper()
        self.add(at, type, {"by": by, "note": note, "subject": subject, **details})

    def _record(self, at: float, entry: int, call: JournalCall, answer: dict[str, Any]) -> None:
        if answer.get("error"):
            return
        match call.kind:
            case "record":
                self.add(at, call.event_type or "NOTE", json.loads(call.text), entry)
            case "begin":
                if answer.get("is_begun") and call.intent is not None:
                    key, action = call.intent.key, call.intent.action
                    self._actions[key] = action
                    facts: dict[str, Any] = {"action": action, "key": key, "attempt": answer["activity"]["calls"]}
                    self.add(at, "ACTIVITY_INTENT", facts, entry)
            case "settle":
                assert call.outcome is not None, call
                facts = {
                    "action": self._actions.get(call.key, UNKNOWN_ACTION),
                    "key": call.key,
                    "reason": call.outcome.reason,
                    "provider_ref": call.outcome.provider_ref,
                    "error": call.outcome.error_message,
                }
                self.add(at, f"ACTIVITY_{call.outcome.status}", facts, entry)
            case "decide":
                facts = {"action": self._actions.get(call.key, UNKNOWN_ACTION), "key": call.key}
                facts |= {"decision": call.decision, "reference": call.reference, "by": call.by}
                self.add(at, "ACTIVITY_RESOLVED", facts, entry)
            case "emit":
                created = answer.get("created", False)
                if created or not call.refuses_duplicate:
                    text = complete_draft(call, answer["task_id"], created=created)
                    self.add(at, call.event_type or "EMITTED", json.loads(text), entry)
            case "fall_back":
                self.add(at, "FALLBACK_TRIGGERED", {"to_agent": call.text}, entry)
            case "signal":
                self.add(at, "DELIVERED", json.loads(call.text), entry)


def _list_wait_facts(wait: dict[str, Any]) -> dict[str, Any]:
    """Return the facts of a suspension, in the shape that events of a record have."""
    if wait.get("others"):
        alternatives = [_list_wait_facts({**one, "others": ()}) for one in (wait, *wait["others"])]
        return {"kind": "first", "first_of": alternatives}
    question = wait.get("question") or {}
    return {
        "wait": wait["name"],
        "kind": wait["kind"],
        "event": wait.get("event"),
        "due_at": wait.get("due_at"),
        "question": question.get("question"),
    }


def _get_note(rest: list[Any]) -> str | None:
    return rest[0] if rest else None
