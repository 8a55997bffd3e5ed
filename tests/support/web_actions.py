"""Every operator action of the page, sent to a `World` without a browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from craftcore.clock import Clock
from craftcore.config import Config
from craftcore.config.web_people import WebPerson
from craftcore.config.web_settings import WebSettings
from craftcore.services import Services
from craftcore.web.actions.form import send_form
from craftcore.web.actions.model import OperatorAction
from craftcore.web.actions.table import ACTIONS
from craftcore.web.page import Answer
from craftcore.web.people import People
from craftcore.web.request_gate import Door
from craftcore.web.site import Site
from tests.support.populated_database import World

ADA = WebPerson(name="ada", may="act")
BOB = WebPerson(name="bob")
CAL = WebPerson(name="cal", may="act")
SURE, WHY = {"confirmed": "1"}, {"reason": "why not"}

IDS: dict[str, Callable[[World], str]] = {
    "inbox answer": lambda world: world.question,
    "activity resolve": lambda world: world.in_doubt,
    "task cancel": lambda world: world.nap,
    "task retry": lambda world: world.failed,
    "task signal": lambda world: world.waits,
    "trigger cancel": lambda world: world.waiting,
    "dead requeue": lambda world: world.dead,
    "dead discard": lambda world: world.dead,
    "execution retry": lambda world: world.died,
    "execution skip": lambda world: world.died,
    "invalidate": lambda world: world.died,
    "schedule pause": lambda world: "nightly",
    "schedule resume": lambda world: "paused",
    "schedule run-now": lambda world: "nightly",
    "schedule skip-next": lambda world: "nightly",
    "schedule remove": lambda world: "nightly",
    "schedule reanchor": lambda world: "ahead",
}
"""The subjects of actions. Other actions have no single subject."""

FIELDS: dict[str, dict[str, str]] = {
    "inbox answer": {"option": "0"},
    "activity resolve": {"decision": "happened", "reference": "ref-9"},
    "task cancel": SURE,
    "task signal": {"event": "approved", "payload": "yes"},
    "trigger cancel": SURE,
    "dead discard": SURE,
    "execution retry": WHY,
    "execution skip": {**WHY, **SURE},
    "invalidate": {**WHY, **SURE},
    "schedule remove": SURE,
    "schedule trust-clock": SURE,
    "release": SURE,
}


def make_site(database: Path, clock: Clock | None = None, *, read_only: bool = False) -> Site:
    """Return the site of a database in this process."""
    services = Services(database, Config(), clock, read_only=read_only)
    people = People(WebSettings(), lambda reference: reference, lambda: 0.0, read_only=read_only)
    return Site(services, people, Door(on_port=False, cookie="cookie", trusted_secret=None))


def subject_of(action: OperatorAction, world: World) -> str:
    """Return the id of the subject of an action, or '' for an action without one."""
    return IDS[action.name](world) if action.name in IDS else ""


def state_now(site: Site, action: OperatorAction, id: str) -> str:
    """Return the current state that the page shows."""
    if action.find is None:
        return ""
    with site.services.reading() as reader:
        return action.state(action.find(reader, id))


def send(
    site: Site,
    name: str,
    world: World,
    *,
    seen: str,
    once: str,
    person: WebPerson = ADA,
    error: str = "",
    **fields: str,
) -> Answer:
    """Send the form of an action as this person.

    `error`: the error of the selected dead letters. `fields`: replacements of the usual fields.
    """
    action = ACTIONS[name]
    selection = {"error": error, "until": "1e12"} if error else {}
    form = {**FIELDS.get(name, SURE if action.is_final else {}), **selection, **fields, "seen": seen, "once": once}
    path = {"id": subject_of(action, world)} if "{id}" in action.path else {}
    return send_form(action)(site.visit(person, action.path, path, form=form))
