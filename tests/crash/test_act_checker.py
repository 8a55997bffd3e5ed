"""The checker of irreversible actions: it finds each fault in changed files and in broken engines."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from craftcore import OnUnknown
from tests.crash.act_app import PAIRS, Deeds, an_app
from tests.crash.act_checker import check
from tests.crash.act_person import SHRUGS
from tests.crash.act_provider import ANSWERS, BOOK, DROP_A_SECOND
from tests.crash.crews import run_program
from tests.crash.spoiling import Spoil, copy_files, sql
from tests.crash.task_app import SEEN
from tests.support.cells import cells

STORY = {
    "asked-yes": ("single", {"action": "ask.does-not", "faults": ["crash@effect"]}),
    "asked-no": ("single", {"action": "ask.does-not", "faults": ["timeout@half"]}),
    f"gave-up {SHRUGS}": ("single", {"action": "ask.does-not", "faults": ["reset@half"]}),
    "cancelled": ("single", {"action": "ask.does-not", "faults": ["cancel@effect"]}),
    "resent": ("single", {"action": "resend.windowed", "faults": ["reset@effect"]}),
    "reconciled": ("single", {"action": "reconcile.reconcilable", "faults": ["reset@half"]}),
    "assumed": ("single", {"action": "assume_done.does-not", "faults": ["reset@half"]}),
    "refused": ("single", {"action": "ask.does-not.plain", "faults": ["refused@answered"]}),
    "twins": ("twins", {"action": "ask.does-not", "faults": []}),
    "turns": ("turns", {"action": "resend.dedupes", "faults": ["stop@effect"]}),
    "crowd": (
        "crowd",
        {"acts": [["ask.does-not", []], ["resend.dedupes.plain", ["busy@answered"]], ["reconcile.unsure", []]]},
    ),
}
"""One act of every fate: the text of a task, its workflow and what is done to it."""

PLAY = """
import json, sys
from pathlib import Path
from craftcore import TriggerSpec
from tests.crash.act_matrix import Result, see_through
from tests.crash.act_provider import a_provider
from tests.crash.forks import prepare_forks

prepare_forks()
folder, result = Path(sys.argv[1]), Result()
specs = [
    TriggerSpec(
        workflow=workflow, payload={"text": text, **payload}, dedup_key=text.partition(" ")[0], dedup_scope="ever"
    )
    for text, (workflow, payload) in json.loads(sys.argv[2]).items()
]
with a_provider(folder) as provider:
    see_through(folder, provider, ("asyncio", 4), specs, result)
print("\\n".join(result.wrong))
"""


def python(code: str, *arguments: str, folder: Path) -> str:
    """What a program prints. It forks, so it must be a process of its own."""
    played = run_program("-c", code, *arguments, timeout=600, env={**os.environ, "TMPDIR": str(folder)})
    assert played.returncode == 0, played.stdout + played.stderr
    return played.stdout


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a few lives leave, with nothing wrong in it."""
    folder = tmp_path_factory.mktemp("sound")
    assert python(PLAY, str(folder), json.dumps(STORY), folder=folder).strip() == ""
    return folder


def act(text: str, change: str) -> Spoil:
    """Another row in the ledger, of the act with this text."""
    return sql(f"UPDATE activity_log SET {change} WHERE request_json ->> 'text' = '{text}'")


def task(text: str, change: str) -> Spoil:
    return sql(f"UPDATE tasks SET {change} WHERE id = (SELECT id FROM triggers WHERE dedup_key = '{text}')")


def written(file: str, change: Callable[[list[list[Any]]], list[list[Any]]]) -> Spoil:
    """Other lines than were written."""

    def spoil(folder: Path) -> None:
        before = [json.loads(line) for line in (folder / file).read_text().splitlines()]
        after = change([list(line) for line in before])
        assert after != before
        (folder / file).write_text("".join(json.dumps(line) + "\n" for line in after))

    return spoil


