"""The independent checker of tasks, which uses plain SQL and the event log of the tasks.

The lines that user code wrote are the evidence, and the database must agree with them. The rules of `task_never` hold
at any moment, and the rules of this module after all tasks have ended.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from craftcore.tasks.model import BESIDE
from tests.crash.task_app import EVENT_LOG, read_events
from tests.crash.task_never import impossible_states, task_states

Row = dict[str, Any]

ENDED = ("DONE", "FAILED", "CANCELLED")

RESULTS: dict[str, Callable[[str], Any]] = {
    "work": lambda name: [f"{name} {letter}" for letter in "apxy"],
    "waits": lambda name: [f"{name} between", "send", {"n": 1}, "no answer", f"reply in {name}", "late"],
    "loop": lambda name: [name, 5],
    "routed": lambda name: [f"{name} part 1", f"{name} part 2", {"to": name}],
    "parent": lambda name: [f"{name}.first part", "child", "FAILED", "CANCELLED"],
    "child": lambda name: f"{name} part",
    "shaky": lambda name: [f"{name} brittle", f"{name} hard", f"{name} last"],
    "mended": lambda name: [f"{name} before", f"{name} after"],
}
"""The expected result of a task of each workflow."""

EXPECTED_STATUS = {"broken": "FAILED", "endless": "CANCELLED"}
"""The status of a task at the end, for the workflows that do not end as DONE."""

CRASHES_OF_POISON = 3

Step = tuple[str, int, str]
"""The identity of a step: the task, the turn, and the name with the key."""


class Completed(NamedTuple):
    """The record of the attempt that completed a step, and the result of the step."""

    record: Row
    result: Any


@dataclass(slots=True, kw_only=True)
class Verdict:
    """The findings of the checker in one folder.

    cut_off    attempts that ended with their process
    run_again  functions of steps that ran once more because of such an end
    summary    the end of each task and wait without ids and times, equal for equal scenarios
    """

    tasks: int = 0
    turns: int = 0
    steps: int = 0
    waits: int = 0
    answers: int = 0
    messages: int = 0
    children: int = 0
    cut_off: int = 0
    run_again: int = 0
    poisoned: int = 0
    wrong: list[str] = field(default_factory=list)
    summary: Any = None


def check(folder: Path) -> Verdict:
    """Compare the database with the event log. Call it after a life that ended when everything was over."""
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
        self.tasks = {row["id"]: row for row in self.rows("SELECT * FROM tasks ORDER BY seq")}
        self.by_seq = {row["seq"]: row for row in self.tasks.values()}
        self.triggers = {row["id"]: row for row in self.rows("SELECT * FROM triggers ORDER BY seq")}
        self.keys = {row["dedup_key"]: row for row in self.triggers.values() if row["dedup_key"] is not None}
        self.records = {row["id"]: row for row in self.rows("SELECT * FROM executions ORDER BY seq")}
        self.waits = self.rows("SELECT * FROM waits ORDER BY seq")
        self.questions = self.rows("SELECT * FROM questions ORDER BY seq")
        self.mails = self.rows("SELECT * FROM mailbox ORDER BY seq")
        self.events = self.rows("SELECT * FROM events WHERE task_seq IS NOT NULL ORDER BY execution_seq, seq")
        self.check_file()
        self.check_accepted_triggers()
        self.check_all_ended()
        self.check_turns()
        self.check_ended_tasks()
        self.check_steps()
        self.check_emits()
        self.check_waits()
        self.check_answers()
        self.check_messages()
        self.check_replies()
        self.check_children()
        self.verdict.summary = self.summary()

    def check_file(self) -> None:
        for pragma in ("PRAGMA integrity_check", "PRAGMA foreign_key_check"):
            found = [row for row in self.connection.execute(pragma) if row != ("ok",)]
            self.report(f"{pragma}: {found}" for _ in found[:1])
        self.report(impossible_states(self.connection))
        self.report(f"life {life} found the database: {text}" for life, text in self.logged("impossible"))

    def check_accepted_triggers(self) -> None:
        for _, id, key in self.logged("accepted"):
            if id not in self.triggers:
                self.report([f"trigger {id} ({key}) was accepted, but is missing"])

    def check_all_ended(self) -> None:
        """Check that each trigger is settled, except timers of waiting tasks, and that no task had to be resumed."""
        cut_off = Counter(row["trigger_id"] for row in self.records.values() if row["ended_at"] is None)
        for id, row in self.triggers.items():
            task = self.tasks.get(row["task_id"] or id)
            match row["status"]:
                case "DONE":
                    pass
                case "PENDING" if task and task["status"] == "WAITING" and task["trigger_id"] == id:
                    pass
                case "FAILED" if row["workflow"] == "broken":
                    pass
                case "DEAD" if is_poison(row) and cut_off[id] >= CRASHES_OF_POISON:
                    self.verdict.poisoned += 1
                case status:
                    self.report([f"trigger {id} ({row['workflow']}) is {status}: {row['reason']}"])
            if row["source"] == "RESUME":
                self.report([f"task {row['task_id']} had to be resumed by {id}: its own trigger was lost"])
        for task in self.tasks.values():
            if task["status"] == "RUNNING":
                self.report([f"task {task['id']} ({task['workflow']}) is still RUNNING at the end"])
            elif task["error_code"] != "POISON":
                self.check_end(task)
        self.verdict.cut_off = sum(cut_off.values())
        self.verdict.tasks = len(self.tasks)
        self.verdict.turns = sum(task["turn"] for task in self.tasks.values())

    def check_end(self, task: Row) -> None:
        """Check the status and the result of a task.

        A chat may wait for more messages, and a victim may end before its cancellation. A routed task waits for ever
        when its message is poison. The result of a parent contains the poison of its children.
        """
        workflow, name = task["workflow"], str(self.payload(task).get("name"))
        message = f"{workflow} {name} ({task['id']}) is {task['status']}: {task['reason']}, {task['error_message']}"
        if workflow == "routed" and task["status"] == "WAITING" and name in self.names_of_poison():
            return
        if workflow in ("chat", "victim"):
            allowed = {"chat": ("DONE", "WAITING"), "victim": ("DONE", "CANCELLED")}[workflow]
            self.report([message] if task["status"] not in allowed else [])
        elif task["status"] != EXPECTED_STATUS.get(workflow, "DONE"):
            self.report([message])
        elif workflow in RESULTS and not (workflow == "parent" and self.verdict.poisoned):
            result = json.loads(task["result_json"])
            self.report([f"{message} with {result}"] if result != RESULTS[workflow](name) else [])

    def names_of_poison(self) -> set[str]:
        """Return the names in messages that became poison before a router could deliver them."""
        dead = filter(is_poison, self.triggers.values())
        return {str(json.loads(row["payload_json"] or "{}").get("to")) for row in dead}

    def check_turns(self) -> None:
        """Check that each entry of a turn has the same state: the one that the turn before returned."""
        outcomes: dict[tuple[str, int], Any] = {}
        states: dict[tuple[str, int], Any] = {}
        last: Counter[str] = Counter()
        for kind, life, *values in self.lines:
            if kind == "leave":
                task, turn, _, how, value = values
                self.check_unchanged(outcomes, (task, turn), [how, value], f"turn {turn} of {task} returned")
                continue
            if kind == "enter":
                task, turn, execution, state = values
                record = self.records.get(execution)
                if record is None or (record["task_id"], record["turn"]) != (task, turn):
                    self.report([f"turn {turn} of {task} was entered as {execution}, which is not a record of it"])
            elif kind == "found":
                task, _, turn, state, *_ = values
            else:
                continue
            self.check_unchanged(states, (task, turn), state, f"turn {turn} of {task} in life {life} had the state")
            if turn < last[task]:
                self.report([f"task {task} was at turn {last[task]}, and then in life {life} at turn {turn}"])
            last[task] = max(last[task], turn)
        for task in self.tasks.values():
            id, turn = last_turn = task["id"], task["turn"]
            state = json.loads(task["state_json"])
            self.check_unchanged(states, last_turn, state, f"turn {turn} of {id} ended with the state")
            if task["status"] == "DONE" and last_turn in outcomes:
                result = ["done", json.loads(task["result_json"] or "null")]
                self.check_unchanged(outcomes, last_turn, result, f"task {id} has the result")
        for (task, turn), state in states.items():
            before = ["continue", state] if turn > 1 else None
            if (outcomes.get((task, turn - 1)) if turn > 1 else state) != before:
                self.report([f"turn {turn} of {task} has the state {state}, which the turn before did not return"])

    def check_ended_tasks(self) -> None:
        ends: dict[str, list[Any]] = {}
        for kind, life, *values in self.lines:
            if kind == "found" and values[1] == "FAILED" and self.workflow(values[0]) == "mended":
                continue
            if kind == "found" and (values[1] in ENDED or values[0] in ends):
                message = f"task {values[0]}, which had ended, was found by life {life} as"
                self.check_unchanged(ends, values[0], values, message)
            elif kind in ("enter", "begin") and values[0] in ends:
                self.report([f"life {life} ran task {values[0]}, which had ended"])
        for task in task_states(self.connection):
            if task[0] in ends:
                self.check_unchanged(ends, task[0], task, f"task {task[0]}, which had ended, is now")

    def completed_steps(self) -> dict[Step, Completed]:
        """Return the completion of every step on record."""
        records = {record["seq"]: record for record in self.records.values()}
        completed: dict[Step, Completed] = {}
        for event in self.events:
            if event["type"] != "STEP_COMPLETED" or event["memo"].startswith("reply#"):
                continue
            step = (self.by_seq[event["task_seq"]]["id"], event["turn"], event["memo"].removeprefix("step:"))
            if step in completed:
                self.report([f"step {step} is completed twice"])
            result = json.loads(event["payload_json"])["result"]
            completed[step] = Completed(records[event["execution_seq"]], result)
        return completed

    def check_steps(self) -> None:
        """Check that the function of a step runs until its end is on record, and never after."""
        completed = self.completed_steps()
        begun, failed = Counter[Step](), Counter[Step]()
        ended = Counter[tuple[Step, str]]()
        got: set[Step] = set()
        for kind, life, *values in self.lines:
            if kind not in ("begin", "end", "fail", "got"):
                continue
            task, turn, execution, identity, *value = values
            step = (task, turn, identity)
            done, record = completed.get(step), self.records.get(execution)
            if record is None:
                self.report([f"step {step} ran in {execution}, which is not a record"])
            elif kind == "got":
                got.add(step)
                if done is None or [done.result] != value:
                    recorded = done and done.result
                    self.report([f"step {step} returned {value} in life {life}, but the record has {recorded}"])
            elif step in got:
                self.report([f"life {life} ran step {step} again after it had returned its result"])
            elif done is not None and record["seq"] > done.record["seq"]:
                self.report([f"life {life} ran step {step} in {execution} after {done.record['id']} completed it"])
            elif kind == "end" and done is not None and record["seq"] < done.record["seq"] and not _was_cut_off(record):
                self.report([f"step {step} ended in {execution}, which was not cut off, but its end is not on record"])
            begun[step] += kind == "begin"
            failed[step] += kind == "fail"
            ended[step, execution] += kind == "end"
        self.report(f"step {step} ended {n} times in {execution}" for (step, execution), n in ended.items() if n > 1)
        for step, done in completed.items():
            if not ended[step, done.record["id"]]:
                self.report([f"step {step} is completed in {done.record['id']}, where its function did not end"])
        self.verdict.steps = len(completed)
        self.verdict.run_again = sum(max(0, count - 1 - failed[step]) for step, count in begun.items())

    def check_emits(self) -> None:
        """Check that the database has each emitted trigger and each child once, and no others."""
        emitted = [json.loads(e["payload_json"])["id"] for e in self.events if e["type"] == "EMITTED"]
        children = [json.loads(e["payload_json"])["id"] for e in self.events if e["type"] == "CHILD_STARTED"]
        effects = {id: row["payload_json"] for id, row in self.triggers.items() if row["workflow"] == "effect"}
        stored_children = {
            id: (row["workflow"], row["parent_id"]) for id, row in self.tasks.items() if row["parent_id"]
        }
        if sorted(emitted) != sorted(set(effects) - set(stored_children)):
            self.report([f"recorded as emitted are {sorted(emitted)}, but the database has {sorted(effects)}"])
        if sorted(children) != sorted(stored_children):
            self.report(
                [f"recorded as children are {sorted(children)}, but the database has {sorted(stored_children)}"]
            )
        self.report(f"{effect} was emitted {n} times" for effect, n in Counter(effects.values()).items() if n > 1)
        ran = Counter(json.dumps(payload, sort_keys=True) for _, payload in self.logged("effect"))
        for payload in effects.values():
            if not ran[json.dumps(json.loads(payload), sort_keys=True)]:
                self.report([f"{payload} was emitted, but never ran"])
        notes = Counter((e["task_seq"], e["turn"], e["memo"]) for e in self.events if e["type"] == "NOTE")
        self.report(f"note {note} was recorded {count} times" for note, count in notes.items() if count > 1)
        self.verdict.children = len(children)

    def check_waits(self) -> None:
        """Check that a turn receives the same result of a wait at each entry, and continues after the wait."""
        received: dict[tuple[str, int, str], Any] = {}
        for _, task, turn, _, name, value in self.logged("received"):
            self.check_unchanged(received, (task, turn, name), value, f"wait {name} of turn {turn} of {task} returned")
        entries = {(row["trigger_id"], row["task_id"], row["turn"]) for row in self.records.values()}
        names = Counter((wait["task_seq"], wait["turn"], wait["name"]) for wait in self.waits)
        self.report(f"wait {key} was begun {count} times" for key, count in names.items() if count > 1)
        known = set()
        for wait in self.waits:
            task = self.by_seq[wait["task_seq"]]
            key = (task["id"], wait["turn"], wait["name"])
            known.add(key)
            if wait["status"] == "WAITING" or wait["resolved_by"] == "end":
                continue
            wakes = self.list_wakes(wait, task)
            if not wakes:
                self.report([f"wait {key} is over, but its task was not woken"])
            elif task["status"] != "CANCELLED" and not any(
                (wake["id"], task["id"], wait["turn"]) in entries for wake in wakes
            ):
                self.report([f"wait {key} is over, but its turn did not continue"])
            value = json.loads(wait["value_json"])
            match wait["resolved_by"]:
                case "timer":
                    if wait["due_at"] is None or wait["resolved_at"] < wait["due_at"]:
                        self.report([f"wait {key} timed out before it was due"])
                case "child":
                    pass
                case "signal" | "message":  # a message may come through the router
                    mail = [m for m in self.mails if m["wait_seq"] == wait["seq"]]
                    if [json.loads(m["payload_json"]) for m in mail] != [value] or mail[0]["event"] != wait["event"]:
                        self.report([f"wait {key} returned {value}, but its mails are {mail}"])
                case "answer":
                    answers = [q["answer"] for q in self.questions if q["wait_seq"] == wait["seq"]]
                    if answers != [value]:
                        self.report([f"wait {key} returned {value}, but its answers are {answers}"])
            is_checked = wait["kind"] == "question" or wait["resolved_by"] not in ("timer", "child")
            if is_checked and received.get(key, value) != value:
                self.report([f"wait {key} returned {value}, but its turn received {received[key]}"])
            if task["status"] == "DONE" and key not in received:
                self.report([f"wait {key} returned {value}, but its turn never received it"])
        for key, value in received.items():
            if key not in known and (key[2] != "continued" or value is not None):
                self.report([f"turn {key[1]} of {key[0]} received {value} from {key[2]}, which is not a wait"])
        self.verdict.waits = len(known)

    def list_wakes(self, wait: Row, task: Row) -> list[Row]:
        """Return the triggers that may have gone on after a wait. Their keys name the wait, the first alternative of
        `wait_any`, or for waits beside each other the first that was open."""
        turn = [other for other in self.waits if (other["task_seq"], other["turn"]) == (wait["task_seq"], wait["turn"])]
        if all(other["any_of"] != BESIDE for other in turn):
            turn = [next(other for other in turn if other["any_of"] == wait["any_of"] is not None or other is wait)]
        names = tuple(f"wake:{other['id']}" for other in turn)
        keys = [key for key in self.keys if key.rpartition(":")[0] in names or key in names]
        return [self.keys[key] for key in keys if self.keys[key]["task_id"] == task["id"]]

    def check_answers(self) -> None:
        received = {(task, turn, name): value for _, task, turn, _, name, value in self.logged("received")}
        waits = {wait["seq"]: wait for wait in self.waits}
        answers = {}
        for question in self.questions:
            task, wait = self.by_seq[question["task_seq"]], waits[question["wait_seq"]]
            if question["status"] != "ANSWERED":
                continue
            answers[question["id"]] = question["answer"]
            key = (task["id"], wait["turn"], wait["name"])
            if task["status"] == "DONE" and received.get(key) != question["answer"]:
                self.report([f"{question['answer']!r} was answered, but {key} received {received.get(key)!r}"])
        for life, id, choice in self.logged("answered"):
            if answers.get(id) != choice:
                stored = answers.get(id)
                self.report([f"life {life} accepted the answer {choice!r}, but the database has {stored!r}"])
        self.verdict.answers = len(answers)

    def check_messages(self) -> None:
        """Check that each message began a task, is in one mailbox, or is poison.

        A task reads each of its messages once. A message is emitted again when its task ended before it read it.
        """
        by_trigger = Counter(mail["trigger_id"] for mail in self.mails if mail["trigger_id"] is not None)
        by_wait = Counter(mail["wait_seq"] for mail in self.mails if mail["wait_seq"] is not None)
        self.report(f"message {id} was put into {count} mailboxes" for id, count in by_trigger.items() if count > 1)
        self.report(f"wait {seq} read {count} mails" for seq, count in by_wait.items() if count > 1)
        emitted_again = 0
        for id, row in self.triggers.items():
            if row["source"] != "MESSAGE":
                continue
            emitted_again += row["dedup_key"] is None
            began, was_delivered = id in self.tasks, by_trigger[id] == 1
            if began == was_delivered and (began or not is_poison(row)):
                self.report([f"message {id} ({row['reason']}) began a task and was delivered, or neither"])
        if emitted_again != sum(mail["status"] == "EMITTED" for mail in self.mails):
            statuses = [mail["status"] for mail in self.mails]
            self.report([f"{emitted_again} messages were emitted again, but the mails are {statuses}"])
        for task in self.tasks.values():
            read = [m for m in self.mails if m["task_seq"] == task["seq"] and m["status"] == "READ"]
            for event in {mail["event"] for mail in read}:
                order = [mail["wait_seq"] for mail in read if mail["event"] == event]
                self.report([f"task {task['id']} read its mails in another order"] if order != sorted(order) else [])
        reads = Counter(
            (chat["session_id"], text)
            for chat in self.tasks.values()
            if chat["workflow"] == "chat"
            for text in ((json.loads(chat["result_json"] or chat["state_json"]) or {}).get("texts") or ())
        )
        for key, row in self.keys.items():
            if key.startswith("message:"):
                text = json.loads(row["payload_json"])["text"]
                self.verdict.messages += 1
                if reads[row["session_id"], text] != 1 and not self.verdict.poisoned:
                    self.report([f"message {text!r} was read {reads[row['session_id'], text]} times"])
        for chat in self.tasks.values():
            state = json.loads(chat["result_json"] or chat["state_json"]) or {}
            if chat["workflow"] == "chat" and state.get("count", 0) != len(state.get("texts", ())):
                self.report([f"chat {chat['id']} counted {state['count']} of {len(state['texts'])}"])

    def check_replies(self) -> None:
        """Check that each message has the reply to its own text, also when it was emitted again, and no turn replied
        twice."""
        mails = {mail["trigger_id"]: mail for mail in self.mails if mail["trigger_id"] is not None}
        for key, row in self.keys.items():
            if not key.startswith("message:") or self.verdict.poisoned:
                continue
            id, text = row["id"], json.loads(row["payload_json"])["text"]
            while id in mails and mails[id]["emitted_as"] is not None:
                id = mails[id]["emitted_as"]
            found = (self.tasks.get(id) or mails.get(id) or {}).get("reply_json")
            if found != json.dumps(f"re {text}"):
                self.report([f"message {text!r} has the reply {found}"])
        replies = Counter((e["task_seq"], e["turn"]) for e in self.events if (e["memo"] or "").startswith("reply#"))
        self.report(f"turn {turn} replied {count} times" for turn, count in replies.items() if count > 1)

    def check_children(self) -> None:
        for wait in self.waits:
            if wait["kind"] != "child" or wait["resolved_by"] != "child":
                continue
            child, reported = self.tasks[wait["event"]], json.loads(wait["value_json"])
            code = (reported["error"] or {}).get("code")
            result = json.loads(child["result_json"] or "null")
            if [reported["status"], reported["result"], code] != [child["status"], result, child["error_code"]]:
                self.report(
                    [f"a parent received {reported} from {child['id']}, which is {child['status']} with {result}"]
                )

    # The summary

    def summary(self) -> Any:
        """Return the end of all tasks, waits, steps, questions and effects, without ids and times.

        The texts of a chat are sorted: after the first chat of a session, a message may reach one task or the next.
        """
        names = {id: self.name(task) for id, task in self.tasks.items()}
        unordered = {"chat"}

        def replace_ids(value: Any) -> Any:
            text = json.dumps(value, sort_keys=True)
            return json.loads(re.sub("|".join(map(re.escape, names)) or "$^", lambda m: names[m[0]], text))

        tasks = []
        for task in self.tasks.values():
            state, result = json.loads(task["state_json"]), json.loads(task["result_json"] or "null")
            for value in (state, result):
                if task["workflow"] in unordered and value:
                    value["texts"].sort()
            tasks.append([names[task["id"]], task["status"], task["turn"], state, result, task["error_code"]])
        waits = [
            [
                names[self.by_seq[w["task_seq"]]["id"]],
                *(w[column] for column in ("turn", "name", "kind", "event", "status", "resolved_by")),
                None if self.by_seq[w["task_seq"]]["workflow"] in unordered else json.loads(w["value_json"] or "null"),
            ]
            for w in self.waits
        ]
        steps = [
            [names[self.by_seq[e["task_seq"]]["id"]], e["turn"], e["type"], e["memo"]]
            for e in self.events
            if e["memo"] is not None and e["type"] != "STEP_FAILED"  # the number of failures depends on the kill
        ]
        questions = [
            [names[self.by_seq[q["task_seq"]]["id"]], q["question"], q["status"], q["answer"]] for q in self.questions
        ]
        effects = [
            [json.loads(t["payload_json"]), t["status"]] for t in self.triggers.values() if t["workflow"] == "effect"
        ]
        parts = (tasks, waits, steps, questions, effects)
        return replace_ids(
            [sorted(part, key=lambda item: json.dumps(replace_ids(item), sort_keys=True)) for part in parts]
        )

    def workflow(self, task_id: str) -> str | None:
        return self.tasks[task_id]["workflow"] if task_id in self.tasks else None

    def payload(self, task: Row) -> dict[str, Any]:
        """Return the payload of the trigger that began the task."""
        payload: dict[str, Any] = json.loads(self.triggers.get(task["id"], {}).get("payload_json", "{}"))
        return payload

    def name(self, task: Row) -> str:
        """Return a name that the task has in every run of the scenario, unlike its id."""
        payload = self.payload(task)
        if task["workflow"] == "chat":
            before = [
                t for t in self.tasks.values() if t["session_id"] == task["session_id"] and t["seq"] < task["seq"]
            ]
            return f"chat {len(before)} of {task['session_id']}"
        return f"{task['workflow']} {payload.get('name') or payload.get('item')}"

    # Access to the evidence

    def check_unchanged(self, known: dict[Any, Any], key: Any, value: Any, message: str) -> None:
        """Report a value that differs from the first value of this key."""
        if known.setdefault(key, value) != value:
            self.report([f"{message} {value} after {known[key]}"])

    def logged(self, kind: str) -> Iterable[list[Any]]:
        return [line[1:] for line in self.lines if line[0] == kind]

    def report(self, complaints: Iterable[str]) -> None:
        self.verdict.wrong.extend(complaints)

    def rows(self, sql: str) -> list[Row]:
        cursor = self.connection.execute(sql)
        first = cursor.fetchone()
        if first is None:
            return []
        names = [column[0] for column in cursor.get_description()]
        return [dict(zip(names, row, strict=True)) for row in (first, *cursor)]


def is_poison(trigger: Row) -> bool:
    return (trigger["status"], trigger["reason"]) == ("DEAD", "poison")


def _was_cut_off(record: Row) -> bool:
    """Return whether the attempt ended by a kill or by an orderly stop."""
    return record["ended_at"] is None or record["status"] == "incomplete"
