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
from tests.crash.act_app import PAIRS, ActRunner, an_app
from tests.crash.act_checker import check
from tests.crash.act_person import UNIMPORTANT
from tests.crash.act_provider import BOOK, CAN_RECONCILE, DEDUPLICATING
from tests.crash.crews import run_program
from tests.crash.spoiling import Spoil, copy_files, sql
from tests.crash.task_app import EVENT_LOG
from tests.support.cells import cells

SCENARIO = {
    "asked-yes": ("single", {"action": "ask.does-not", "faults": ["crash@effect"]}),
    "asked-no": ("single", {"action": "ask.does-not", "faults": ["timeout@half"]}),
    f"gave-up {UNIMPORTANT}": ("single", {"action": "ask.does-not", "faults": ["reset@half"]}),
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
"""The texts of tasks with one act of each outcome, and the workflow and the payload of each task."""

RUN_SCENARIO = """
import json, sys
from pathlib import Path
from craftcore import TriggerSpec
from tests.crash.act_matrix import Result, run_to_end
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
    run_to_end(folder, provider, ("asyncio", 4), specs, result)
print("\\n".join(result.wrong))
"""


def run_python(code: str, *arguments: str, folder: Path) -> str:
    """Return the output of a program that forks, and therefore needs its own process."""
    run = run_program("-c", code, *arguments, timeout=600, env={**os.environ, "TMPDIR": str(folder)})
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a few lives, in which nothing is wrong."""
    folder = tmp_path_factory.mktemp("sound")
    assert run_python(RUN_SCENARIO, str(folder), json.dumps(SCENARIO), folder=folder).strip() == ""
    return folder


def change_act(text: str, change: str) -> Spoil:
    """Return a function that changes the ledger row of the act with this text."""
    return sql(f"UPDATE activity_log SET {change} WHERE request_json ->> 'text' = '{text}'")


def change_task(text: str, change: str) -> Spoil:
    return sql(f"UPDATE tasks SET {change} WHERE id = (SELECT id FROM triggers WHERE dedup_key = '{text}')")


def change_lines(file: str, change: Callable[[list[list[Any]]], list[list[Any]]]) -> Spoil:
    """Return a function that changes the lines of a file."""

    def spoil(folder: Path) -> None:
        before = [json.loads(line) for line in (folder / file).read_text().splitlines()]
        after = change([list(line) for line in before])
        assert after != before
        (folder / file).write_text("".join(json.dumps(line) + "\n" for line in after))

    return spoil


def change_book(kind: str, text: str, change: Callable[[list[Any]], list[list[Any]]]) -> Spoil:
    """Return a function that replaces the lines of this kind in the provider's book, for the act with this text."""

    def spoil(folder: Path) -> None:
        connection = apsw.Connection(str(folder / "agent.db"), flags=apsw.SQLITE_OPEN_READONLY)
        rows = connection.execute("SELECT idem_key FROM activity_log WHERE request_json ->> 'text' = ?", (text,))
        keys = [key for (key,) in rows]
        connection.close()
        change_lines(
            BOOK,
            lambda lines: [
                new
                for line in lines
                for new in (change(line) if line[0] == kind and len(line) > 3 and line[3] in keys else [line])
            ],
        )(folder)

    return spoil


def append_result(text: str, result: Any) -> Spoil:
    """Return a function that logs another result of the act with this text, after the last one."""
    return change_lines(
        EVENT_LOG, lambda lines: [*lines, [*[x for x in lines if x[0] == "got" and x[4] == text][-1][:5], result]]
    )


SEQ_OF = "(SELECT seq FROM activity_log WHERE request_json ->> 'text' = '{}')"


def test_contradictory_declaration_is_refused_at_registration():
    able = {OnUnknown.RESEND: DEDUPLICATING, OnUnknown.RECONCILE: CAN_RECONCILE}
    declared = an_app(ActRunner()).actions

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
        # effects
        (change_book("effect", "asked-yes", lambda line: [line, line]), "happened 2 times"),
        (change_book("effect", "twins", lambda line: [line, line]), "happened 2 times"),
        (change_book("effect", "twins", lambda line: []), "is DONE, but it did not happen"),
        (
            change_book("effect", "asked-no", lambda line: [[*line[:4], {**line[4], "text": "another"}, line[5]]]),
            "had the effect {",
        ),
        (change_book("request", "asked-no", lambda line: [line, line]), "requests, but 2 calls"),
        (
            change_book("request", "asked-no", lambda line: [line, [*line[:3], "activity:other:1.1", line[4]]]),
            "a key that is not in the ledger",
        ),
        (
            change_lines(BOOK, lambda lines: [line for line in lines if line[0] != "ended"]),
            "the provider has a pending request",
        ),
        # the ledger
        (sql("DELETE FROM activity_log WHERE request_json ->> 'text' = 'crowd 0'"), "a key that is not in the ledger"),
        (sql("DELETE FROM activity_log WHERE request_json ->> 'text' = 'crowd 0'"), "is DONE with 2 acts of 3"),
        (sql("DELETE FROM activity_log WHERE request_json ->> 'text' = 'crowd 0'"), "which has no act in the ledger"),
        (change_act("turns once", "status = 'INTENT', settled_at = NULL"), "is INTENT, but no call is in progress"),
        (change_act("turns once", "status = 'UNKNOWN', in_doubt = 1"), "is UNKNOWN, but has no decision"),
        (
            change_act("turns once", "status = 'UNKNOWN', in_doubt = 1, decision = 'resend'"),
            "its task ended without the call",
        ),
        (change_act("turns once", "status = 'FAILED', error_code = 'X'"), "is FAILED, but it happened"),
        (change_act("turns once", "provider_ref = 'another'"), "has the reference another instead of ref-"),
        (change_act("asked-no", "calls = 3"), "has 3 calls, but its history"),
        (change_act("asked-no", "request_json = json_set(request_json, '$.task', 'another')"), "but the ledger has"),
        (sql("DELETE FROM event_rows WHERE type = 'ACTIVITY_RESOLVED'"), "but its history is"),
        (
            sql(
                "UPDATE event_rows SET type = 'ACTIVITY_FAILED' "
                f"WHERE type = 'ACTIVITY_DONE' AND activity_seq = {SEQ_OF.format('resent')}"
            ),
            "was in doubt, and then FAILED",
        ),
        # decisions
        (
            sql(f"DELETE FROM activity_decisions WHERE activity_seq = {SEQ_OF.format('asked-no')}"),
            "was sent again 1 times, but 0 calls were allowed",
        ),
        (
            sql(f"DELETE FROM activity_decisions WHERE activity_seq = {SEQ_OF.format('resent')}"),
            "was sent again 1 times, but 0 calls were allowed",
        ),
        (
            sql(f"DELETE FROM activity_decisions WHERE activity_seq = {SEQ_OF.format('assumed')}"),
            "is DONE, but it did not happen",
        ),
        (
            sql(
                "UPDATE activity_decisions SET decided_by = 'policy resend' "
                f"WHERE activity_seq = {SEQ_OF.format('asked-no')}"
            ),
            "but its policy is ask",
        ),
        (
            sql(
                "UPDATE activity_decisions SET decided_by = 'policy assume_done' "
                f"WHERE activity_seq = {SEQ_OF.format('asked-yes')}"
            ),
            "was assumed to have happened, but its policy is ask",
        ),
        (
            sql("UPDATE activity_decisions SET decided_at = decided_at + 2e9 WHERE decided_by = 'policy resend'"),
            "after the window of its key",
        ),
        (
            sql(f"UPDATE activity_decisions SET decision = 'resend' WHERE activity_seq = {SEQ_OF.format('asked-yes')}"),
            "a person answered ['happened'], but the record has ['resend']",
        ),
        (
            sql(
                "UPDATE questions SET status = 'OPEN', answer = NULL, answered_by = NULL, closed_at = NULL "
                f"WHERE activity_seq = {SEQ_OF.format('cancelled')}"
            ),
            "a question is still open",
        ),
        # tasks
        (change_task("twins", "status = 'RUNNING', ended_at = NULL"), "is still RUNNING at the end"),
        (change_task("twins", "status = 'FAILED', error_code = 'X'"), "FAILED: X"),
        (change_task("twins", "status = 'CANCELLED'"), "but has no cancel fault"),
        (append_result("asked-yes", "ref-1000"), "but its workflow received 'ref-1000'"),
        (append_result(f"gave-up {UNIMPORTANT}", None), "but its workflow received None"),
        (append_result("refused", "ref-1"), "but its workflow received 'ref-1'"),
        (append_result("twins", "gave up"), "but its workflow received 'gave up'"),
        (change_lines(EVENT_LOG, lambda lines: [*lines, ["impossible", 1, "a state"]]), "in life 1: a state"),
    ],
)
def test_checker_finds_each_fault(sound, tmp_path, spoil, found):
    folder = copy_files(sound, tmp_path)

    spoil(folder)

    wrong = check(folder).wrong
    assert any(found in fault for fault in wrong), wrong


