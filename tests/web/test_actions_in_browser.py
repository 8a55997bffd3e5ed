"""Every operator action on the page that offers it, in a real Chromium: on a phone without script, and by keyboard.

One process and one browser serve all tests of this file; each acts on something of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from craftcore.audit.store import list_rows
from craftcore.schedules.model import Origin, ScheduleSpec
from craftcore.storage.facts import set_fact
from craftcore.tasks.question_store import QuestionStore
from craftcore.web.actions.table import ACTIONS
from tests.support.fake_payments import LOST, NOTHING, Bank
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.idle_database import a_task
from tests.support.metrics_client import free_port
from tests.support.populated_database import World, a_world
from tests.support.web_site import serving
from tests.web.browser import CHROMIUM, NO_BROWSER, Visitor, chromium, press_and_load, press_tab_until, visitor

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=NO_BROWSER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The ids of what these tests act on, beside a world at the machine's time."""

    world: World
    path: Path
    dead: list[str]
    question: str
    in_doubt: str
    nap: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """How a person uses an action. `page`: where it is offered; `id`: of what; `shows`: the words there afterwards."""

    page: Callable[[Place], str]
    notice: str
    shows: str
    id: Callable[[Place], str] = lambda place: ""
    filled: Mapping[str, str] = field(default_factory=dict)
    pressed: str | None = None


def record_of(trigger_id: str) -> str:
    """The record of a trigger's only attempt."""
    return f"exec-{trigger_id}.1"


def on(folder: str, id: Callable[[Place], str]) -> Callable[[Place], str]:
    """The address of the page of a thing."""
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
        page=lambda place: "/dead?error=AGENT_UNAVAILABLE", notice="queued again", shows="By error"
    ),
    "dead discard --all": Use(
        page=lambda place: "/dead?error=INTERNAL_AGENT_ERROR", notice="1 dead letter discarded", shows="Dead letters"
    ),
}  # fmt: skip


def make_place(path: Path) -> Place:
    """A world at the machine's time, which the page has, with more of what several actions would end."""
    now = time.time()
    clock = VirtualClock(now=now - 60, seed=2)
    core = VirtualCore(path, clock)
    for name in ("runs", "skips", "goes"):
        core.do(core.schedules.put, ScheduleSpec(id=name, when="every day at 3am", workflow="nap"), Origin.OPERATOR)
    core.close()
    dead = [Bank(path, clock).pay(NOTHING) for _ in range(4)]
    a_task(path, "fails", clock, code=None)
    asks, nap = a_task(path, "ask", clock, question="Hold it?"), a_task(path, "nap", clock)
    in_doubt = f"activity:{Bank(path, clock).pay(LOST)}:1.1"
    world = a_world(path, now)
    core.do(set_fact, "clock_held", repr(now + 7200))
    with core.reading() as reader:
        [question] = QuestionStore().ids_of(reader, asks)
    core.close()
    return Place(world=world, path=path, dead=dead, question=question, in_doubt=in_doubt, nap=nap)


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Place:
    return make_place(tmp_path_factory.mktemp("place") / "agent.db")


@pytest.fixture(scope="module")
def visitors(place) -> Iterator[tuple[Visitor, Visitor]]:
    """Ada twice: with a phone of 360 px that runs no script, and at a screen."""
    with serving(place.path, port=free_port()) as site, chromium() as browser:
        with visitor(browser, site, width=360, script=False) as phone, visitor(browser, site) as screen:
            yield phone, screen


def list_done(place: Place) -> list[tuple[str, str | None]]:
    """The audit rows: the action and the person of each."""
    core = VirtualCore(place.path, VirtualClock(now=time.time()))
    with core.reading() as reader:
        rows = [(row.action, row.details.get("person_name")) for row in list_rows(reader)]
    core.close()
    return rows


def fill(page: Page, filled: Mapping[str, str]) -> None:
    """Fill the fields of the form in the main part."""
    for name, value in filled.items():
        if page.locator(f"main input[type=radio][name={name}]").count():
            page.check(f"main input[name={name}][value={value}]")
        else:
            page.fill(f"main input[name={name}]", value)


@pytest.mark.parametrize("name", ACTIONS)
def test_action_is_used_from_its_page_without_script_at_360_px(visitors, place, name):
    phone, _ = visitors
    use, action, page = USES[name], ACTIONS[name], phone.page
    address = action.address(quote(use.id(place), safe=""))
    form = page.locator(f'main form[action="{address}"]')
    phone.open(use.page(place))

    if page.locator(f'main a.button[href="{address}"]').count():
        page.click(f'main a.button[href="{address}"]')
        assert page.url.endswith(address), f"{name}: {page.url}"
    fill(page, use.filled)
    form.get_by_role("button", name=use.pressed or "").first.click()
    if action.must_confirm(use.filled) and not page.locator("main .notice").count():
        expect(page.locator("main")).to_contain_text("This cannot be taken back.")
        form.get_by_role("button").click()

    expect(page.locator("main .notice")).to_contain_text(use.notice)
    expect(page.locator("main")).to_contain_text(use.shows)
    page.wait_for_load_state()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert phone.faults == []
    assert list_done(place)[-1] == (name, "ada")


def test_question_is_answered_by_keyboard_from_the_inbox(visitors, place):
    _, screen = visitors
    page = screen.open("/")
    press_tab_until(page, "a.skip")
    page.keyboard.press("Enter")
    press_tab_until(page, f'form[action="/q/{place.question}/answer"] button')
    press_and_load(page, "Enter")

    expect(page.locator("main .notice")).to_contain_text("answered")
    assert list_done(place)[-1] == ("inbox answer", "ada")


def test_doubt_is_decided_and_confirmed_by_keyboard(visitors, place):
    _, screen = visitors
    page = screen.open(f"/activities/{quote(place.in_doubt, safe='')}")
    press_tab_until(page, "input[name=decision]")
    page.keyboard.press("Space")
    page.keyboard.press("ArrowDown")
    assert page.is_checked("input[value=resend]")
    press_tab_until(page, "input[name=note]")
    page.keyboard.type("not in the bank")
    press_tab_until(page, "main button")
    press_and_load(page, "Enter")
    expect(page.locator("main")).to_contain_text("This cannot be taken back.")
    press_tab_until(page, "main button")
    press_and_load(page, "Space")

    expect(page.locator("main .notice")).to_contain_text("bank.pay: resend")
    assert list_done(place)[-1] == ("activity resolve", "ada")


def test_task_is_cancelled_by_keyboard(visitors, place):
    _, screen = visitors
    page = screen.open(f"/tasks/{place.nap}")
    press_tab_until(page, f'main a[href="/tasks/{place.nap}/cancel"]')
    press_and_load(page, "Enter")
    press_tab_until(page, "input[name=reason]")
    page.keyboard.type(WHY)
    press_and_load(page, "Enter")
    expect(page.locator("main")).to_contain_text("This cannot be taken back.")
    press_tab_until(page, "main button")
    press_and_load(page, "Space")

    expect(page.locator("main .notice")).to_contain_text("the task is cancelled")
    expect(page.locator("main")).to_contain_text(f"cancelled: {WHY}")
    assert list_done(place)[-1] == ("task cancel", "ada")
    assert screen.faults == []
