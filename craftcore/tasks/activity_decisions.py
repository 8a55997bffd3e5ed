"""Decisions of an operator: did an irreversible action happen? Its turn goes on with the answer."""

from __future__ import annotations

from craftcore.activities.ledger import Ledger
from craftcore.activities.model import Activity, Decision
from craftcore.activities.store import ActivityStore
from craftcore.errors import InvalidInput, NotFound
from craftcore.serialization.canonical import canonicalize
from craftcore.serialization.texts import check_texts
from craftcore.storage.transaction import Transaction
from craftcore.tasks.model import ResolvedBy
from craftcore.tasks.question_store import QuestionStore
from craftcore.tasks.store import TaskStore
from craftcore.tasks.wait_store import WaitStore
from craftcore.tasks.waits import WaitService

REFERENCE_MAX = 998
"""Characters of a provider's reference: those of a line of mail."""


class ActivityDecisions:
    """Ends doubts. Each method is a rule over a transaction it is given; ring the daemon's bell after the commit."""

    def __init__(self, ledger: Ledger, waiting: WaitService) -> None:
        self._ledger = ledger
        self._waiting = waiting
        self._activities = ActivityStore()
        self._questions = QuestionStore()
        self._tasks = TaskStore()
        self._waits = WaitStore()

    def decide(
        self,
        tx: Transaction,
        key: str,
        decision: Decision,
        *,
        decided_by: str,
        reference: str | None = None,
        note: str | None = None,
    ) -> Activity:
        """Decide that it happened (`reference`: the provider's), did not and may be called again, or is given up. The
        open question about it is answered, and a waiting turn continues. Return the activity after that.

        Raises NotFound; InvalidInput for a reference that cannot be one; StateRefused when it is not in doubt, beside
        one that the provider refused, which may be called again.
        """
        activity = self._activities.get(tx, key)
        if activity is None:
            raise NotFound(f"no activity {key}")
        check_texts(note=note, decided_by=decided_by)
        if reference is not None:
            if decision is not Decision.HAPPENED:
                raise InvalidInput("a reference is for what happened")
            if not 0 < len(reference) <= REFERENCE_MAX or not reference.isprintable():
                raise InvalidInput(f"a reference is 1 to {REFERENCE_MAX} printable characters")
        decided = self._ledger.decide(tx, activity, decision, decided_by=decided_by, reference=reference, note=note)
        question = self._questions.open_question_about(tx, activity.seq)
        if question is not None:
            self._questions.answer(tx, question.seq, decision, note=note, answered_by=decided_by)
            if question.wait_seq is not None:
                task = self._tasks.get_by_seq(tx, question.task_seq)
                wait = self._waits.find_open(tx, task.seq, question.wait_seq)
                if wait is not None:
                    told = {"by": decided_by, "decision": decision, "reference": reference}  # for the turn's record
                    self._waiting.resolve(tx, task, wait, ResolvedBy.ANSWER, canonicalize(told))
        return decided
