"""Every operator action of the page in a browser: where it is offered, its form, and its result."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from craftcore import NoEffect
from craftcore.audit.store import list_rows
from craftcore.schedules.model import Origin, ScheduleSpec
from craftcore.storage.facts import set_fact
from craftcore.tasks.question_store import QuestionStore
from tests.support.fake_payments import LOST, NOTHING, Bank
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.idle_database import a_task
from tests.support.populated_database import World, a_world


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A populated database at the machine's time, with the ids that these tests act on."""

    world: World
    path: Path
    dead: list[str]
    question: str
    in_doubt: str
    nap: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """A person's use of an action: `page` offers it, `id` is its subject, and `shows` is the text of the page
    afterwards. `about`: a text in its form, where the page has several forms of the action.
    """

    page: Callable[[Place], str]
    notice: str
    shows: str
    id: Callable[[Place], str] = lambda place: ""
    filled: Mapping[str, str] = field(default_factory=dict)
    pressed: str | None = None
    about: str = ""


def record_of(trigger_id: str) -> str:
    """Return the id of the record of a trigger's only attempt."""
    return f"exec-{trigger_id}.1"


def on(folder: str, id: Callable[[Place], str]) -> Callable[[Place], str]:
    """Return the address of the page of a subject."""
    return lambda place: f"/{folder}/{quote(id(place), safe='')}"


def of_world(name: str) -> Callable[[Place], str]:
    return lambda place: str(getattr(place.world, name))


def a_use(folder: str, id: Callable[[Place], str], notice: str, shows: str, **filled: str) -> Use:
    return Use(page=on(folder, id), id=id, notice=notice, shows=shows, filled=filled)


def a_schedule(id: str, notice: str, shows: str, **filled: str) -> Use:
    return a_use("schedules", lambda place: id, notice, shows, **filled)


WHY = "because of the test"
USES: dict[str, Use] = {
    "inbox answer": Use(
        page=lambda place: "/", id=of_world("question"), pressed="send", notice="answered", shows="ada (web)"
    ),
    "activity resolve": Use(
        page=on("activities", of_world("in_doubt")), id=of_world("in_doubt"), notice="bank.pay: happened",
        shows="ref-9", filled={"decision": "happened", "reference": "ref-9", "note": WHY},
    ),
    "task cancel": a_use("tasks", of_world("nap"), "the task is cancelled", "CANCELLED", reason=WHY),
    "task retry": a_use("tasks", of_world("failed"), "the task goes on", "task retry"),
    "task signal": a_use(
        "tasks", of_world("waits"), "approved is signalled", "task signal", event="approved", payload="yes"
    ),
    "trigger cancel": a_use(
        "triggers", of_world("waiting"), "the trigger is cancelled", f"cancelled: {WHY}", reason=WHY
    ),
    "dead requeue": a_use("triggers", lambda place: place.dead[0], "queued again", "PENDING"),
    "dead discard": a_use("triggers", lambda place: place.dead[1], "discarded", "Dead letters"),
    "execution retry": a_use(
        "records", lambda place: record_of(place.dead[2]), "is PENDING", "runs it again by itself", reason=WHY
    ),
    "execution skip": a_use(
        "records", lambda place: record_of(place.dead[3]), "is FAILED", "its trigger is FAILED", reason=WHY
    ),
    "invalidate": a_use("records", of_world("ended"), "1 record invalidated", "Invalidated by an operator", reason=WHY),
    "schedule pause": a_schedule("nightly", "the schedule is paused", WHY, reason=WHY),
    "schedule resume": a_schedule("paused", "the schedule fires again", "ACTIVE"),
    "schedule run-now": a_schedule("runs", "fired", "fired"),
    "schedule skip-next": a_schedule("skips", "is skipped", "skip"),
    "schedule remove": a_schedule("goes", "the schedule is removed", "nightly"),
    "schedule reanchor": a_schedule("ahead", "the schedule goes on from now", "ACTIVE"),
    "schedule trust-clock": Use(page=lambda place: "/health", notice="the clock is trusted", shows="Clock"),
    "release": Use(page=lambda place: "/health", notice="released", shows="Daemon"),
    "dead requeue --all": Use(
        page=lambda place: "/dead?error=TRANSPORT_ERROR", about="TRANSPORT_ERROR",
        notice="1 dead letter queued again", shows="By error",
    ),
    "dead discard --all": Use(
        page=lambda place: "/dead?error=INTERNAL_AGENT_ERROR", about="INTERNAL_AGENT_ERROR",
        notice="1 dead letter discarded", shows="Dead letters",
    ),
}  # fmt: skip


NOT_YET = "every 30d"
"""Its first occurrence is after the test, at any time of the day."""


def make_place(path: Path) -> Place:
    """Populate a database at the machine's time, with further subjects for the actions that end one.

    The two actions on all letters of an error have an error of their own each.
    """
    now = time.time()
    clock = VirtualClock(now=now - 60, seed=2)
    core = VirtualCore(path, clock)
    for name in ("runs", "skips", "goes"):
        core.do(core.schedules.put, ScheduleSpec(id=name, when=NOT_YET, workflow="nap"), Origin.OPERATOR)
    core.close()
    dead = [Bank(path, clock).pay(NOTHING) for _ in range(4)]
    Bank(path, clock).pay(NoEffect("no route", code="TRANSPORT_ERROR"))
    a_task(path, "fails", clock, code=None)
    asks, nap = a_task(path, "ask", clock, question="Hold it?"), a_task(path, "nap", clock)
    in_doubt = f"activity:{Bank(path, clock).pay(LOST)}:1.1"
    world = a_world(path, now)
    core.do(set_fact, "clock_held", repr(now + 7200))
    with core.reading() as reader:
        [question] = QuestionStore().ids_of(reader, asks)
    core.close()
    return Place(world=world, path=path, dead=dead, question=question, in_doubt=in_doubt, nap=nap)


def list_done(place: Place) -> list[tuple[str, str | None]]:
    """Return the audit rows: the action and the person of each."""
    core = VirtualCore(place.path, VirtualClock(now=time.time()))
    with core.reading() as reader:
        rows = [(row.action, row.details.get("person_name")) for row in list_rows(reader)]
    core.close()
    return rows