def book(what: str, text: str, change: Callable[[list[Any]], list[list[Any]]]) -> Spoil:
    """Other lines in the provider's book, instead of those that say so of the act with this text."""

    def spoil(folder: Path) -> None:
        connection = apsw.Connection(str(folder / "agent.db"), flags=apsw.SQLITE_OPEN_READONLY)
        rows = connection.execute("SELECT idem_key FROM activity_log WHERE request_json ->> 'text' = ?", (text,))
        keys = [key for (key,) in rows]
        connection.close()
        written(
            BOOK,
            lambda lines: [
                new
                for line in lines
                for new in (change(line) if line[0] == what and len(line) > 3 and line[3] in keys else [line])
            ],
        )(folder)

    return spoil


def got(text: str, result: Any) -> Spoil:
    """The workflow was told something else, the last time."""
    return written(
        SEEN, lambda lines: [*lines, [*[x for x in lines if x[0] == "got" and x[4] == text][-1][:5], result]]
    )


OF = "(SELECT seq FROM activity_log WHERE request_json ->> 'text' = '{}')"


def test_contradictory_declaration_is_refused_at_registration():
    able = {OnUnknown.RESEND: DROP_A_SECOND, OnUnknown.RECONCILE: ANSWERS}
    declared = an_app(Deeds()).actions

    assert [pair for pair in PAIRS if pair.action in declared] == [
        pair for pair in PAIRS if pair.kind in able.get(pair.policy, (pair.kind,))
    ]


def test_checker_accepts_a_sound_history(sound, tmp_path):
    verdict = check(copy_files(sound, tmp_path))

    assert verdict.wrong == []
    assert (verdict.tasks, verdict.acts, verdict.effects, verdict.duplicates, verdict.losses) == (11, 16, 13, 0, 0)
    assert (verdict.doubts, verdict.answers, verdict.gave_up, verdict.assumed) == (9, 4, 1, 1)
    assert verdict.outcomes["asked-no"] == "1: asked, no, sent again"


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        # what happened
        (book("effect", "asked-yes", lambda line: [line, line]), "happened 2 times"),
        (book("effect", "twins", lambda line: [line, line]), "happened 2 times"),
        (book("effect", "twins", lambda line: []), "is DONE, and it did not happen"),
        (book("effect", "asked-no", lambda line: [[*line[:4], {**line[4], "text": "another"}, line[5]]]), "did {"),
        (book("request", "asked-no", lambda line: [line, line]), "requests, and 2 calls"),
        (
            book("request", "asked-no", lambda line: [line, [*line[:3], "activity:other:1.1", line[4]]]),
            "the ledger knows nothing of it",
        ),
        (written(BOOK, lambda lines: [line for line in lines if line[0] != "ended"]), "the provider has not ended"),
        # what the ledger says of it
        (sql("DELETE FROM activity_log WHERE request_json ->> 'text' = 'crowd 0'"), "the ledger knows nothing of it"),
        (sql("DELETE FROM activity_log WHERE request_json ->> 'text' = 'crowd 0'"), "is DONE with 2 acts of 3"),
        (sql("DELETE FROM activity_log WHERE request_json ->> 'text' = 'crowd 0'"), "which is not in the ledger"),
        (act("turns once", "status = 'INTENT', settled_at = NULL"), "is INTENT, and nobody is calling"),
        (act("turns once", "status = 'UNKNOWN', in_doubt = 1"), "is UNKNOWN, and nobody is asked"),
        (act("turns once", "status = 'UNKNOWN', in_doubt = 1, decision = 'resend'"), "its task ended without it"),
        (act("turns once", "status = 'FAILED', error_code = 'X'"), "is FAILED, and it did happen"),
        (act("turns once", "provider_ref = 'another'"), "has the reference another, and was given ref-"),
        (act("asked-no", "calls = 3"), "has 3 calls, and its history"),
        (act("asked-no", "request_json = json_set(request_json, '$.of', 'another')"), "and the ledger says"),
        (sql("DELETE FROM event_rows WHERE type = 'ACTIVITY_RESOLVED'"), "and its history is"),
        (
            sql(
                "UPDATE event_rows SET type = 'ACTIVITY_FAILED' "
                f"WHERE type = 'ACTIVITY_DONE' AND activity_seq = {OF.format('resent')}"
            ),
            "was in doubt, and then FAILED",
        ),
        # what was decided
        (
            sql(f"DELETE FROM activity_decisions WHERE activity_seq = {OF.format('asked-no')}"),
            "was sent again 1 times, and 0 were decided",
        ),
        (
            sql(f"DELETE FROM activity_decisions WHERE activity_seq = {OF.format('resent')}"),
            "was sent again 1 times, and 0 were decided",
        ),
        (
            sql(f"DELETE FROM activity_decisions WHERE activity_seq = {OF.format('assumed')}"),
            "is DONE, and it did not happen",
        ),
        (
            sql(
                "UPDATE activity_decisions SET decided_by = 'policy resend' "
                f"WHERE activity_seq = {OF.format('asked-no')}"
            ),
            "and its policy is ask",
        ),
        (
            sql(
                "UPDATE activity_decisions SET decided_by = 'policy assume_done' "
                f"WHERE activity_seq = {OF.format('asked-yes')}"
            ),
            "was assumed to have happened, and its policy is ask",
        ),
        (
            sql("UPDATE activity_decisions SET decided_at = decided_at + 2e9 WHERE decided_by = 'policy resend'"),
            "when the provider had forgotten it",
        ),
        (
            sql(f"UPDATE activity_decisions SET decision = 'resend' WHERE activity_seq = {OF.format('asked-yes')}"),
            "a person said ['happened'], and on record is ['resend']",
        ),
        (
            sql(
                "UPDATE questions SET status = 'OPEN', answer = NULL, answered_by = NULL, closed_at = NULL "
                f"WHERE activity_seq = {OF.format('cancelled')}"
            ),
            "a question is open",
        ),
        # what became of the tasks
        (task("twins", "status = 'RUNNING', ended_at = NULL"), "and will be for ever"),
        (task("twins", "status = 'FAILED', error_code = 'X'"), "FAILED: X"),
        (task("twins", "status = 'CANCELLED'"), "and nobody did that"),
        (got("asked-yes", "ref-1000"), "and its workflow was told 'ref-1000'"),
        (got("gave-up shrugs", None), "and its workflow was told None"),
        (got("refused", "ref-1"), "and its workflow was told 'ref-1'"),
        (got("twins", "gave up"), "and its workflow was told 'gave up'"),
        (written(SEEN, lambda lines: [*lines, ["impossible", 1, "it is so"]]), "in life 1: it is so"),
    ],
)
def test_checker_finds_each_fault(sound, tmp_path, spoil, found):
    folder = copy_files(sound, tmp_path)

    spoil(folder)

    wrong = check(folder).wrong
    assert any(found in one for one in wrong), wrong


