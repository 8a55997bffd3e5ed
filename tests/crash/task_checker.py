"""The independent checker of tasks: plain SQL and one text file, without code of craftcore.

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

from tests.crash.task_app import SEEN, lines_of
from tests.crash.task_never import impossible, standing

Row = dict[str, Any]

ENDED = ("DONE", "FAILED", "CANCELLED")

RESULTS: dict[str, Callable[[str], Any]] = {
    "work": lambda name: [f"{name} {letter}" for letter in "apxy"],
    "waits": lambda name: [f"{name} between", "send", {"n": 1}, "nobody", f"reply in {name}", "late"],
    "loop": lambda name: [name, 5],
    "routed": lambda name: [f"{name} part 1", f"{name} part 2", {"to": name}],
    "parent": lambda name: [f"{name}.first part", "child", "FAILED", "CANCELLED"],
    "child": lambda name: f"{name} part",
    "shaky": lambda name: [f"{name} brittle", f"{name} hard", f"{name} last"],
    "mended": lambda name: [f"{name} before", f"{name} after"],
}
"""What a task of each workflow comes to."""

OTHERWISE = {"broken": "FAILED", "endless": "CANCELLED"}
CRASHES_OF_POISON = 3

Step = tuple[str, int, str]
"""(task, turn, name and key)"""


class Completed(NamedTuple):
    """In which attempt a step was completed, and what it brought."""

    record: Row
    result: Any


@dataclass(slots=True, kw_only=True)
class Verdict:
    """What the checker found in one folder.

    cut_off    attempts that ended with their process
    run_again  functions of steps that ran once more for that
    story      how everything ended, without ids and moments: the same for all who lived through the same
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
    story: Any = None


