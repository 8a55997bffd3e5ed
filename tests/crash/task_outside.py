"""The process outside of the tasks that sends messages, signals, answers and cancellations.

The process keeps no state, so it may be killed at any moment, start again, or run twice. It reads the pending work from
the database. The key of a repeated message identifies it, or the message is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import apsw

from craftcore import App, Producer, TriggerSpec
from craftcore.clock import SystemClock
from craftcore.config import Config
from craftcore.engine.engine import Engine
from craftcore.errors import NotFound, StateRefused
from craftcore.failpoints import Failpoint, hit
from craftcore.services import Services
from craftcore.storage.doorbell_client import EVERYTHING, ring
from tests.crash.task_app import SHORT_WAIT, EventLog

SIGNALS = {"waits": ("go", {"n": 1}), "beside": ("go", {"n": 1}), "loop": ("tick", {"n": 2})}
"""The signal that each task of a workflow receives once."""

CLOCK = SystemClock()

SOON = 60.0
"""The limit in seconds: a trigger that is due later belongs to a wait that another event ends."""


class Answer(NamedTuple):
    question: str
    choice: str


class Signal(NamedTuple):
    task: str
    event: str
    payload: Any


class Cancellation(NamedTuple):
    task: str


class TaskRetry(NamedTuple):
    task: str


Input = TriggerSpec | Answer | Signal | Cancellation | TaskRetry


class Snapshot(NamedTuple):
    """The pending inputs in the database. `is_over`: there are none, and the engine has no due trigger."""

    inputs: list[Input]
    is_over: bool


@dataclass(frozen=True, slots=True)
class Scenario:
    """The triggers that the process outside starts, each with a dedup key."""

    name: str
    specs: tuple[TriggerSpec, ...]


def a_task(workflow: str, name: str) -> TriggerSpec:
    return TriggerSpec(
        workflow=workflow, payload={"name": name}, dedup_key=f"task:{name}", dedup_scope="ever", session_id=name
    )


def a_routed_task(name: str) -> TriggerSpec:
    """Return a trigger without a workflow and a session: the router chooses both."""
    return TriggerSpec(
        source="PROACTIVE", payload={"name": name}, dedup_key=f"task:{name}", description=f"routed in {name}"
    )


def a_chat(session: str, messages: int, limit: int, *, begin: int = 0) -> list[TriggerSpec]:
    """Return messages to one session. A chat ends after `limit` messages, and the next message begins another chat."""
    return [
        TriggerSpec(
            source="MESSAGE",
            session_id=session,
            payload={"text": f"{session} {n}", "limit": limit},
            dedup_key=f"message:{session}:{n}",
        )
        for n in range(begin, begin + messages)
    ]


def take_snapshot(connection: apsw.Connection, scenario: Scenario, now: float) -> Snapshot:
    """Return the pending inputs, and whether everything is over, from one snapshot of the database."""
    with connection:
        inputs = list(_pending_inputs(connection, scenario))
        live = connection.execute(
            "SELECT count(*) FROM triggers WHERE status IN ('PENDING', 'CLAIMED') AND due_at < ?", (now + SOON,)
        ).get
    return Snapshot(inputs, not inputs and not live)


def _pending_inputs(connection: apsw.Connection, scenario: Scenario) -> Iterator[Input]:
    yield from missing_specs(connection, scenario.specs)
    replies: list[TriggerSpec] = []
    for id, options, by_message, session in connection.execute(
        """
        SELECT q.id, options_json, by_message, session_id
          FROM questions AS q
          JOIN tasks AS t ON t.seq = q.task_seq
         WHERE q.status = 'OPEN'
           AND question NOT LIKE 'No answer%'
        """
    ):
        if by_message:
            [reply] = a_chat(session, 1, 1)
            replies.append(replace(reply, payload={"text": f"reply in {session}", "limit": 1}, dedup_key=f"reply:{id}"))
        else:
            yield Answer(id, json.loads(options)[0])
    for id, session in connection.execute(
        "SELECT id, session_id FROM tasks WHERE workflow = 'routed' AND status = 'WAITING'"
    ):
        news = TriggerSpec(source="PROACTIVE", payload={"to": session}, description=f"news in {session}")
        replies.append(replace(news, dedup_key=f"news:{id}"))
    yield from missing_specs(connection, replies)
    for workflow, (event, payload) in SIGNALS.items():
        for (id,) in connection.execute(
            """
            SELECT id
              FROM tasks
             WHERE workflow = ?
               AND status IN ('RUNNING', 'WAITING')
               AND NOT EXISTS (SELECT 1 FROM mailbox WHERE task_seq = tasks.seq AND event = ?)
            """,
            (workflow, event),
        ):
            yield Signal(id, event, payload)
    for (id,) in connection.execute(
        """
        SELECT id
          FROM tasks
         WHERE workflow = 'endless' AND status = 'WAITING'
            OR workflow = 'victim' AND status IN ('RUNNING', 'WAITING') AND turn > 2
               AND NOT EXISTS (SELECT 1 FROM triggers WHERE id = trigger_id AND cancel_requested_at IS NOT NULL)
        """
    ):
        yield Cancellation(id)
    for (id,) in connection.execute("SELECT id FROM tasks WHERE workflow = 'mended' AND status = 'FAILED'"):
        yield TaskRetry(id)


def missing_specs(connection: apsw.Connection, specs: Iterable[TriggerSpec]) -> list[TriggerSpec]:
    """Return the specs whose key is not in the database."""
    by_key = {spec.dedup_key: spec for spec in specs}
    found = connection.execute(
        "SELECT dedup_key FROM triggers WHERE dedup_key IN (SELECT value FROM json_each(?))", (json.dumps([*by_key]),)
    )
    for (key,) in found:
        del by_key[key]
    return [*by_key.values()]


@contextmanager
def a_reader(db: Path) -> Iterator[apsw.Connection]:
    connection = apsw.Connection(str(db), flags=apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(60_000)
    try:
        yield connection
    finally:
        connection.close()


# In the process that runs the engine


async def send_inputs(app: App, engine: Engine, db: Path, scenario: Scenario, log: EventLog) -> None:
    """Send all inputs through the app until everything is over."""
    repeated = scenario.specs[:1]
    with a_reader(db) as connection, anyio.fail_after(200):
        while not (snapshot := take_snapshot(connection, scenario, _now())).is_over:
            for item in (*repeated, *snapshot.inputs):
                await _send(app, item, log)
            repeated = ()
            with anyio.move_on_after(0 if snapshot.inputs else SHORT_WAIT):
                await engine.wait_for_settle()


async def _send(app: App, item: Input, log: EventLog) -> None:
    try:
        match item:
            case TriggerSpec():
                emitted = await _emit(app, item)
                log.write("accepted", emitted.id, item.dedup_key)
            case Answer():
                await app.answer(item.question, item.choice, answered_by="ada")
                log.write("answered", item.question, item.choice)
            case Signal():
                await app.signal(item.task, item.event, item.payload)
                log.write("signalled", item.task, item.event)
            case Cancellation():
                await app.cancel_task(item.task)
                log.write("cancelled", item.task)
            case TaskRetry():
                await app.retry_task(item.task)
                log.write("retried", item.task)
    except (NotFound, StateRefused) as error:  # another process sent the input, or it came too late
        log.write("refused", str(error))


async def _emit(app: App, spec: TriggerSpec) -> Any:
    return await app.emit(
        spec.workflow,
        spec.payload,
        source=spec.source,
        session_id=spec.session_id,
        dedup_key=spec.dedup_key,
        dedup_scope=spec.dedup_scope,
        description=spec.description,
    )


# In another process


class SecondProgram:
    """Another program with the same database: a producer and a person."""

    def __init__(self, db: Path, log: EventLog) -> None:
        self._core = Services(db, Config())
        self._producer = Producer(db)
        self._log = log

    def work(self, scenario: Scenario, rounds: int) -> None:
        """Read and send the pending inputs `rounds` times, or until everything is over."""
        with a_reader(self._core.database.path) as connection:
            for spec in scenario.specs[:2]:
                self._send(spec)
            for _ in range(rounds):
                snapshot = take_snapshot(connection, scenario, _now())
                if snapshot.is_over:
                    break
                for item in snapshot.inputs:
                    self._send(item)

    def _send(self, item: Input) -> None:
        try:
            match item:
                case TriggerSpec():
                    [emitted] = self._producer.emit_many([item])
                    self._log.write("accepted", emitted.id, item.dedup_key)
                case Answer():
                    self._change(lambda tx: self._core.tasks.answer(tx, item.question, item.choice, answered_by="bob"))
                    self._log.write("answered", item.question, item.choice)
                case Signal():
                    self._change(lambda tx: self._signal_once(tx, item))
                    self._log.write("signalled", item.task, item.event)
                case Cancellation():
                    self._change(lambda tx: self._core.tasks.cancel(tx, item.task))
                    self._log.write("cancelled", item.task)
                case TaskRetry():
                    self._change(lambda tx: self._core.tasks.retry(tx, item.task))
                    self._log.write("retried", item.task)
        except (NotFound, StateRefused) as error:
            self._log.write("refused", str(error))

    def _change(self, change: Any) -> None:
        with self._core.transaction() as tx:
            change(tx)
        hit(Failpoint.ANSWER_COMMITTED)
        ring(self._core.database.path, EVERYTHING)

    def _signal_once(self, tx: Any, signal: Signal) -> None:
        sent = tx.fetch_value(
            "SELECT count(*) FROM mailbox JOIN tasks ON tasks.seq = task_seq WHERE tasks.id = :id AND event = :event",
            id=signal.task,
            event=signal.event,
        )
        if not sent:
            self._core.tasks.signal(tx, signal.task, signal.event, signal.payload, sent_by="bob")


def _now() -> float:
    return CLOCK.now()


SCENARIOS: Sequence[Scenario] = (
    Scenario("chat", tuple(a_chat("s", 3, 2))),
    Scenario("work", (a_task("work", "w"),)),
    Scenario("waits", (a_task("waits", "a"),)),
    Scenario("beside", (a_task("beside", "b"),)),
    Scenario("loop", (a_task("loop", "l"),)),
    Scenario("routed", (a_routed_task("r"),)),
    Scenario("parent", (a_task("parent", "p"),)),
    Scenario("shaky", (a_task("shaky", "f"), a_task("mended", "m"))),
)
"""The small scenarios, each of which is killed at every point that it passes."""

LONG_CHAT = Scenario("chat of thirty", tuple(a_chat("s", 30, 30)))
