"""The cases of the kill campaign: apps, their inputs, the answers of a person, and the required effects.

The providers are files and a loopback server outside of the workers. Their contents are compared with the outcomes of
the tasks.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from craftcore.activities.model import Activity
from craftcore.temporal.workflow.messages import OpenQuestion, TaskEnd
from tests.temporal.worker_processes import lines


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedTask:
    """An ended task, with the crashes since its last wait and the entries of all turns."""

    number: int
    id: str
    end: TaskEnd
    crashes: int
    entries: int

    @property
    def result(self) -> Any:
        """Return the result of the task, or None without one."""
        return json.loads(self.end.result_json or "null")


@dataclass(slots=True, kw_only=True)
class Tally:
    """The counts of a campaign.

    doubts    actions in doubt with a question to a person
    doubled   irreversible effects that happened twice without a decision to resend
    missing   effects that did not happen, or that a task reports as missing
    repeated  functions of steps that ran again, because the process was killed before their result was recorded
    wrong     all other violations
    """

    tasks: int = 0
    crashes: int = 0
    effects: int = 0
    doubts: int = 0
    questions: int = 0
    doubled: int = 0
    missing: int = 0
    repeated: int = 0
    wrong: list[str] = field(default_factory=list)


class KillCase(Protocol):
    """An app whose workers are killed."""

    name: str
    workflow: str
    asks: bool
    """True if each task asks a person, also without a doubt."""

    def payload(self, number: int) -> dict[str, Any]: ...

    def answer(self, number: int, question: OpenQuestion, activity: Activity | None) -> str:
        """Return the answer of a person who knows the state of the provider."""
        ...

    def judge(self, played: Sequence[PlayedTask], tally: Tally) -> None:
        """Compare the results of the tasks with the contents of the providers."""
        ...


class Witness:
    """Steps that return fresh tokens, and a provider without deduplication."""

    name, workflow, asks = "witness", "order", False

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def payload(self, number: int) -> dict[str, Any]:
        return {}

    def answer(self, number: int, question: OpenQuestion, activity: Activity | None) -> str:
        return "happened" if question.activity_key in lines(self._folder / "effects") else "resend"

    def judge(self, played: Sequence[PlayedTask], tally: Tally) -> None:
        effects = Counter(lines(self._folder / "effects"))
        count_once(effects, [f"activity:{one.id}:1.{n}" for one in played for n in (1, 2)], tally)
        tokens: dict[tuple[str, str], set[str]] = {}
        for task, step, token in map(str.split, lines(self._folder / "seen")):
            tokens.setdefault((task, step), set()).add(token)
        tally.wrong += [
            f"{step} was seen with {len(found)} results" for step, found in tokens.items() if len(found) > 1
        ]
        for one in played:
            seen = [*(tokens.get((one.id, step), set()) for step in ("first", "second", "third"))]
            if one.end.status != "DONE" or [{token} for token in one.result] != seen:
                tally.wrong.append(f"{one} has seen {seen}")


class Approval:
    """Purchases of which a person approves three of four. The shop drops a repeated order by its id."""

    name, workflow, asks = "approval", "purchase", True

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def payload(self, number: int) -> dict[str, Any]:
        return {"what": f"item-{number}", "price": number}

    def answer(self, number: int, question: OpenQuestion, activity: Activity | None) -> str:
        return "approve" if number % 4 else "refuse"

    def judge(self, played: Sequence[PlayedTask], tally: Tally) -> None:
        orders = Counter(re.findall(r"(item-\d+) is ordered", (self._folder / "out").read_text()))
        for one in played:
            what = f"item-{one.number}"
            expected_result = f"{what} is ordered as {one.id}" if one.number % 4 else f"{what} is not bought"
            tally.effects += min(orders[what], 1)
            tally.missing += one.number % 4 > 0 and not orders[what]
            tally.doubled += one.number % 4 == 0 and orders[what]
            tally.repeated += max(orders[what] - 1, 0)
            if one.end.status != "DONE" or one.result != expected_result:
                tally.wrong.append(f"{one} should have returned {expected_result}")


class Order:
    """Orders at a bank that drops a second call, and a mail service that does not."""

    name, workflow, asks = "order", "order", False

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def payload(self, number: int) -> dict[str, Any]:
        return {"what": f"item-{number}", "price": 40 if number % 8 else 90_000}

    def answer(self, number: int, question: OpenQuestion, activity: Activity | None) -> str:
        sent = any(line.startswith(f"item-{number} is paid") for line in lines(self._folder / "messages.txt"))
        return "happened" if sent else "resend"

    def judge(self, played: Sequence[PlayedTask], tally: Tally) -> None:
        charges = Counter(line.split()[0] for line in lines(self._folder / "charges.txt"))
        messages = Counter(line.split()[0] for line in lines(self._folder / "messages.txt"))
        paid = [one for one in played if one.number % 8]
        count_once(charges, [f"activity:{one.id}:1.1" for one in paid], tally)
        count_once(messages, [f"item-{one.number}" for one in paid], tally)
        for one in played:
            is_paid = one.end.status == "DONE" and one.result == f"item-{one.number} is paid and confirmed"
            is_declined = one.end.status == "FAILED" and one.end.error_code == "DECLINED"
            if not (is_paid if one.number % 8 else is_declined):
                tally.wrong.append(f"{one} has a wrong end")


class Saga:
    """Trips of which half find no car and are cancelled. The provider drops a second booking of the same id."""

    name, workflow, asks = "saga", "trip", False

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def payload(self, number: int) -> dict[str, Any]:
        return {"city": "Lisbon" if number % 2 else "Reykjavik"}

    def answer(self, number: int, question: OpenQuestion, activity: Activity | None) -> str:
        raise AssertionError(question)

    def judge(self, played: Sequence[PlayedTask], tally: Tally) -> None:
        expected: list[str] = []
        for one in played:
            parts = [f"{what}:{one.id}" for what in ("car", "hotel", "flight")]
            if one.number % 2:
                expected += [f"booked {part}" for part in parts]
                good = one.end.status == "DONE" and one.result == parts
            else:
                expected += [f"{does} {part}" for part in parts[1:] for does in ("booked", "cancelled")]
                good = one.end.status == "FAILED" and one.end.error_code == "NOT_BOOKED"
            if not good:
                tally.wrong.append(f"{one} has a wrong end")
        count_once(Counter(lines(self._folder / "bookings.txt")), expected, tally)


class Research:
    """Four turns with a model, and a purchase that a person allows."""

    name, workflow, asks = "research_agent", "research", True

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def payload(self, number: int) -> dict[str, Any]:
        return {"question": f"Question {number}?"}

    def answer(self, number: int, question: OpenQuestion, activity: Activity | None) -> str:
        return "yes"

    def judge(self, played: Sequence[PlayedTask], tally: Tally) -> None:
        out = (self._folder / "out").read_text()  # two threads may write into one line
        asked, tools = out.count("  the model was asked"), out.count("  search {") + out.count("  buy {")
        tally.effects += asked + tools
        tally.repeated += max(0, asked - 4 * len(played)) + max(0, tools - 3 * len(played))
        tally.missing += max(0, 4 * len(played) - asked) + max(0, 3 * len(played) - tools)
        entered_again = sum(one.entries - 4 for one in played)
        if tally.repeated > 2 * entered_again:
            tally.wrong.append(f"{tally.repeated} steps ran again in {entered_again} entries")
        for one in played:
            if one.end.status != "DONE" or f"bought as {one.id}.3.0:" not in one.result:
                tally.wrong.append(f"{one} has a wrong end")


CASES = (Approval, Order, Saga, Research, Witness)


def count_once(effects: Counter[str], expected: Sequence[str], tally: Tally) -> None:
    """Count the deviations from effects that must have happened once each, and no others."""
    tally.effects += effects.total()
    tally.missing += sum(key not in effects for key in expected)
    tally.doubled += sum(count - 1 for count in effects.values())
    tally.wrong += [f"{key} happened, and no task wanted it" for key in effects.keys() - {*expected}]