# Broken engines

CALL_BEFORE_INTENT = """
from craftcore.engine.turn import ledgered_call

async def early(self, again, *, original=ledgered_call.LedgeredCall._begin):
    if again is None:
        deadline = ledgered_call.deadline_of(self._turn, self._terms.timeout)
        call = ledgered_call.Call(key=self._key, attempt=1, deadline=deadline)
        await ledgered_call.call_provider(self._turn, self._action, self._terms, call, self._arguments)
    return await original(self, again)

ledgered_call.LedgeredCall._begin = early
"""

ERROR_COUNTS_AS_PROOF = """
from craftcore.engine.turn import provider_call
from craftcore.activities.model import ActivityStatus

def failed(reason, message, *, original=provider_call._unknown_outcome):
    return original(reason, message)._replace(status=ActivityStatus.FAILED)

provider_call._unknown_outcome = failed
"""

WINDOW_IS_IGNORED = """
from craftcore.activities import resolution
from dataclasses import replace

def resend(activity, terms, is_fresh, now, *, original=resolution._resend):
    return original(activity, replace(terms, idempotency_window=None), is_fresh, now)

resolution._resend = resend
"""

NEGATIVE_ANSWER_COUNTS_AT_ONCE = """
from craftcore.engine.turn import act as acts
from dataclasses import replace

def course_of(activity, terms, *, original=acts.resolve, **options):
    return original(activity, replace(terms, settle_after=0.0), **options)

acts.resolve = course_of
"""