# Broken engines

CALLED_BEFORE_ITS_INTENT = """
from craftcore.engine.turn import ledgered_call

async def early(self, again, *, right=ledgered_call.LedgeredCall._begin):
    if again is None:
        deadline = ledgered_call.deadline_of(self._turn, self._terms.timeout)
        call = ledgered_call.Call(key=self._key, attempt=1, deadline=deadline)
        await ledgered_call.call_provider(self._turn, self._action, self._terms, call, self._arguments)
    return await right(self, again)

ledgered_call.LedgeredCall._begin = early
"""

AN_ERROR_IS_TAKEN_FOR_PROOF = """
from craftcore.engine.turn import provider_call
from craftcore.activities.model import ActivityStatus

def failed(reason, message, *, right=provider_call._unknown_outcome):
    return right(reason, message)._replace(status=ActivityStatus.FAILED)

provider_call._unknown_outcome = failed
"""

A_WINDOW_THAT_IS_NOT_LOOKED_AT = """
from craftcore.activities import resolution
from dataclasses import replace

def resend(activity, terms, is_fresh, now, *, right=resolution._resend):
    return right(activity, replace(terms, idempotency_window=None), is_fresh, now)

resolution._resend = resend
"""

A_NO_THAT_IS_BELIEVED_AT_ONCE = """
from craftcore.engine.turn import act as acts
from dataclasses import replace

def course_of(activity, terms, *, right=acts.resolve, **more):
    return right(activity, replace(terms, settle_after=0.0), **more)

acts.resolve = course_of
"""

ANOTHER_KEY_FOR_EACH_CALL = """
from craftcore.engine.turn import ledgered_call

def call(*, key, attempt, deadline, right=ledgered_call.Call):
    return right(key=f"{key}.{attempt}", attempt=attempt, deadline=deadline)

ledgered_call.Call = call
"""

