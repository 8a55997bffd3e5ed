"""The independent checker of irreversible actions: it compares the provider's book with the ledger, in plain SQL.

An effect occurs at most once, unless a person decided to repeat the call. A call recorded as done has its effect. No
call stays in doubt. The checker runs after all tasks have ended and all questions are answered.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import apsw

from tests.crash.act_app import ACTS, CANCEL, GAVE_UP, REFUSED
from tests.crash.act_person import GIVE_UP, HAPPENED, PERSON, RESEND
from tests.crash.act_provider import WINDOWS, Book
from tests.crash.task_app import SEEN, lines_of
from tests.crash.task_never import impossible

Row = dict[str, Any]

ENDED = ("DONE", "FAILED", "CANCELLED")

NEVER = {
    "act {} was decided, and is not in the ledger": """
        SELECT activity_seq FROM activity_decisions WHERE activity_seq NOT IN (SELECT seq FROM activity_log)
    """,
}
"""What is true of no file at any moment: what to say of it, and whom."""


@dataclass(slots=True, kw_only=True)
class Verdict:
    """What the checker found in one folder.

    doubts      how often nobody knew whether an act had happened
    outcomes    what became of the act of each task that has but one, by the key of its trigger
    duplicates  effects that nobody decided to have twice
    losses      acts that are taken as done and did not happen, or that nobody will ever hear of
    """

    tasks: int = 0
    acts: int = 0
    calls: int = 0
    requests: int = 0
    effects: int = 0
    doubts: int = 0
    answers: int = 0
    gave_up: int = 0
    reconciled: int = 0
    resent: int = 0
    assumed: int = 0
    duplicates: int = 0
    losses: int = 0
    outcomes: dict[str, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


COUNTED = [name.name for name in fields(Verdict) if name.type == "int"]


def check(folder: Path) -> Verdict:
    """Compare the ledger with the book."""
    connection = apsw.Connection(str(folder / "agent.db"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return _Check(folder, connection).verdict
    finally:
        connection.close()


class _Check:
    def __init__(self, folder: Path, connection: apsw.Connection) -> None:
        self.connection = connection
        self.verdict = Verdict()
        self.lines = list(lines_of(folder / SEEN))
        self.book = Book.of(folder)
        self.tasks = {row["seq"]: row for row in self.rows("SELECT * FROM tasks")}
        self.acts = {row["idem_key"]: row for row in self.rows("SELECT * FROM activity_log ORDER BY seq")}
        self.decisions = self.by_act("SELECT * FROM activity_decisions ORDER BY seq")
        self.questions = self.by_act("SELECT * FROM questions WHERE kind = 'activity' ORDER BY seq")
        self.events = self.history()
        self.file_is_sound()
        self.everything_is_over()
        self.the_provider_heard_of_nothing_else()
        for act in self.acts.values():
            self.happened_at_most_once(act)
            self.is_as_the_ledger_says(act)
            self.was_sent_again_only_where_it_may_be(act)
            self.history_fits(act)
            self.a_doubt_ends_by_a_decision(act)
        self.tasks_have_their_acts()
        self.workflows_were_told_the_truth()
        self.count()
        self.verdict.outcomes = self.outcomes()

    # What it goes by

    def history(self) -> dict[int, list[Row]]:
        """The events of each act, in order."""
        history: dict[int, list[Row]] = {}
        for event in self.rows("SELECT * FROM events WHERE type LIKE 'ACTIVITY_%' ORDER BY execution_seq, seq"):
            history.setdefault(event["activity_seq"], []).append({**event, **json.loads(event["payload_json"])})
        return history

    def file_is_sound(self) -> None:
        for pragma in ("PRAGMA integrity_check", "PRAGMA foreign_key_check"):
            found = [row for row in self.connection.execute(pragma) if row != ("ok",)]
            self.blame(f"{pragma}: {found}" for _ in found[:1])
        self.blame(impossible(self.connection))
        self.blame(said.format(*row) for said, sql in NEVER.items() for row in self.connection.execute(sql))
        self.blame(f"in life {life}: {text}" for life, text in self.seen("impossible"))

    def everything_is_over(self) -> None:
        for task in self.tasks.values():
            if task["status"] not in ENDED:
                self.lost(f"task {task['id']} ({task['workflow']}) is {task['status']}, and will be for ever")
            elif task["status"] == "FAILED":
                self.blame([f"task {task['id']} ({task['workflow']}) FAILED: {task['error_code']} {task['reason']}"])
            elif task["status"] == "CANCELLED" and CANCEL not in self.payload_of(task):
                self.blame([f"task {task['id']} ({task['workflow']}) is CANCELLED, and nobody did that"])
        for row in self.rows("SELECT * FROM triggers WHERE status IN ('PENDING', 'CLAIMED', 'DEAD')"):
            self.blame([f"trigger {row['id']} is {row['status']}: {row['reason']}"])
        self.blame(f"the provider has not ended with {key}" for key in self.book.pending)

    def the_provider_heard_of_nothing_else(self) -> None:
        """Nothing is sent that is not in the ledger first, and nothing else than what stands there."""
        for key in self.book.requests:
            if key not in self.acts:
                self.blame([f"the provider was called with {key}, and the ledger knows nothing of it"])
        for key, all_arguments in self.book.arguments.items():
            act = self.acts.get(key)
            if act is None or act["request_json"] is None:
                continue
            meant = json.loads(act["request_json"])
            for arguments in all_arguments:
                if arguments != {name: meant[name] for name in arguments}:
                    self.blame([f"{key} did {arguments}, and the ledger says {meant}"])

    # Each act

    def happened_at_most_once(self, act: Row) -> None:
        effects = self.book.effects[act["idem_key"]]
        if effects > 1:  # the person tells the truth, so nobody decided to have it twice
            self.verdict.duplicates += effects - 1
            self.blame([f"{self.named(act)} happened {effects} times, and nobody decided that"])

    def is_as_the_ledger_says(self, act: Row) -> None:
        effects = self.book.effects[act["idem_key"]]
        match act["status"]:
            case "INTENT":
                self.lost(f"{self.named(act)} is INTENT, and nobody is calling")
            case "UNKNOWN" if act["decision"] is None:
                self.lost(f"{self.named(act)} is UNKNOWN, and nobody is asked")
            case "UNKNOWN" if act["decision"] == RESEND and self.tasks[act["task_seq"]]["status"] == "DONE":
                self.lost(f"{self.named(act)} was to be sent again, and its task ended without it")
            case "DONE" if not effects and not self.is_assumed(act):
                self.lost(f"{self.named(act)} is DONE, and it did not happen")
            case "FAILED" if effects:
                self.blame([f"{self.named(act)} is FAILED, and it did happen"])
        if self.is_assumed(act) and self.policy_of(act) != "assume_done":
            self.blame([f"{self.named(act)} was assumed to have happened, and its policy is {self.policy_of(act)}"])
        given = self.book.references.get(act["idem_key"])
        if act["provider_ref"] not in (None, given):
            self.blame([f"{self.named(act)} has the reference {act['provider_ref']}, and was given {given}"])

    def was_sent_again_only_where_it_may_be(self, act: Row) -> None:
        """A second call needs a decision, or the proof that the one before did nothing. A policy decides for itself
        only, and only while the provider knows the key."""
        events, decided = self.events.get(act["seq"], []), self.decisions.get(act["seq"], [])
        again = sum(event["type"] == "ACTIVITY_INTENT" and event["attempt"] > 1 for event in events)
        proven = sum(event["type"] == "ACTIVITY_FAILED" for event in events)
        may_be = sum(made["decision"] == RESEND for made in decided) + proven
        if again > may_be:
            self.blame([f"{self.named(act)} was sent again {again} times, and {may_be} were decided"])
        policy, window = self.policy_of(act), WINDOWS.get(self.kind_of(act))
        for made in decided:
            if made["decided_by"] not in (PERSON, policy, f"policy {policy}"):
                self.blame([f"{self.named(act)} was decided by {made['decided_by']}, and its policy is {policy}"])
            if made["decided_by"] == "policy resend" and window and made["decided_at"] > act["first_call_at"] + window:
                self.blame([f"{self.named(act)} was sent again when the provider had forgotten it"])
        if self.book.requests[act["idem_key"]] > act["calls"]:
            requests = self.book.requests[act["idem_key"]]
            self.blame([f"{self.named(act)}: {requests} requests, and {act['calls']} calls in the ledger"])

    def history_fits(self, act: Row) -> None:
        types = [event["type"] for event in self.events.get(act["seq"], [])]
        if types.count("ACTIVITY_INTENT") != act["calls"]:
            self.blame([f"{self.named(act)} has {act['calls']} calls, and its history is {types}"])
        decided = self.decisions.get(act["seq"], [])
        told = sum(made["decided_by"] in ("reconcile", "policy assume_done") for made in decided)
        if types.count("ACTIVITY_RESOLVED") != told:
            self.blame([f"{self.named(act)} was decided {decided}, and its history is {types}"])
        said = [choice for _, key, choice, _ in self.seen("answered") if key == act["idem_key"]]
        by_person = [made["decision"] for made in decided if made["decided_by"] == PERSON]
        on_record = [question["answer"] for question in self.questions.get(act["seq"], []) if question["answer"]]
        if not len(by_person) == len(on_record) <= len(said) or {*by_person} != {*on_record} or {*by_person} - {*said}:
            self.blame([f"{self.named(act)}: a person said {said}, and on record is {by_person}, {on_record}"])
        if any(question["status"] == "OPEN" for question in self.questions.get(act["seq"], [])):
            self.lost(f"{self.named(act)}: a question is open, and nobody was asked")

    def a_doubt_ends_by_a_decision(self, act: Row) -> None:
        """That a later call did nothing proves nothing of an earlier one."""
        since = None
        decided = self.decisions.get(act["seq"], [])
        moments = [made["decided_at"] for made in decided if made["decided_by"] in (PERSON, "reconcile")]
        for event in self.events.get(act["seq"], []):
            if event["type"] == "ACTIVITY_UNKNOWN":
                since = event["at"]
            if event["type"] == "ACTIVITY_FAILED" and since and not any(since <= at <= event["at"] for at in moments):
                self.blame([f"{self.named(act)} was in doubt, and then FAILED: {event['reason']}"])

    # What tasks came to

    def tasks_have_their_acts(self) -> None:
        rows = Counter(act["task_id"] for act in self.acts.values())
        for task in self.tasks.values():
            payload = json.loads(self.payload_of(task))
            expected = len(payload["acts"]) if "acts" in payload else ACTS[task["workflow"]]
            count = rows[task["id"]]
            if count > expected or (count < expected and task["status"] == "DONE"):
                self.lost(f"task {task['id']} ({task['workflow']}) is {task['status']} with {count} acts of {expected}")

    def workflows_were_told_the_truth(self) -> None:
        told: dict[tuple[str, str], Any] = {}
        for _, task, _, text, result in self.seen("got"):
            acts = [act for act in self.acts.values() if act["task_id"] == task and self.text_of(act) == text]
            if not acts:
                self.lost(f"task {task} was told {result!r} of {text!r}, which is not in the ledger")
            elif not any(self.fits(act, result) for act in acts):
                self.blame([f"{self.named(acts[0])} is {acts[0]['status']}, and its workflow was told {result!r}"])
            if len(acts) == 1 and told.setdefault((task, text), result) != result:
                self.blame([f"task {task} was told {result!r} of {text!r}, and before {told[task, text]!r}"])

    def fits(self, act: Row, result: Any) -> bool:
        """Whether a workflow may have been told this."""
        status, decision = act["status"], act["decision"]
        known = self.book.references.get(act["idem_key"])
        allowed: dict[Any, bool] = {
            known: status == "DONE",
            GAVE_UP: (status, decision) == ("UNKNOWN", GIVE_UP),
            REFUSED: status == "FAILED",
            None: (status, decision) == ("DONE", HAPPENED),  # nobody knows the reference
        }
        return allowed.get(result, False)

    def count(self) -> None:
        found, events = self.verdict, [event for some in self.events.values() for event in some]
        found.tasks, found.acts = len(self.tasks), len(self.acts)
        found.calls = sum(act["calls"] for act in self.acts.values())
        found.requests = self.book.requests.total()
        found.effects = self.book.effects.total()
        found.doubts = sum(event["type"] == "ACTIVITY_UNKNOWN" for event in events)
        found.resent = sum(act["calls"] - 1 for act in self.acts.values())
        found.answers = len(self.seen("answered"))
        found.gave_up = sum(act["decision"] == GIVE_UP for act in self.acts.values())
        found.reconciled = self.book.looks.total()
        found.assumed = sum(self.is_assumed(act) for act in self.acts.values())

    def outcomes(self) -> dict[str, str]:
        """What became of the act of each task that has but one."""
        outcomes = {}
        for task in self.tasks.values():
            acts = [act for act in self.acts.values() if act["task_seq"] == task["seq"]]
            if ACTS.get(task["workflow"]) == 1:
                key = self.connection.execute("SELECT dedup_key FROM triggers WHERE id = ?", (task["id"],)).get
                outcomes[str(key)] = self.outcome(acts[0]) if acts else "0"
        return outcomes

    def outcome(self, act: Row) -> str:
        """How often it happened, and what was done about it: `1: asked, sent again`."""
        said = []
        for made in self.decisions.get(act["seq"], []):
            match made["decided_by"], made["decision"]:
                case "policy assume_done", _:
                    said.append("taken as done")
                case "policy resend", _:
                    said.append("sent again")
                case "reconcile", "resend":
                    said.append("the provider says no, sent again")
                case "reconcile", _:
                    said.append("the provider says yes")
                case _, "happened":
                    said.append("asked, yes")
                case _, "resend" if act["status"] == "UNKNOWN":
                    said.append("asked, no")
                case _, "resend":
                    said.append("asked, no, sent again")
                case _, decision:
                    said.append(f"asked, {decision}")
        return ": ".join([f"{self.book.effects[act['idem_key']]}", *([", ".join(said)] if said else [])])

    # Words

    def is_assumed(self, act: Row) -> bool:
        """The ledger says itself that nobody knows."""
        return act["decision"] == HAPPENED and any(
            made["decided_by"] == "policy assume_done" for made in self.decisions.get(act["seq"], [])
        )

    def policy_of(self, act: Row) -> str:
        return str(act["action"]).partition(".")[0]

    def kind_of(self, act: Row) -> str:
        return str(act["action"]).split(".")[1].replace("-", " ")

    def text_of(self, act: Row) -> str:
        return str(json.loads(act["request_json"])["text"])

    def payload_of(self, task: Row) -> str:
        return str(self.connection.execute("SELECT payload_json FROM triggers WHERE id = ?", (task["id"],)).get)

    def named(self, act: Row) -> str:
        return f"{act['action']} {act['idem_key']}"

    def lost(self, said: str) -> None:
        self.verdict.losses += 1
        self.blame([said])

    def blame(self, wrong: Iterable[str]) -> None:
        self.verdict.wrong.extend(wrong)

    def seen(self, what: str) -> list[list[Any]]:
        return [[life, *more] for kind, life, *more in self.lines if kind == what]

    def rows(self, sql: str) -> list[Row]:
        cursor = self.connection.execute(sql)
        return [dict(zip([column[0] for column in cursor.description], row, strict=True)) for row in cursor]

    def by_act(self, sql: str) -> dict[int, list[Row]]:
        found: dict[int, list[Row]] = {}
        for row in self.rows(sql):
            found.setdefault(row["activity_seq"], []).append(row)
        return found