NEW_KEY_FOR_EACH_CALL = """
from craftcore.engine.turn import ledgered_call

def call(*, key, attempt, deadline, original=ledgered_call.Call):
    return original(key=f"{key}.{attempt}", attempt=attempt, deadline=deadline)

ledgered_call.Call = call
"""

NEW_KEY_FOR_EACH_ENTRY = """
from craftcore.engine.turn import act as acts

acts._place = lambda turn, key, *, original=acts._place: f"{original(turn, key)}.{turn.attempt.record.seq}"
"""

BOOT_IGNORES_INTENTS = """
from craftcore.tasks.activity_events import ActivityEvents

ActivityEvents.mark_interrupted = lambda self, tx: 0
"""

END_OF_A_CALL_IS_LOST = """
from craftcore.engine.turn import ledgered_call

async def settle(self, begun, end, *, original=ledgered_call.LedgeredCall._settle):
    return end if end.status is ledgered_call.ActivityStatus.DONE else await original(self, begun, end)

ledgered_call.LedgeredCall._settle = settle
"""

DOUBT_IS_DROPPED = """
from craftcore.engine.turn import ledgered_call

ledgered_call.outcome_after = lambda end, *, in_doubt: end
"""

ENDED_TASK_LEAVES_NO_QUESTION = """
from craftcore.tasks.activity_events import ActivityEvents

ActivityEvents.ask_at_end = lambda self, tx, seqs: None
"""

ASSUMPTION_IS_NOT_RECORDED = """
from craftcore.activities.decision_store import DecisionStore

DecisionStore.add = lambda *args, **options: None
"""

YES_COUNTS_AS_NO = """
from craftcore.activities.ledger import Ledger
from craftcore.activities.model import Decision

def decide(self, tx, activity, decision, *, original=Ledger.decide, **options):
    return original(self, tx, activity, Decision.RESEND, **options)

Ledger.decide = decide
"""

RUN_BROKEN_ENGINE = """
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
            (CALL_BEFORE_INTENT, "ask.does-not:crash@called", "happened 3 times"),
            (ERROR_COUNTS_AS_PROOF, "ask.does-not:reset@effect", "is FAILED, but it happened"),
            (WINDOW_IS_IGNORED, "resend.beyond:reset@effect", "happened 2 times"),
            (NEGATIVE_ANSWER_COUNTS_AT_ONCE, "reconcile.slow:reset@effect", "happened 2 times"),
            (NEW_KEY_FOR_EACH_CALL, "resend.dedupes:reset@effect", "a key that is not in the ledger"),
            (NEW_KEY_FOR_EACH_ENTRY, "ask.does-not:reset@after", "is DONE with 2 acts of 1"),
            (BOOT_IGNORES_INTENTS, "ask.does-not:crash@effect", "is INTENT after the boot, and its caller was killed"),
            (END_OF_A_CALL_IS_LOST, "ask.does-not:timeout@before", "is UNKNOWN, but has no decision"),
            (DOUBT_IS_DROPPED, "resend.dedupes:reset@effect+busy@answered", "was in doubt, and then FAILED"),
            (ENDED_TASK_LEAVES_NO_QUESTION, "ask.does-not:cancel@effect", "is UNKNOWN, but has no decision"),
            (ASSUMPTION_IS_NOT_RECORDED, "assume_done.does-not:reset@half", "is DONE, but it did not happen"),
            (YES_COUNTS_AS_NO, "ask.does-not:reset@effect", "happened 2 times"),
        ],
        [
            *("early", "proof", "window", "settle_after", "key_of_call", "key_of_entry"),
            *("boot", "lost", "dropped", "not asked", "assumed", "yes"),
        ],
    ),
)
def test_checker_finds_an_engine_that_repeats_or_loses_effects(tmp_path, broken, places, found):
    wrong = run_python(RUN_BROKEN_ENGINE, broken, f"{places}$", folder=tmp_path)

    assert found in wrong, wrong
