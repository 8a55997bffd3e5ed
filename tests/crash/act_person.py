"""The process outside of the engine that starts tasks, and answers questions about acts in doubt as a person does.

The person reads the provider's book and answers with its contents, and gives up some acts. The process keeps no state:
the database shows the open questions, so the process may be killed at any moment.
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
from tests.crash.act_client import ask, ask_in_thread, quiet
from tests.crash.act_provider import Book, Provider
from tests.crash.act_time import World
from tests.crash.task_app import A_MOMENT, Seen
from tests.crash.task_outside import SOON, a_reader, missing

PERSON = "ada"
HAPPENED, RESEND, GIVE_UP = "happened", "resend", "give up"

SHRUGS = "shrugs"
"""In the text of an act: nobody cares, should it be in doubt."""


class Asked(NamedTuple):
    """An open question about an act in doubt."""

    question: str
    key: str
    text: str


@dataclass(frozen=True, slots=True)
class Outside:
    """One life of it, in the process that runs the engine."""

    app: App
    engine: Engine
    folder: Path
    db: Path
    provider: Provider
    world: World
    seen: Seen

    async def see_through(self, specs: Sequence[TriggerSpec], *, one_by_one: bool) -> None:
        """Start what was not started, and answer, until everything is over. `one_by_one`: each task by itself."""
        with a_reader(self.db) as connection:
            await self._until_over(connection)
            new = missing(connection, specs)
            for some in [[spec] for spec in new] if one_by_one else [new]:
                await self.app.emit_many(some)
                await self._until_over(connection)

    async def _until_over(self, connection: apsw.Connection) -> None:
        while True:
            with connection:  # in one snapshot: between two, a task may stop to ask, and look as if it were over
                open_questions = asked(connection)
                due_at = None if open_questions else next_due(connection)
            for one in open_questions:
                await self._answer(one)
            now = self.world.now()
            if not open_questions and (due_at is None or due_at > now + SOON):
                return
            if due_at is not None and due_at > now:  # nothing else is to be done
                self.world.pass_by(due_at - now)
                self.engine.ring(schedules=False)
            with anyio.move_on_after(A_MOMENT):
                await self.engine.settled()

    async def _answer(self, one: Asked) -> None:
        await ask(self.provider.port, quiet(one.key))
        choice = choose(one, self.folder, self.seen)
        try:
            await self.app.answer(one.question, choice, answered_by=PERSON)
        except StateRefused as error:  # what it was about has ended otherwise
            self.seen.line("refused", one.key, str(error))


class Beside:
    """The same person at the command line: a process of its own, whether or not an engine runs."""

    def __init__(self, folder: Path, db: Path, provider: Provider, seen: Seen) -> None:
        self._core = Services(db, Config(), World(folder))
        self._folder, self._provider, self._seen = folder, provider, seen

    def work(self, rounds: int) -> None:
        """Look and answer so often."""
        with a_reader(self._core.database.path) as connection:
            for _ in range(rounds):
                for one in asked(connection):
                    self._answer(one)

    def _answer(self, one: Asked) -> None:
        ask_in_thread(self._provider.port, quiet(one.key))
        choice = choose(one, self._folder, self._seen)
        try:
            with self._core.transaction() as tx:
                self._core.tasks.answer(tx, one.question, choice, answered_by=PERSON)
        except StateRefused as error:
            self._seen.line("refused", one.key, str(error))
        else:
            hit(Failpoint.ANSWER_COMMITTED)
            ring(self._core.database.path, EVERYTHING)


def choose(one: Asked, folder: Path, seen: Seen) -> str:
    """What the provider's book says is the truth once nothing of that key is on its way any more."""
    effects = Book.of(folder).effects[one.key]
    choice = GIVE_UP if SHRUGS in one.text else HAPPENED if effects else RESEND
    seen.line("answered", one.key, choice, effects)
    return choice


def asked(connection: apsw.Connection) -> list[Asked]:
    """Every open question about an act."""
    rows = connection.execute(
        """
        SELECT questions.id, activity_log.idem_key, activity_log.request_json
          FROM questions
          JOIN activity_log ON activity_log.seq = questions.activity_seq
         WHERE questions.status = 'OPEN' AND questions.kind = 'activity'
         ORDER BY questions.seq
        """
    )
    return [Asked(*row) for row in rows]


def next_due(connection: apsw.Connection) -> float | None:
    """When the engine has something to do; None when it has not."""
    moment: float | None = connection.execute(
        "SELECT min(iif(status = 'CLAIMED', 0, due_at)) FROM triggers WHERE status IN ('PENDING', 'CLAIMED')"
    ).get
    return moment
