"""The calls of commands on what waits for a person, in a database file or on a cluster: questions, actions in doubt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from craftcore.activities.listing_store import ActivityListStore
from craftcore.activities.model import Activity, ActivityStatus, Decision
from craftcore.cli.lookup import find_activity, find_question, find_task
from craftcore.cli.session import Session
from craftcore.cli.short_ids import count_digits
from craftcore.diagnostics.activity_details import ActivityDetails, read_activity
from craftcore.diagnostics.live_counts import are_claims_live
from craftcore.diagnostics.open_questions import OpenQuestion, list_open_questions
from craftcore.operations import activities, tasks
from craftcore.storage.damaged_rows import Damaged
from craftcore.tasks.model import Question, Task


class DoubtCalls(Protocol):
    """The calls on questions and irreversible actions.

    `list_questions` says whether there are more, and what time it is. `list_activities` returns the digits of ids in a
    table, too (None: they are whole), and `read_activity` whether what is called is called now. `answer` is given the
    function that chooses the answer to a question, which raises InvalidInput. It returns the
    action that it decides about, if it does.
    """

    def list_questions(self, limit: int) -> tuple[list[OpenQuestion | Damaged], bool, float]: ...

    def answer(
        self, given: str, choose: Callable[[Question], str], *, note: str | None, reference: str | None
    ) -> tuple[Question, Task, Activity | None]: ...

    def list_activities(
        self, limit: int, status: ActivityStatus | None, task: str | None, action: str | None
    ) -> tuple[Sequence[Activity | Damaged], int | None]: ...

    def find_activity(self, given: str) -> Activity: ...

    def read_activity(self, given: str) -> tuple[ActivityDetails, bool]: ...

    def decide(
        self, seen: Activity, decision: Decision, *, note: str | None, reference: str | None
    ) -> tuple[Activity, Task]: ...


def open_doubts(session: Session) -> DoubtCalls:
    """Return the calls on the questions and actions that the options name."""
    if session.cluster is None:
        return FileDoubts(session)
    from craftcore.cli.temporal.cluster_doubts import ClusterDoubts

    return ClusterDoubts(session)


class FileDoubts:
    """The calls on the questions and actions of a database file."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._core = session.core()

    def list_questions(self, limit: int) -> tuple[list[OpenQuestion | Damaged], bool, float]:
        with self._core.reading() as reader:
            found = list_open_questions(reader, limit + 1)
        return found[:limit], len(found) > limit, self._core.clock.now()

    def answer(
        self, given: str, choose: Callable[[Question], str], *, note: str | None, reference: str | None
    ) -> tuple[Question, Task, Activity | None]:
        with self._session.write(self._core) as (tx, scope):
            question = find_question(tx, given)
            choice = choose(question)
            return tasks.answer(tx, scope, self._core, question.id, choice, note=note, reference=reference)

    def list_activities(
        self, limit: int, status: ActivityStatus | None, task: str | None, action: str | None
    ) -> tuple[Sequence[Activity | Damaged], int | None]:
        with self._core.reading() as reader:
            task_id = None if task is None else find_task(reader, task).id
            found = ActivityListStore().list_newest(reader, limit, status=status, task_id=task_id, action=action)
            return found, count_digits(reader)

    def find_activity(self, given: str) -> Activity:
        with self._core.reading() as reader:
            return find_activity(reader, given)

    def read_activity(self, given: str) -> tuple[ActivityDetails, bool]:
        with self._core.reading() as reader:
            found = find_activity(reader, given)
            claims_live = are_claims_live(reader, self._core.database.path)
            return read_activity(reader, found), claims_live

    def decide(
        self, seen: Activity, decision: Decision, *, note: str | None, reference: str | None
    ) -> tuple[Activity, Task]:
        with self._session.write(self._core) as (tx, scope):
            return activities.resolve(tx, scope, self._core, seen, decision, reference=reference, note=note)
