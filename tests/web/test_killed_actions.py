"""SIGKILL of the page at the commit of each operator action: the action is complete or absent, and can be repeated."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from craftcore.executions.chain.verify import Verification
from craftcore.web.actions.form import ALREADY
from craftcore.web.actions.table import ACTIONS
from craftcore.web.page import Redirect
from tests.support.cells import cells
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.killed_page import killed_pages
from tests.support.populated_database import NOON, World
from tests.support.retention_harness import dump
from tests.support.web_actions import make_site, send, state_now, subject_of

Rows = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SentForm:
    """The form of an action, and the rows of the file before and after the action."""

    name: str
    seen: str
    error: str
    before: Rows
    after: Rows


def find_error(core: VirtualCore, id: str) -> str:
    """Return the error code of the dead letter, as on its page."""
    with core.reading() as reader:
        return str(reader.fetch_value("SELECT error_code FROM triggers WHERE id = :id", id=id))


def submit(database: Path, world: World, name: str, seen: str, error: str) -> Redirect:
    """Send a form in this process at noon."""
    site = make_site(database, VirtualClock(now=NOON))
    answer = send(site, name, world, seen=seen, once="once", error=error)
    site.services.close()
    assert isinstance(answer, Redirect)
    return answer


def read_rows(database: Path) -> Rows:
    """Verify the chains of a file, and return all its rows."""
    core = VirtualCore(database, VirtualClock(now=NOON))
    with core.reading() as reader:
        assert list(Verification(reader, NOON).faults()) == []
    rows = dump(core)
    core.close()
    return rows


@pytest.fixture(scope="module")
def pages():
    with killed_pages() as pages:
        yield pages


@pytest.fixture(scope="module", params=cells(list(ACTIONS)))
def sent(request, made, tmp_path_factory) -> SentForm:
    """Do the action without a crash."""
    world, original = made
    name, database = request.param, tmp_path_factory.mktemp("whole") / "agent.db"
    shutil.copy(original, database)
    core = VirtualCore(database, VirtualClock(now=NOON))
    before, error = dump(core), find_error(core, world.dead) if name.endswith(" --all") else ""
    core.close()
    site = make_site(database, VirtualClock(now=NOON))
    seen = state_now(site, ACTIONS[name], subject_of(ACTIONS[name], world))
    site.services.close()

    assert submit(database, world, name, seen, error).notice != ALREADY
    return SentForm(name=name, seen=seen, error=error, before=before, after=read_rows(database))


@pytest.mark.parametrize("place", ["before", "after"])
def test_kill_leaves_all_of_an_action_or_nothing(pages, sent, world, database, place):
    """All rows, including the audit log and its seals, are compared with those of an action without a crash."""
    assert pages.send(database, sent.name, world, sent.seen, sent.error, place) == -9
    assert read_rows(database) == (sent.before if place == "before" else sent.after)

    again = submit(database, world, sent.name, sent.seen, sent.error)

    assert (again.notice == ALREADY) is (place == "after")
    assert read_rows(database) == sent.after
    assert len(sent.after["audit_log"]) == len(sent.before["audit_log"]) + 1
