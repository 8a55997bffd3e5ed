"""The process outside of the tasks that sends messages, signals, answers and cancellations.

It may be killed at any moment and start again, or run twice. It reads the pending work from the database, and a
repeated message is refused or recognised by its key. So it keeps no state.
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
from tests.crash.task_app import A_MOMENT, Seen

SIGNALS = {"waits": ("go", {"n": 1}), "loop": ("tick", {"n": 2})}
"""What a task of each workflow is sent, once."""

CLOCK = SystemClock()

SOON = 60.0
"""A trigger that is due later than this belongs to a wait that somebody ends."""


class Answer(NamedTuple):
    question: str
    choice: str


class Signal(NamedTuple):
    task: str
    event: str
    payload: Any


class Cancel(NamedTuple):
    task: str


class Again(NamedTuple):
    task: str


Act = TriggerSpec | Answer | Signal | Cancel | Again


class Look(NamedTuple):
    """What one look at the file brought. `is_over`: nothing is to be done, and nothing of the engine's is due."""

    acts: list[Act]
    is_over: bool


@dataclass(frozen=True, slots=True)
class Story:
    """What the outside starts: triggers with a dedup key each."""

    name: str
    specs: tuple[TriggerSpec, ...]


def a_task(workflow: str, name: str) -> TriggerSpec:
    return TriggerSpec(
        workflow=workflow, payload={"name": name}, dedup_key=f"task:{name}", dedup_scope="ever", session_id=name
    )


def a_routed_task(name: str) -> TriggerSpec:
    """The router says what becomes of it, and in which session."""
    return TriggerSpec(
        source="PROACTIVE", payload={"name": name}, dedup_key=f"task:{name}", description=f"routed in {name}"
    )


def a_chat(session: str, messages: int, upto: int, *, begin: int = 0) -> list[TriggerSpec]:
    """So many messages to one session. A chat is over after `upto`; what comes then begins another."""
    return [
        TriggerSpec(
            source="MESSAGE",
            session_id=session,
            payload={"text": f"{session} {n}", "upto": upto},
            dedup_key=f"message:{session}:{n}",
        )
        for n in range(begin, begin + messages)
    ]


def look(connection: apsw.Connection, story: Story, now: float) -> Look:
    """One snapshot of the file: what the outside has still to do, and whether everything is over."""
    with connection:
        acts = list(_acts(connection, story))
        live = connection.execute(
            "SELECT count(*) FROM triggers WHERE status IN ('PENDING', 'CLAIMED') AND due_at < ?", (now + SOON,)
        ).get
    return Look(acts, not acts and not live)


def _acts(connection: apsw.Connection, story: Story) -> Iterator[Act]:
    yield from missing(connection, story.specs)
    replies: list[TriggerSpec] = []
    for id, options, by_message, session in connection.execute(
        """
        SELECT q.id, options_json, by_message, session_id
          FROM questions AS q
          JOIN tasks AS t ON t.seq = q.task_seq
         WHERE q.status = 'OPEN'
           AND question NOT LIKE 'Nobody%'
        """
    ):
        if by_message:
            [reply] = a_chat(session, 1, 1)
            replies.append(replace(reply, payload={"text": f"reply in {session}", "upto": 1}, dedup_key=f"reply:{id}"))
        else:
            yield Answer(id, json.loads(options)[0])
    for id, session in connection.execute(
        "SELECT id, session_id FROM tasks WHERE workflow = 'routed' AND status = 'WAITING'"
    ):
        news = TriggerSpec(source="PROACTIVE", payload={"to": session}, description=f"news in {session}")
        replies.append(replace(news, dedup_key=f"news:{id}"))
    yield from missing(connection, replies)
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
        yield Cancel(id)
    for (id,) in connection.execute("SELECT id FROM tasks WHERE workflow = 'mended' AND status = 'FAILED'"):
        yield Again(id)


def missing(connection: apsw.Connection, specs: Iterable[TriggerSpec]) -> list[TriggerSpec]:
    """Those whose key is not in the file."""
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


async def outside_within(app: App, engine: Engine, db: Path, story: Story, seen: Seen) -> None:
    """Do all that is to be done, through the doors of the app, until everything is over."""
    again = story.specs[:1]
    with a_reader(db) as connection, anyio.fail_after(200):
        while not (now := look(connection, story, _now())).is_over:
            for act in (*again, *now.acts):
                await _do_within(app, act, seen)
            again = ()
            with anyio.move_on_after(0 if now.acts else A_MOMENT):
                await engine.settled()


async def _do_within(app: App, act: Act, seen: Seen) -> None:
    try:
        match act:
            case TriggerSpec():
                emitted = await _emit(app, act)
                seen.line("accepted", emitted.id, act.dedup_key)
            case Answer():
                await app.answer(act.question, act.choice, answered_by="ada")
                seen.line("answered", act.question, act.choice)
            case Signal():
                await app.signal(act.task, act.event, act.payload)
                seen.line("signalled", act.task, act.event)
            case Cancel():
                await app.cancel_task(act.task)
                seen.line("cancelled", act.task)
            case Again():
                await app.retry_task(act.task)
                seen.line("retried", act.task)
    except (NotFound, StateRefused) as error:  # somebody else did it, or it is too late
        seen.line("refused", str(error))


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


# In a process of its own


class Beside:
    """Another program: a producer, and the hands of a person, on the same file."""

    def __init__(self, db: Path, seen: Seen) -> None:
        self._core = Services(db, Config())
        self._producer = Producer(db)
        self._seen = seen

    def work(self, story: Story, rounds: int) -> None:
        """Look and do so often, or until everything is over."""
        with a_reader(self._core.database.path) as connection:
            for spec in story.specs[:2]:
                self._do(spec)
            for _ in range(rounds):
                now = look(connection, story, _now())
                if now.is_over:
                    break
                for act in now.acts:
                    self._do(act)

    def _do(self, act: Act) -> None:
        try:
            match act:
                case TriggerSpec():
                    [emitted] = self._producer.emit_many([act])
                    self._seen.line("accepted", emitted.id, act.dedup_key)
                case Answer():
                    self._reach_in(lambda tx: self._core.tasks.answer(tx, act.question, act.choice, answered_by="bob"))
                    self._seen.line("answered", act.question, act.choice)
                case Signal():
                    self._reach_in(lambda tx: self._signal_once(tx, act))
                    self._seen.line("signalled", act.task, act.event)
                case Cancel():
                    self._reach_in(lambda tx: self._core.tasks.cancel(tx, act.task))
                    self._seen.line("cancelled", act.task)
                case Again():
                    self._reach_in(lambda tx: self._core.tasks.retry(tx, act.task))
                    self._seen.line("retried", act.task)
        except (NotFound, StateRefused) as error:
            self._seen.line("refused", str(error))

    def _reach_in(self, rule: Any) -> None:
        with self._core.transaction() as tx:
            rule(tx)
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


STORIES: Sequence[Story] = (
    Story("chat", tuple(a_chat("s", 3, 2))),
    Story("work", (a_task("work", "w"),)),
    Story("waits", (a_task("waits", "a"),)),
    Story("loop", (a_task("loop", "l"),)),
    Story("routed", (a_routed_task("r"),)),
    Story("parent", (a_task("parent", "p"),)),
    Story("shaky", (a_task("shaky", "f"), a_task("mended", "m"))),
)
"""Small ones: each is killed at every point it passes."""

LONG_CHAT = Story("chat of thirty", tuple(a_chat("s", 30, 30)))
