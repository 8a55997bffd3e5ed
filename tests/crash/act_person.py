"""The person who starts tasks, and answers questions about acts in doubt: in the engine's process, or in another one.

The person reads the provider's book, answers with its contents, and gives up some acts. A person keeps no state: the
database has the open questions, so a process of a person may be killed at any moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import anyio
import apsw

from craftcore import App, TriggerSpec
from craftcore.config import Config
from craftcore.engine.engine import Engine
from craftcore.errors import StateRefused
from craftcore.failpoints import Failpoint, hit
from craftcore.services import Services
from craftcore.storage.doorbell_client import EVERYTHING, ring
from tests.crash.act_client import quiet_request, send, send_in_thread
from tests.crash.act_provider import Book, Provider
from tests.crash.act_time import ShiftedClock
from tests.crash.task_app import SHORT_WAIT, EventLog
from tests.crash.task_outside import SOON, a_reader, missing_specs

PERSON = "ada"
HAPPENED, RESEND, GIVE_UP = "happened", "resend", "give up"

UNIMPORTANT = "unimportant"
"""A word in the text of an act: the person gives the act up when it is in doubt."""


class OpenQuestion(NamedTuple):
    """An open question about an act in doubt."""

    id: str
    key: str
    text: str


@dataclass(frozen=True, slots=True)
class Person:
    """The person in the process that runs the engine."""

    app: App
    engine: Engine
    folder: Path
    db: Path
    provider: Provider
    clock: ShiftedClock
    log: EventLog

    async def complete_tasks(self, specs: Sequence[TriggerSpec], *, one_by_one: bool) -> None:
        """Start the missing tasks, and answer questions until everything is over. `one_by_one`: one task at a time."""
        with a_reader(self.db) as connection:
            await self._wait_until_over(connection)
            new_specs = missing_specs(connection, specs)
            for batch in [[spec] for spec in new_specs] if one_by_one else [new_specs]:
                await self.app.emit_many(batch)
                await self._wait_until_over(connection)

    async def _wait_until_over(self, connection: apsw.Connection) -> None:
        while True:
            with connection:  # one snapshot: between two, a task that begins to ask would look as if it were over
                questions = open_questions(connection)
                due_at = None if questions else next_due(connection)
            for question in questions:
                await self._answer(question)
            now = self.clock.now()
            if not questions and (due_at is None or due_at > now + SOON):
                return
            if due_at is not None and due_at > now:  # the engine has no other work
                self.clock.advance(due_at - now)
                self.engine.ring(schedules=False)
            with anyio.move_on_after(SHORT_WAIT):
                await self.engine.wait_for_settle()

    async def _answer(self, question: OpenQuestion) -> None:
        await send(self.provider.port, quiet_request(question.key))
        choice = choose(question, self.folder, self.log)
        try:
            await self.app.answer(question.id, choice, answered_by=PERSON)
        except StateRefused as error:  # the act in question has ended in another way
            self.log.write("refused", question.key, str(error))


class CommandLinePerson:
    """The person in a process of their own, as at the command line, with or without a running engine."""

    def __init__(self, folder: Path, db: Path, provider: Provider, log: EventLog) -> None:
        self._core = Services(db, Config(), ShiftedClock(folder))
        self._folder, self._provider, self._log = folder, provider, log

    def work(self, rounds: int) -> None:
        """Answer the open questions `rounds` times."""
        with a_reader(self._core.database.path) as connection:
            for _ in range(rounds):
                for question in open_questions(connection):
                    self._answer(question)

    def _answer(self, question: OpenQuestion) -> None:
        send_in_thread(self._provider.port, quiet_request(question.key))
        choice = choose(question, self._folder, self._log)
        try:
            with self._core.transaction() as tx:
                self._core.tasks.answer(tx, question.id, choice, answered_by=PERSON)
        except StateRefused as error:
            self._log.write("refused", question.key, str(error))
        else:
            hit(Failpoint.ANSWER_COMMITTED)
            ring(self._core.database.path, EVERYTHING)


def choose(question: OpenQuestion, folder: Path, log: EventLog) -> str:
    """Return the answer that agrees with the provider's book. No request with the key may be in flight."""
    effects = Book.read(folder).effects[question.key]
    choice = GIVE_UP if UNIMPORTANT in question.text else HAPPENED if effects else RESEND
    log.write("answered", question.key, choice, effects)
    return choice


def open_questions(connection: apsw.Connection) -> list[OpenQuestion]:
    """Return the open questions about acts."""
    rows = connection.execute(
        """
        SELECT questions.id, activity_log.idem_key, activity_log.request_json
          FROM questions
          JOIN activity_log ON activity_log.seq = questions.activity_seq
         WHERE questions.status = 'OPEN' AND questions.kind = 'activity'
         ORDER BY questions.seq
        """
    )
    return [OpenQuestion(*row) for row in rows]


def next_due(connection: apsw.Connection) -> float | None:
    """Return the time at which the engine has work, or None when it has none."""
    moment: float | None = connection.execute(
        "SELECT min(iif(status = 'CLAIMED', 0, due_at)) FROM triggers WHERE status IN ('PENDING', 'CLAIMED')"
    ).get
    return moment
