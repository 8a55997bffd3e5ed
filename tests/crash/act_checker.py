"""The independent checker of irreversible actions, which compares the provider's book with the ledger in plain SQL.

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
from tests.crash.task_app import EVENT_LOG, read_events
from tests.crash.task_never import impossible_states

Row = dict[str, Any]

ENDED = ("DONE", "FAILED", "CANCELLED")

NEVER = {
    "act {} has a decision, but is not in the ledger": """
        SELECT activity_seq FROM activity_decisions WHERE activity_seq NOT IN (SELECT seq FROM activity_log)
    """,
}
"""A message and a query for each impossible state. A row of the query is a fault, and fills the message."""


@dataclass(slots=True, kw_only=True)
class Verdict:
    """The findings of the checker in one folder.

    doubts      calls after which it was unknown whether the act had happened
    outcomes    the outcome of the act of each task with a single act, by the key of its trigger
    duplicates  effects that occurred again without a decision
    losses      acts that are DONE without an effect, or that stay undecided without a question
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


COUNTS = [name.name for name in fields(Verdict) if name.type == "int"]


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
        self.lines = list(read_events(folder / EVENT_LOG))
        self.book = Book.read(folder)
        self.tasks = {row["seq"]: row for row in self.rows("SELECT * FROM tasks")}
        self.acts = {row["idem_key"]: row for row in self.rows("SELECT * FROM activity_log ORDER BY seq")}
        self.decisions = self.by_act("SELECT * FROM activity_decisions ORDER BY seq")
        self.questions = self.by_act("SELECT * FROM questions WHERE kind = 'activity' ORDER BY seq")
        self.events = self.history()
        self.check_file()
        self.check_all_ended()
        self.check_requests()
        for act in self.acts.values():
            self.check_effects(act)
            self.check_status(act)
            self.check_repeated_calls(act)
            self.check_history(act)
            self.check_doubts(act)
        self.check_number_of_acts()
        self.check_results()
        self.count_all()
        self.verdict.outcomes = self.outcomes()

    # The evidence

    def history(self) -> dict[int, list[Row]]:
        """Return the events of each act, in order."""
        history: dict[int, list[Row]] = {}
        for event in self.rows("SELECT * FROM events WHERE type LIKE 'ACTIVITY_%' ORDER BY execution_seq, seq"):
            history.setdefault(event["activity_seq"], []).append({**event, **json.loads(event["payload_json"])})
        return history

    def check_file(self) -> None:
        for pragma in ("PRAGMA integrity_check", "PRAGMA foreign_key_check"):
            found = [row for row in self.connection.execute(pragma) if row != ("ok",)]
            self.report(f"{pragma}: {found}" for _ in found[:1])
        self.report(impossible_states(self.connection))
        self.report(message.format(*row) for message, sql in NEVER.items() for row in self.connection.execute(sql))
        self.report(f"in life {life}: {text}" for life, text in self.logged("impossible"))

    def check_all_ended(self) -> None:
        for task in self.tasks.values():
            if task["status"] not in ENDED:
                self.report_loss(f"task {task['id']} ({task['workflow']}) is still {task['status']} at the end")
            elif task["status"] == "FAILED":
                self.report([f"task {task['id']} ({task['workflow']}) FAILED: {task['error_code']} {task['reason']}"])
            elif task["status"] == "CANCELLED" and CANCEL not in self.payload_of(task):
                self.report([f"task {task['id']} ({task['workflow']}) is CANCELLED, but has no cancel fault"])
        for row in self.rows("SELECT * FROM triggers WHERE status IN ('PENDING', 'CLAIMED', 'DEAD')"):
            self.report([f"trigger {row['id']} is {row['status']}: {row['reason']}"])
        self.report(f"the provider has a pending request for {key}" for key in self.book.pending)

    def check_requests(self) -> None:
        """Check that the ledger has the key and the arguments of each request to the provider."""
        for key in self.book.requests:
            if key not in self.acts:
                self.report([f"the provider was called with {key}, a key that is not in the ledger"])
        for key, all_arguments in self.book.arguments.items():
            act = self.acts.get(key)
            if act is None or act["request_json"] is None:
                continue
            recorded = json.loads(act["request_json"])
            for arguments in all_arguments:
                if arguments != {name: recorded[name] for name in arguments}:
                    self.report([f"{key} had the effect {arguments}, but the ledger has {recorded}"])

    # Each act

    def check_effects(self, act: Row) -> None:
        effects = self.book.effects[act["idem_key"]]
        if effects > 1:  # a person never decides to repeat an act that happened
            self.verdict.duplicates += effects - 1
            self.report([f"{self.name_of(act)} happened {effects} times without a decision"])

    def check_status(self, act: Row) -> None:
        effects = self.book.effects[act["idem_key"]]
        match act["status"]:
            case "INTENT":
                self.report_loss(f"{self.name_of(act)} is INTENT, but no call is in progress")
            case "UNKNOWN" if act["decision"] is None:
                self.report_loss(f"{self.name_of(act)} is UNKNOWN, but has no decision")
            case "UNKNOWN" if act["decision"] == RESEND and self.tasks[act["task_seq"]]["status"] == "DONE":
                self.report_loss(f"{self.name_of(act)} had to be sent again, but its task ended without the call")
            case "DONE" if not effects and not self.is_assumed(act):
                self.report_loss(f"{self.name_of(act)} is DONE, but it did not happen")
            case "FAILED" if effects:
                self.report([f"{self.name_of(act)} is FAILED, but it happened"])
        if self.is_assumed(act) and self.policy_of(act) != "assume_done":
            self.report([f"{self.name_of(act)} was assumed to have happened, but its policy is {self.policy_of(act)}"])
        reference = self.book.references.get(act["idem_key"])
        if act["provider_ref"] not in (None, reference):
            self.report([f"{self.name_of(act)} has the reference {act['provider_ref']} instead of {reference}"])

    def check_repeated_calls(self, act: Row) -> None:
        """Check that each further call follows a decision, or a proof that the call before had no effect.

        Only the policy of the act may decide, and only while the provider knows the key.
        """
        events, decisions = self.events.get(act["seq"], []), self.decisions.get(act["seq"], [])
        repeated = sum(event["type"] == "ACTIVITY_INTENT" and event["attempt"] > 1 for event in events)
        proven = sum(event["type"] == "ACTIVITY_FAILED" for event in events)
        allowed = sum(decision["decision"] == RESEND for decision in decisions) + proven
        if repeated > allowed:
            self.report([f"{self.name_of(act)} was sent again {repeated} times, but {allowed} calls were allowed"])
        policy, window = self.policy_of(act), WINDOWS.get(self.kind_of(act))
        for decision in decisions:
            if decision["decided_by"] not in (PERSON, policy, f"policy {policy}"):
                self.report(
                    [f"{self.name_of(act)} was decided by {decision['decided_by']}, but its policy is {policy}"]
                )
            if (
                decision["decided_by"] == "policy resend"
                and window
                and decision["decided_at"] > act["first_call_at"] + window
            ):
                self.report([f"{self.name_of(act)} was sent again after the window of its key"])
        if self.book.requests[act["idem_key"]] > act["calls"]:
            requests = self.book.requests[act["idem_key"]]
            self.report([f"{self.name_of(act)} has {requests} requests, but {act['calls']} calls in the ledger"])

    def check_history(self, act: Row) -> None:
        types = [event["type"] for event in self.events.get(act["seq"], [])]
        if types.count("ACTIVITY_INTENT") != act["calls"]:
            self.report([f"{self.name_of(act)} has {act['calls']} calls, but its history is {types}"])
        decisions = self.decisions.get(act["seq"], [])
        resolved = sum(decision["decided_by"] in ("reconcile", "policy assume_done") for decision in decisions)
        if types.count("ACTIVITY_RESOLVED") != resolved:
            self.report([f"{self.name_of(act)} was decided {decisions}, but its history is {types}"])
        answers = [choice for _, key, choice, _ in self.logged("answered") if key == act["idem_key"]]
        by_person = [decision["decision"] for decision in decisions if decision["decided_by"] == PERSON]
        on_record = [question["answer"] for question in self.questions.get(act["seq"], []) if question["answer"]]
        if (
            not len(by_person) == len(on_record) <= len(answers)
            or {*by_person} != {*on_record}
            or {*by_person} - {*answers}
        ):
            self.report(
                [f"{self.name_of(act)}: a person answered {answers}, but the record has {by_person}, {on_record}"]
            )
        if any(question["status"] == "OPEN" for question in self.questions.get(act["seq"], [])):
            self.report_loss(f"{self.name_of(act)}: a question is still open")

    def check_doubts(self, act: Row) -> None:
        """Check that a decision ends each doubt: a later call without an effect proves nothing about an earlier one."""
        doubted_at = None
        decisions = self.decisions.get(act["seq"], [])
        decided_at = [
            decision["decided_at"] for decision in decisions if decision["decided_by"] in (PERSON, "reconcile")
        ]
        for event in self.events.get(act["seq"], []):
            if event["type"] == "ACTIVITY_UNKNOWN":
                doubted_at = event["at"]
            if (
                event["type"] == "ACTIVITY_FAILED"
                and doubted_at
                and not any(doubted_at <= at <= event["at"] for at in decided_at)
            ):
                self.report([f"{self.name_of(act)} was in doubt, and then FAILED: {event['reason']}"])

    # The results of tasks

    def check_number_of_acts(self) -> None:
        rows = Counter(act["task_id"] for act in self.acts.values())
        for task in self.tasks.values():
            payload = json.loads(self.payload_of(task))
            expected = len(payload["acts"]) if "acts" in payload else ACTS[task["workflow"]]
            count = rows[task["id"]]
            if count > expected or (count < expected and task["status"] == "DONE"):
                self.report_loss(
                    f"task {task['id']} ({task['workflow']}) is {task['status']} with {count} acts of {expected}"
                )

    def check_results(self) -> None:
        received: dict[tuple[str, str], Any] = {}
        for _, task, _, text, result in self.logged("got"):
            acts = [act for act in self.acts.values() if act["task_id"] == task and self.text_of(act) == text]
            if not acts:
                self.report_loss(f"task {task} received {result!r} for {text!r}, which has no act in the ledger")
            elif not any(self.is_allowed(act, result) for act in acts):
                self.report([f"{self.name_of(acts[0])} is {acts[0]['status']}, but its workflow received {result!r}"])
            if len(acts) == 1 and received.setdefault((task, text), result) != result:
                self.report([f"task {task} received {result!r} for {text!r} after {received[task, text]!r}"])

    def is_allowed(self, act: Row, result: Any) -> bool:
        """Return whether a workflow may have received this result of the act."""
        status, decision = act["status"], act["decision"]
        reference = self.book.references.get(act["idem_key"])
        allowed: dict[Any, bool] = {
            reference: status == "DONE",
            GAVE_UP: (status, decision) == ("UNKNOWN", GIVE_UP),
            REFUSED: status == "FAILED",
            None: (status, decision) == ("DONE", HAPPENED),  # the person does not know the reference
        }
        return allowed.get(result, False)

    def count_all(self) -> None:
        found, events = self.verdict, [event for history in self.events.values() for event in history]
        found.tasks, found.acts = len(self.tasks), len(self.acts)
        found.calls = sum(act["calls"] for act in self.acts.values())
        found.requests = self.book.requests.total()
        found.effects = self.book.effects.total()
        found.doubts = sum(event["type"] == "ACTIVITY_UNKNOWN" for event in events)
        found.resent = sum(act["calls"] - 1 for act in self.acts.values())
        found.answers = len(self.logged("answered"))
        found.gave_up = sum(act["decision"] == GIVE_UP for act in self.acts.values())
        found.reconciled = self.book.looks.total()
        found.assumed = sum(self.is_assumed(act) for act in self.acts.values())

    def outcomes(self) -> dict[str, str]:
        """Return the outcome of the act of each task with a single act."""
        outcomes = {}
        for task in self.tasks.values():
            acts = [act for act in self.acts.values() if act["task_seq"] == task["seq"]]
            if ACTS.get(task["workflow"]) == 1:
                key = self.connection.execute("SELECT dedup_key FROM triggers WHERE id = ?", (task["id"],)).get
                outcomes[str(key)] = self.outcome(acts[0]) if acts else "0"
        return outcomes

    def outcome(self, act: Row) -> str:
        """Return how often the act happened, and the decisions about it: `1: asked, no, sent again`."""
        steps = []
        for decision in self.decisions.get(act["seq"], []):
            match decision["decided_by"], decision["decision"]:
                case "policy assume_done", _:
                    steps.append("taken as done")
                case "policy resend", _:
                    steps.append("sent again")
                case "reconcile", "resend":
                    steps.append("the provider says no, sent again")
                case "reconcile", _:
                    steps.append("the provider says yes")
                case _, "happened":
                    steps.append("asked, yes")
                case _, "resend" if act["status"] == "UNKNOWN":
                    steps.append("asked, no")
                case _, "resend":
                    steps.append("asked, no, sent again")
                case _, choice:
                    steps.append(f"asked, {choice}")
        return ": ".join([f"{self.book.effects[act['idem_key']]}", *([", ".join(steps)] if steps else [])])

    # Access to the evidence

    def is_assumed(self, act: Row) -> bool:
        """Return whether the policy decided that the act happened, without knowledge."""
        return act["decision"] == HAPPENED and any(
            decision["decided_by"] == "policy assume_done" for decision in self.decisions.get(act["seq"], [])
        )

    def policy_of(self, act: Row) -> str:
        return str(act["action"]).partition(".")[0]

    def kind_of(self, act: Row) -> str:
        return str(act["action"]).split(".")[1].replace("-", " ")

    def text_of(self, act: Row) -> str:
        return str(json.loads(act["request_json"])["text"])

    def payload_of(self, task: Row) -> str:
        return str(self.connection.execute("SELECT payload_json FROM triggers WHERE id = ?", (task["id"],)).get)

    def name_of(self, act: Row) -> str:
        return f"{act['action']} {act['idem_key']}"

    def report_loss(self, message: str) -> None:
        self.verdict.losses += 1
        self.report([message])

    def report(self, messages: Iterable[str]) -> None:
        self.verdict.wrong.extend(messages)

    def logged(self, kind: str) -> list[list[Any]]:
        return [[life, *values] for logged_kind, life, *values in self.lines if logged_kind == kind]

    def rows(self, sql: str) -> list[Row]:
        cursor = self.connection.execute(sql)
        return [dict(zip([column[0] for column in cursor.description], row, strict=True)) for row in cursor]

    def by_act(self, sql: str) -> dict[int, list[Row]]:
        found: dict[int, list[Row]] = {}
        for row in self.rows(sql):
            found.setdefault(row["activity_seq"], []).append(row)
        return found