def check(folder: Path) -> Verdict:
    """Compare the file with what was seen. Call it after a life that ended when everything was over."""
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
        self.tasks = {row["id"]: row for row in self.rows("SELECT * FROM tasks ORDER BY seq")}
        self.by_seq = {row["seq"]: row for row in self.tasks.values()}
        self.triggers = {row["id"]: row for row in self.rows("SELECT * FROM triggers ORDER BY seq")}
        self.keys = {row["dedup_key"]: row for row in self.triggers.values() if row["dedup_key"] is not None}
        self.records = {row["id"]: row for row in self.rows("SELECT * FROM executions ORDER BY seq")}
        self.waits = self.rows("SELECT * FROM waits ORDER BY seq")
        self.questions = self.rows("SELECT * FROM questions ORDER BY seq")
        self.mails = self.rows("SELECT * FROM mailbox ORDER BY seq")
        self.events = self.rows("SELECT * FROM events WHERE task_seq IS NOT NULL ORDER BY execution_seq, seq")
        self.file_is_sound()
        self.nothing_accepted_is_lost()
        self.everything_is_over()
        self.turns_follow_each_other()
        self.what_ended_stays_as_it_is()
        self.steps_run_once()
        self.what_is_emitted_is_emitted_once()
        self.waits_end_once()
        self.answers_are_heard()
        self.messages_are_read_once()
        self.parents_are_told()
        self.verdict.story = self.story()

    def file_is_sound(self) -> None:
        for pragma in ("PRAGMA integrity_check", "PRAGMA foreign_key_check"):
            found = [row for row in self.connection.execute(pragma) if row != ("ok",)]
            self.blame(f"{pragma}: {found}" for _ in found[:1])
        self.blame(impossible(self.connection))
        self.blame(f"as life {life} found the file: {text}" for life, text in self.seen("impossible"))

    def nothing_accepted_is_lost(self) -> None:
        for _, id, key in self.seen("accepted"):
            if id not in self.triggers:
                self.blame([f"trigger {id} ({key}) was accepted, and is gone"])

    def everything_is_over(self) -> None:
        """Each trigger is settled, but the timers of those who wait. Nothing had to be resumed: nothing was lost."""
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
                case "DEAD" if died_of_poison(row) and cut_off[id] >= CRASHES_OF_POISON:
                    self.verdict.poisoned += 1
                case status:
                    self.blame([f"trigger {id} ({row['workflow']}) is {status}: {row['reason']}"])
            if row["source"] == "RESUME":
                self.blame([f"task {row['task_id']} had to be resumed by {id}: its own trigger was lost"])
        for task in self.tasks.values():
            if task["status"] == "RUNNING":
                self.blame([f"task {task['id']} ({task['workflow']}) is RUNNING, and everything is over"])
            elif task["error_code"] != "POISON":
                self.comes_to_what_it_must(task)
        self.verdict.cut_off = sum(cut_off.values())
        self.verdict.tasks = len(self.tasks)
        self.verdict.turns = sum(task["turn"] for task in self.tasks.values())

    def comes_to_what_it_must(self, task: Row) -> None:
        """A parent hears of its children's poison; a chat waits for more; a victim may have been quicker.

        The message that a routed task waits for may have died of poison.
        """
        workflow, name = task["workflow"], str(self.payload(task).get("name"))
        said = f"{workflow} {name} ({task['id']}) is {task['status']}: {task['reason']}, {task['error_message']}"
        if workflow == "routed" and task["status"] == "WAITING" and name in self.died_on_their_way():
            return
        if workflow in ("chat", "victim"):
            allowed = {"chat": ("DONE", "WAITING"), "victim": ("DONE", "CANCELLED")}[workflow]
            self.blame([said] if task["status"] not in allowed else [])
        elif task["status"] != OTHERWISE.get(workflow, "DONE"):
            self.blame([said])
        elif workflow in RESULTS and not (workflow == "parent" and self.verdict.poisoned):
            result = json.loads(task["result_json"])
            self.blame([f"{said} with {result}"] if result != RESULTS[workflow](name) else [])

    def died_on_their_way(self) -> set[str]:
        """Return the names that messages were for which died of poison before a router could send them on."""
        dead = filter(died_of_poison, self.triggers.values())
        return {str(json.loads(row["payload_json"] or "{}").get("to")) for row in dead}

    def turns_follow_each_other(self) -> None:
        """Each turn has one state, however often it is entered: what the one before it left."""
        left: dict[tuple[str, int], Any] = {}
        states: dict[tuple[str, int], Any] = {}
        last: Counter[str] = Counter()
        for what, life, *more in self.lines:
            if what == "leave":
                task, turn, _, how, value = more
                self.same(left, (task, turn), [how, value], f"turn {turn} of {task} returned")
                continue
            if what == "enter":
                task, turn, execution, state = more
                record = self.records.get(execution)
                if record is None or (record["task_id"], record["turn"]) != (task, turn):
                    self.blame([f"turn {turn} of {task} was entered as {execution}, which is no record of it"])
            elif what == "found":
                task, _, turn, state, *_ = more
            else:
                continue
            self.same(states, (task, turn), state, f"turn {turn} of {task}, in life {life}, had the state")
            if turn < last[task]:
                self.blame([f"task {task} was at turn {last[task]}, and in life {life} at {turn}"])
            last[task] = max(last[task], turn)
        for task in self.tasks.values():
            now = (task["id"], task["turn"])
            self.same(states, now, json.loads(task["state_json"]), f"turn {now[1]} of {now[0]} ended with the state")
            if task["status"] == "DONE" and now in left:
                result = ["done", json.loads(task["result_json"] or "null")]
                self.same(left, now, result, f"task {now[0]} has the result")
        for (task, turn), state in states.items():
            before = ["continue", state] if turn > 1 else None
            if (left.get((task, turn - 1)) if turn > 1 else state) != before:
                self.blame([f"turn {turn} of {task} has the state {state}, and the one before it left something else"])

    def what_ended_stays_as_it_is(self) -> None:
        ends: dict[str, list[Any]] = {}
        for what, life, *more in self.lines:
            if what == "found" and more[1] == "FAILED" and self.workflow(more[0]) == "mended":
                continue
            if what == "found" and (more[1] in ENDED or more[0] in ends):
                self.same(ends, more[0], more, f"task {more[0]}, which had ended, was found in life {life} as")
            elif what in ("enter", "begin") and more[0] in ends:
                self.blame([f"task {more[0]} had ended, and life {life} ran it"])
        for task in standing(self.connection):
            if task[0] in ends:
                self.same(ends, task[0], task, f"task {task[0]}, which had ended, is now")

    def completed(self) -> dict[Step, Completed]:
        """Every step on record."""
        records = {record["seq"]: record for record in self.records.values()}
        completed: dict[Step, Completed] = {}
        for event in self.events:
            if event["type"] != "STEP_COMPLETED":
                continue
            step = (self.by_seq[event["task_seq"]]["id"], event["turn"], event["memo"].removeprefix("step:"))
            if step in completed:
                self.blame([f"step {step} is completed twice"])
            result = json.loads(event["payload_json"])["result"]
            completed[step] = Completed(records[event["execution_seq"]], result)
        return completed

    def steps_run_once(self) -> None:
        """The function of a step runs until its end is on record, and never after."""
        completed = self.completed()
        begun, failed = Counter[Step](), Counter[Step]()
        ended = Counter[tuple[Step, str]]()
        got: set[Step] = set()
        for what, life, *more in self.lines:
            if what not in ("begin", "end", "fail", "got"):
                continue
            task, turn, execution, identity, *value = more
            step = (task, turn, identity)
            done, record = completed.get(step), self.records.get(execution)
            if record is None:
                self.blame([f"step {step} ran in {execution}, which is no record"])
            elif what == "got":
                got.add(step)
                if done is None or [done.result] != value:
                    self.blame([f"step {step} brought {value} in life {life}, and on record is {done and done.result}"])
            elif step in got:
                self.blame([f"life {life} ran step {step} although its result was there"])
            elif done is not None and record["seq"] > done.record["seq"]:
                self.blame([f"life {life} ran step {step} in {execution}, and {done.record['id']} had completed it"])
            elif what == "end" and done is not None and record["seq"] < done.record["seq"] and not _was_cut_off(record):
                self.blame([f"step {step} ended in {execution}, which nobody stopped, and that is not on record"])
            begun[step] += what == "begin"
            failed[step] += what == "fail"
            ended[step, execution] += what == "end"
        self.blame(f"step {step} ended {n} times in {execution}" for (step, execution), n in ended.items() if n > 1)
        for step, done in completed.items():
            if not ended[step, done.record["id"]]:
                self.blame([f"step {step} is completed in {done.record['id']}, where its function did not end"])
        self.verdict.steps = len(completed)
        self.verdict.run_again = sum(max(0, count - 1 - failed[step]) for step, count in begun.items())

    def what_is_emitted_is_emitted_once(self) -> None:
        """What a turn emitted is in the file once, and was emitted by just that."""
        emitted = [json.loads(e["payload_json"])["id"] for e in self.events if e["type"] == "EMITTED"]
        children = [json.loads(e["payload_json"])["id"] for e in self.events if e["type"] == "CHILD_STARTED"]
        effects = {id: row["payload_json"] for id, row in self.triggers.items() if row["workflow"] == "effect"}
        born = {id: (row["workflow"], row["parent_id"]) for id, row in self.tasks.items() if row["parent_id"]}
        if sorted(emitted) != sorted(set(effects) - set(born)):
            self.blame([f"on record as emitted are {sorted(emitted)}, in the file are {sorted(effects)}"])
        if sorted(children) != sorted(born):
            self.blame([f"on record as children are {sorted(children)}, in the file are {sorted(born)}"])
        self.blame(f"{what} was emitted {n} times" for what, n in Counter(effects.values()).items() if n > 1)
        ran = Counter(json.dumps(payload, sort_keys=True) for _, payload in self.seen("effect"))
        for payload in effects.values():
            if not ran[json.dumps(json.loads(payload), sort_keys=True)]:
                self.blame([f"{payload} was emitted, and never ran"])
        notes = Counter((e["task_seq"], e["turn"], e["memo"]) for e in self.events if e["type"] == "NOTE")
        self.blame(f"note {note} was taken {count} times" for note, count in notes.items() if count > 1)
        self.verdict.children = len(children)

    def waits_end_once(self) -> None:
        """What a wait brought is what the turn heard, each time it came by; and the turn did go on."""
        heard: dict[tuple[str, int, str], Any] = {}
        for _, task, turn, _, name, value in self.seen("heard"):
            self.same(heard, (task, turn, name), value, f"wait {name} of turn {turn} of {task} brought")
        entries = {(row["trigger_id"], row["task_id"], row["turn"]) for row in self.records.values()}
        names = Counter((wait["task_seq"], wait["turn"], wait["name"]) for wait in self.waits)
        self.blame(f"wait {key} was begun {count} times" for key, count in names.items() if count > 1)
        known = set()
        for wait in self.waits:
            task = self.by_seq[wait["task_seq"]]
            key = (task["id"], wait["turn"], wait["name"])
            known.add(key)
            if wait["status"] == "WAITING" or wait["resolved_by"] == "end":
                continue
            wake = self.keys.get(f"wake:{self.find_first(wait)['id']}")
            if wake is None or wake["task_id"] != task["id"]:
                self.blame([f"wait {key} is over, and nothing was woken"])
            elif (wake["id"], task["id"], wait["turn"]) not in entries and task["status"] != "CANCELLED":
                self.blame([f"wait {key} is over, and its turn did not go on"])
            value = json.loads(wait["value_json"])
            match wait["resolved_by"]:
                case "timer":
                    if wait["due_at"] is None or wait["resolved_at"] < wait["due_at"]:
                        self.blame([f"wait {key} ended with time before it was time"])
                case "child":
                    pass
                case "signal" | "message":  # or what a router sent to it
                    mail = [m for m in self.mails if m["wait_seq"] == wait["seq"]]
                    if [json.loads(m["payload_json"]) for m in mail] != [value] or mail[0]["event"] != wait["event"]:
                        self.blame([f"wait {key} brought {value}, and its mails are {mail}"])
                case "answer":
                    answers = [q["answer"] for q in self.questions if q["wait_seq"] == wait["seq"]]
                    if answers != [value]:
                        self.blame([f"wait {key} brought {value}, and the answers to it are {answers}"])
            as_it_is = wait["kind"] == "question" or wait["resolved_by"] not in ("timer", "child")
            if as_it_is and heard.get(key, value) != value:
                self.blame([f"wait {key} brought {value}, and its turn heard {heard[key]}"])
            if task["status"] == "DONE" and key not in heard:
                self.blame([f"wait {key} brought {value}, and its turn never heard it"])
        for key, value in heard.items():
            if key not in known and (key[2] != "continued" or value is not None):
                self.blame([f"turn {key[1]} of {key[0]} heard {value} from {key[2]}, which is no wait"])
        self.verdict.waits = len(known)

    def find_first(self, wait: Row) -> Row:
        """Return the wait by which its task is woken: of several, the first that was named."""
        if wait["any_of"] is None:
            return wait
        same = ("task_seq", "turn", "any_of")
        return next(other for other in self.waits if all(other[name] == wait[name] for name in same))

    def answers_are_heard(self) -> None:
        heard = {(task, turn, name): value for _, task, turn, _, name, value in self.seen("heard")}
        waits = {wait["seq"]: wait for wait in self.waits}
        answers = {}
        for question in self.questions:
            task, wait = self.by_seq[question["task_seq"]], waits[question["wait_seq"]]
            if question["status"] != "ANSWERED":
                continue
            answers[question["id"]] = question["answer"]
            key = (task["id"], wait["turn"], wait["name"])
            if task["status"] == "DONE" and heard.get(key) != question["answer"]:
                self.blame([f"{question['answer']!r} was answered, and {key} heard {heard.get(key)!r}"])
        for life, id, choice in self.seen("answered"):
            if answers.get(id) != choice:
                self.blame([f"{choice!r} was taken as the answer in life {life}, and on file is {answers.get(id)!r}"])
        self.verdict.answers = len(answers)

    def messages_are_read_once(self) -> None:
        """Each message is in one mailbox, or began a task, or died before; read once, or emitted anew when its task had
        ended."""
        by_trigger = Counter(mail["trigger_id"] for mail in self.mails if mail["trigger_id"] is not None)
        by_wait = Counter(mail["wait_seq"] for mail in self.mails if mail["wait_seq"] is not None)
        self.blame(f"message {id} was put into {count} mailboxes" for id, count in by_trigger.items() if count > 1)
        self.blame(f"wait {seq} read {count} mails" for seq, count in by_wait.items() if count > 1)
        anew = 0
        for id, row in self.triggers.items():
            if row["source"] != "MESSAGE":
                continue
            anew += row["dedup_key"] is None
            began, was_delivered = id in self.tasks, by_trigger[id] == 1
            if began == was_delivered and (began or not died_of_poison(row)):
                self.blame([f"message {id} ({row['reason']}) began a task and was delivered, or neither"])
        if anew != sum(mail["status"] == "EMITTED" for mail in self.mails):
            self.blame([f"{anew} messages came anew; {[mail['status'] for mail in self.mails]} are the mails"])
        for task in self.tasks.values():
            read = [m for m in self.mails if m["task_seq"] == task["seq"] and m["status"] == "READ"]
            for event in {mail["event"] for mail in read}:
                order = [mail["wait_seq"] for mail in read if mail["event"] == event]
                self.blame([f"task {task['id']} read its mails in another order"] if order != sorted(order) else [])
        said = Counter(
            (chat["session_id"], text)
            for chat in self.tasks.values()
            if chat["workflow"] == "chat"
            for text in ((json.loads(chat["result_json"] or chat["state_json"]) or {}).get("said") or ())
        )
        for key, row in self.keys.items():
            if key.startswith("message:"):
                text = json.loads(row["payload_json"])["text"]
                self.verdict.messages += 1
                if said[row["session_id"], text] != 1 and not self.verdict.poisoned:
                    self.blame([f"message {text!r} was heard {said[row['session_id'], text]} times"])
        for chat in self.tasks.values():
            state = json.loads(chat["result_json"] or chat["state_json"]) or {}
            if chat["workflow"] == "chat" and state.get("count", 0) != len(state.get("said", ())):
                self.blame([f"chat {chat['id']} counted {state['count']} of {len(state['said'])}"])

    def parents_are_told(self) -> None:
        for wait in self.waits:
            if wait["kind"] != "child" or wait["resolved_by"] != "child":
                continue
            child, told = self.tasks[wait["event"]], json.loads(wait["value_json"])
            code = (told["error"] or {}).get("code")
            result = json.loads(child["result_json"] or "null")
            if [told["status"], told["result"], code] != [child["status"], result, child["error_code"]]:
                self.blame([f"a parent was told {told} of {child['id']}, which is {child['status']} with {result}"])

    # How everything ended

    def story(self) -> Any:
        """Without ids and moments. Which task of a session hears which message may differ, once one has ended."""
        names = {id: self.name(task) for id, task in self.tasks.items()}
        spoken = {"chat"}

        def named(value: Any) -> Any:
            text = json.dumps(value, sort_keys=True)
            return json.loads(re.sub("|".join(map(re.escape, names)) or "$^", lambda m: names[m[0]], text))

        tasks = []
        for task in self.tasks.values():
            state, result = json.loads(task["state_json"]), json.loads(task["result_json"] or "null")
            for value in (state, result):
                if task["workflow"] in spoken and value:
                    value["said"].sort()
            tasks.append([names[task["id"]], task["status"], task["turn"], state, result, task["error_code"]])
        waits = [
            [
                names[self.by_seq[w["task_seq"]]["id"]],
                *(w[column] for column in ("turn", "name", "kind", "event", "status", "resolved_by")),
                None if self.by_seq[w["task_seq"]]["workflow"] in spoken else json.loads(w["value_json"] or "null"),
            ]
            for w in self.waits
        ]
        steps = [
            [names[self.by_seq[e["task_seq"]]["id"]], e["turn"], e["type"], e["memo"]]
            for e in self.events
            if e["memo"] is not None and e["type"] != "STEP_FAILED"  # how often it failed depends on the cut
        ]
        questions = [
            [names[self.by_seq[q["task_seq"]]["id"]], q["question"], q["status"], q["answer"]] for q in self.questions
        ]
        effects = [
            [json.loads(t["payload_json"]), t["status"]] for t in self.triggers.values() if t["workflow"] == "effect"
        ]
        parts = (tasks, waits, steps, questions, effects)
        return named([sorted(part, key=lambda item: json.dumps(named(item), sort_keys=True)) for part in parts])

    def workflow(self, task_id: str) -> str | None:
        return self.tasks[task_id]["workflow"] if task_id in self.tasks else None

    def payload(self, task: Row) -> dict[str, Any]:
        """Of the trigger that began it."""
        payload: dict[str, Any] = json.loads(self.triggers.get(task["id"], {}).get("payload_json", "{}"))
        return payload

    def name(self, task: Row) -> str:
        """What a task is called in every life of the story: not its id."""
        payload = self.payload(task)
        if task["workflow"] == "chat":
            before = [
                t for t in self.tasks.values() if t["session_id"] == task["session_id"] and t["seq"] < task["seq"]
            ]
            return f"chat {len(before)} of {task['session_id']}"
        return f"{task['workflow']} {payload.get('name') or payload.get('what')}"

    # Words

    def same(self, known: dict[Any, Any], key: Any, value: Any, said: str) -> None:
        """It was never anything else."""
        if known.setdefault(key, value) != value:
            self.blame([f"{said} {value}, and before {known[key]}"])

    def seen(self, what: str) -> Iterable[list[Any]]:
        return [line[1:] for line in self.lines if line[0] == what]

    def blame(self, complaints: Iterable[str]) -> None:
        self.verdict.wrong.extend(complaints)

    def rows(self, sql: str) -> list[Row]:
        cursor = self.connection.execute(sql)
        first = cursor.fetchone()
        if first is None:
            return []
        names = [column[0] for column in cursor.get_description()]
        return [dict(zip(names, row, strict=True)) for row in (first, *cursor)]


def died_of_poison(trigger: Row) -> bool:
    return (trigger["status"], trigger["reason"]) == ("DEAD", "poison")


def _was_cut_off(record: Row) -> bool:
    """By a death, or by an end in order that gave it back."""
    return record["ended_at"] is None or record["status"] == "incomplete"