ANOTHER_KEY_FOR_EACH_ENTRY = """
from craftcore.engine.turn import act as acts

acts._place = lambda turn, key, *, right=acts._place: f"{right(turn, key)}.{turn.run.record.seq}"
"""

INTENTS_THAT_A_BOOT_OVERLOOKS = """
from craftcore.tasks.activity_events import ActivityEvents

ActivityEvents.mark_interrupted = lambda self, tx: 0
"""

THE_END_OF_A_CALL_IS_LOST = """
from craftcore.engine.turn import ledgered_call

async def settle(self, begun, end, *, right=ledgered_call.LedgeredCall._settle):
    return end if end.status is ledgered_call.ActivityStatus.DONE else await right(self, begun, end)

ledgered_call.LedgeredCall._settle = settle
"""

A_DOUBT_IS_DROPPED = """
from craftcore.engine.turn import ledgered_call

ledgered_call.outcome_after = lambda end, *, in_doubt: end
"""

NOBODY_IS_ASKED_ABOUT_A_TASK_THAT_ENDED = """
from craftcore.tasks.activity_events import ActivityEvents

ActivityEvents.ask_at_end = lambda self, tx, seqs: None
"""

ASSUMED_AND_NOT_SAID = """
from craftcore.activities.decision_store import DecisionStore

DecisionStore.add = lambda *args, **more: None
"""

YES_IS_TAKEN_FOR_NO = """
from craftcore.activities.ledger import Ledger
from craftcore.activities.model import Decision

def decide(self, tx, activity, decision, *, right=Ledger.decide, **more):
    return right(self, tx, activity, Decision.RESEND, **more)

Ledger.decide = decide
"""

PLAY_BROKEN = """
import sys
from tests.crash.act_matrix import matrix

exec(sys.argv[1])
result = matrix(thorough=False, workers=1, only=sys.argv[2])
print("\\n".join(result.wrong))
"""


@pytest.mark.parametrize(
    ("broken", "places", "found"),
    cells(
        [
            (CALLED_BEFORE_ITS_INTENT, "ask.does-not:crash@called", "happened 3 times"),
            (AN_ERROR_IS_TAKEN_FOR_PROOF, "ask.does-not:reset@effect", "is FAILED, and it did happen"),
            (A_WINDOW_THAT_IS_NOT_LOOKED_AT, "resend.beyond:reset@effect", "happened 2 times"),
            (A_NO_THAT_IS_BELIEVED_AT_ONCE, "reconcile.slow:reset@effect", "happened 2 times"),
            (ANOTHER_KEY_FOR_EACH_CALL, "resend.dedupes:reset@effect", "the ledger knows nothing of it"),
            (ANOTHER_KEY_FOR_EACH_ENTRY, "ask.does-not:reset@after", "is DONE with 2 acts of 1"),
            (INTENTS_THAT_A_BOOT_OVERLOOKS, "ask.does-not:crash@effect", "is INTENT, and whoever called is dead"),
            (THE_END_OF_A_CALL_IS_LOST, "ask.does-not:timeout@before", "is UNKNOWN, and nobody is asked"),
            (A_DOUBT_IS_DROPPED, "resend.dedupes:reset@effect+busy@answered", "was in doubt, and then FAILED"),
            (NOBODY_IS_ASKED_ABOUT_A_TASK_THAT_ENDED, "ask.does-not:cancel@effect", "is UNKNOWN, and nobody is asked"),
            (ASSUMED_AND_NOT_SAID, "assume_done.does-not:reset@half", "is DONE, and it did not happen"),
            (YES_IS_TAKEN_FOR_NO, "ask.does-not:reset@effect", "happened 2 times"),
        ],
        [
            *("early", "proof", "window", "settle_after", "key_of_call", "key_of_entry"),
            *("boot", "lost", "dropped", "not asked", "assumed", "yes"),
        ],
    ),
)
def test_checker_finds_an_engine_that_repeats_or_loses_effects(tmp_path, broken, places, found):
    wrong = python(PLAY_BROKEN, broken, f"{places}$", folder=tmp_path)

    assert found in wrong, wrong
