"""Seeded histories of a task with crashes, restarts, waits and answers, and the invariants of each history."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from craftcore.diagnostics.tasks.task_history import Decided, Head, Start, TaskHistory
from craftcore.executions.model import EventType, Status
from craftcore.tasks.model import Question, QuestionKind, QuestionStatus, ResolvedBy, Task, TaskStatus, Wait, WaitKind
from craftcore.tasks.turn_event_store import StreamRow

BEGIN = 1_800_000_000.0


@dataclass
class CrashHistory:
    """A stored history, and the order in which it happened.

    happened  the rows of events, and of crashes that interrupted an attempt, in order
    crashes   the starts of the daemon that crashed before the task ended
    lost      the records without an end whose daemon did not crash
    """

    history: TaskHistory = field(init=False)
    happened: list[str] = field(default_factory=list)
    crashes: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)


class HistoryBuilder:
    """A builder of the history of one task, step by step."""

    def __init__(self, seed: int, *, steps: int = 40, setbacks: bool = True) -> None:
        self.random = Random(seed)
        self.setbacks = setbacks
        self.now = BEGIN
        self.turn = 1
        self.attempts = 0
        self.records: list[Head] = []
        self.events: list[StreamRow] = []
        self.waits: list[Wait] = []
        self.questions: list[Question] = []
        self.decisions: list[Decided] = []
        self.starts: list[Start] = [Start(7, BEGIN - 10, None)]
        self.found = CrashHistory()
        self.is_open = False
        self.was_entered = False
        self.steps = steps
        self.runs = True
        self.call: str | None = None

    def build(self) -> CrashHistory:
        """Build the history."""
        self.begin_attempt()
        for _ in range(self.steps):
            if not self.runs:
                self.start()
            acts: list[Callable[[], None]] = (
                [self.step, self.step, self.failed_step, self.intent, self.outcome, self.crash, self.end_attempt]
                if self.is_open
                else [self.begin_attempt, self.begin_attempt, self.wait, self.idle_crash, self.clean_restart]
            )
            if self.is_open:
                acts += [self.wait, self.next_turn, self.lose, self.no_start_yet]
            self.pass_time()
            self.random.choice(acts)()
        status = TaskStatus.RUNNING
        if self.is_open and self.runs and self.random.random() < 0.5:
            self.close(Status.SUCCESS)
            status = TaskStatus.DONE
        self.found.history = TaskHistory(
            task=self.task(status),
            heads=tuple(self.records),
            events=tuple(self.events),
            waits=tuple(sorted(self.waits, key=lambda wait: (wait.created_at, wait.seq))),
            questions=tuple(self.questions),
            decisions=tuple(self.decisions),
            starts=tuple(self.starts),
            has_more=False,
            daemon_runs=self.runs,
            now=max(self.now, max(event.at for event in self.events)) + 5,
        )
        return self.found

    def pass_time(self) -> None:
        if self.setbacks and self.random.random() < 0.03:
            self.now -= self.random.choice([0.5, 30, 7200])
        else:
            self.now += self.random.choice([0.0, 0.01, 0.3, 4, 60, 18_000])

    # Attempts

    def begin_attempt(self) -> None:
        self.attempts += 1
        id_ = f"exec-t.{self.attempts}"
        self.records.append(
            Head(id_, self.turn, self.attempts, self.starts[-1].epoch, "incomplete", None, self.now, None)
        )
        self.is_open = True
        self.event(EventType.INTENT_RECEIVED, {"intent": "report"})
        if self.was_entered:
            self.event(EventType.TURN_ENTERED, {"resume": "CRASH", "completed": 1, "turn": self.turn})
        self.was_entered = True

    def end_attempt(self) -> None:
        self.event(EventType.ATTEMPT_RELEASED, {"reason": "snoozed"})
        self.finish("incomplete")

    def close(self, status: Status) -> None:
        self.event(EventType.FINAL_RESPONSE, {"status": status, "latency_ms": 3.0})
        self.finish(status)

    def finish(self, status: str) -> None:
        self.records[-1] = self.records[-1]._replace(ended_at=self.now, status=status)
        self.is_open = False
        self.call = None

    def lose(self) -> None:
        """Lose the lease of the attempt: a later attempt of the same start follows at once."""
        self.found.lost.add(self.records[-1].id)
        self.is_open = False
        self.call = None
        self.begin_attempt()

    def next_turn(self) -> None:
        self.event(EventType.TURN_CONTINUED, {})
        self.finish("success")
        self.turn += 1
        self.was_entered = False

    def step(self) -> None:
        latency = self.random.choice([0.0, 1.5, 300_000.0])
        facts = {"name": "fetch", "key": self.random.choice([None, "rome"]), "result": "x", "latency_ms": latency}
        self.event(EventType.STEP_COMPLETED, facts)

    def failed_step(self) -> None:
        facts: Any = {"name": "fetch", "key": None, "attempt": 1, "error": "no", "retry_in": 1}
        self.event(EventType.STEP_FAILED, self.random.choice([facts, "", [1], None]))

    def intent(self) -> None:
        self.call = f"activity:t:{self.turn}.{len(self.events)}"
        self.event(EventType.ACTIVITY_INTENT, {"action": "pay", "attempt": 1, "key": self.call})

    def outcome(self) -> None:
        if self.call is None:
            return
        type_ = self.random.choice([EventType.ACTIVITY_DONE, EventType.ACTIVITY_FAILED, EventType.ACTIVITY_UNKNOWN])
        facts = {"action": "pay", "provider_ref": "p-1", "reason": "a timeout", "key": self.call}
        self.event(type_, facts)
        self.call = None

    # Crashes

    def crash(self) -> None:
        self.no_start_yet()
        self.pass_time()
        self.start()

    def no_start_yet(self) -> None:
        """Kill the daemon with its attempt; no later daemon has started yet."""
        row = f"epoch {self.starts[-1].epoch}"
        self.found.crashes.add(row)
        self.found.happened.append(row)
        self.runs = self.is_open = False

    def start(self) -> None:
        self.starts.append(Start(self.starts[-1].epoch + 1, self.now, None))
        self.runs = True
        if self.call is not None:
            facts = {"action": "pay", "attempt": 1, "key": self.call, "reason": "the process ended"}
            self.event(EventType.ACTIVITY_UNKNOWN, facts)
            self.ask(None)
            if self.random.random() < 0.5:
                self.decisions.append(
                    Decided(self.call, 1, self.turn, "pay", "happened", None, "ada (web)", self.now + 1)
                )
        self.call = None

    def idle_crash(self) -> None:
        self.found.crashes.add(f"epoch {self.starts[-1].epoch}")
        self.start()

    def clean_restart(self) -> None:
        self.starts[-1] = self.starts[-1]._replace(ended_at=self.now)
        self.pass_time()
        self.start()

    # Waits

    def wait(self) -> None:
        kind = self.random.choice(list(WaitKind))
        number = len(self.waits) + 1
        if self.is_open:
            facts = {"kind": kind, "wait": f"wait#{number}", "due_at": None, "event": "go", "question": "?"}
            self.event(EventType.TURN_SUSPENDED, facts)
            self.finish("suspended")
        since = self.now
        self.pass_time()
        is_over = self.random.random() < 0.9
        wait = Wait(
            seq=number, id=f"w{number}", task_seq=1, turn=self.turn, name=f"wait#{number}", kind=kind,
            event="go" if kind is WaitKind.EVENT else None, due_at=None, status="RESOLVED" if is_over else "WAITING",
            resolved_by=ResolvedBy.ANSWER if is_over else None, value_json=None, created_at=since,
            resolved_at=max(since, self.now) if is_over else None, at_given=0, any_of=None,
        )  # fmt: skip
        self.waits.append(wait)
        if kind is WaitKind.QUESTION:
            self.ask(wait)

    def ask(self, wait: Wait | None) -> None:
        number = len(self.questions) + 1
        closed = self.now + 1 if wait is None else wait.resolved_at
        is_answered = closed is not None
        question = Question(
            seq=number, id=f"q{number}", task_seq=1, task_id="t", workflow="report",
            wait_seq=None if wait is None else wait.seq, activity_seq=None, activity_key=None,
            kind=QuestionKind.ASK, question="publish?", asked="publish?", options=("publish", "hold"),
            default_json="null", by_message=False,
            status=QuestionStatus.ANSWERED if is_answered else QuestionStatus.OPEN,
            answer="publish" if is_answered else None, note=None, answered_by="ada (web)" if is_answered else None,
            created_at=self.now if wait is None else wait.created_at, expires_at=None, closed_at=closed,
        )  # fmt: skip
        self.questions.append(question)

    def event(self, type_: EventType, facts: Any) -> None:
        id_ = self.records[-1].id
        number = sum(one.execution_id == id_ for one in self.events) + 1
        self.events.append(StreamRow(id_, self.turn, number, type_, self.now, json.dumps(facts)))
        self.found.happened.append(f"event {id_} {number}")

    def task(self, status: TaskStatus) -> Task:
        return Task(
            seq=1, id="t", workflow="report", agents=None, agent=None, session_id=None, schedule_id=None,
            parent_id=None, status=status, reason=None, turn=self.turn, state_json="null", result_json=None,
            error_code=None, error_message=None, trigger_id="t", max_attempts=None, turns_alone=0, steps_alone=0,
            deadline_at=None, created_at=BEGIN, updated_at=self.now,
            ended_at=None if status.is_live else self.now, dedup_key=None,
        )  # fmt: skip
