"""The cost of pages: SQLite does the same work after 2,000 settled triggers as after 6,000.

A search reads at most 20,000 rows. The tests check this limit after 30,000 and 90,000.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from benchmarks import history
from craftcore.config import Config
from craftcore.config.web_people import WebPerson
from craftcore.services import Services
from craftcore.web.asgi_app import PAGES
from craftcore.web.people import People
from craftcore.web.request_gate import Door
from craftcore.web.site import Site

HISTORIES = (2_000, 6_000)
LONG_HISTORIES = (30_000, 90_000)
STEPS = 50
"""Steps of the SQLite virtual machine between two counts."""
ADA = WebPerson(name="ada", may="act")
PAGES_OF_A_ROW = {"/triggers/{id}": "", "/records/{id}": "exec-{}.1"}
SEARCHES = {"/find"}
"""Pages whose work grows until a search reaches its row limit."""
FILTERS = {"/tasks": "workflow", "/triggers": "workflow", "/audit": "action"}


@contextmanager
def count_work() -> Iterator[list[int]]:
    """Count the steps of the connections that are opened inside the block."""
    work = [0]

    def count() -> bool:
        work[0] += STEPS
        return False

    def hook(connection: apsw.Connection) -> None:
        connection.set_progress_handler(count, STEPS, id="tests.work")

    apsw.connection_hooks.append(hook)
    try:
        yield work
    finally:
        apsw.connection_hooks.remove(hook)


def make_sites(folder: Path, histories: Sequence[int]) -> list[Site]:
    """Return the site of a database after each history, a number of settled triggers."""
    found = []
    for settled in histories:
        path = folder / f"{settled}.db"
        history.make(path, settled=settled)
        services = Services(path, Config())
        people = People(services.config.web, lambda reference: "", time.monotonic, read_only=False)
        found.append(Site(services, people, Door(on_port=False, cookie="c", trusted_secret=None)))
    return found


@pytest.fixture(scope="module")
def sites(tmp_path_factory) -> list[Site]:
    return make_sites(tmp_path_factory.mktemp("site"), HISTORIES)


@pytest.fixture(scope="module")
def long_sites(tmp_path_factory) -> list[Site]:
    return make_sites(tmp_path_factory.mktemp("site"), LONG_HISTORIES)


def ask(site, function, id, query):
    """Return the number of steps of a page, and its status."""
    site.verdicts.read()  # the verdict is read once a second for all pages, so it is not measured
    with count_work() as work:
        answer = site._answer(function, lambda: site.visit(ADA, "/", {"id": id}, query))
    return work[0], answer.status_code


def id_of(site, path):
    with site.services.reading() as reader:
        newest = reader.fetch_value("SELECT id FROM triggers ORDER BY seq DESC LIMIT 1")
    return {"/triggers/{id}": newest, "/records/{id}": f"exec-{newest}.1"}.get(path, "nothing")


def assert_page_costs_the_same(sites, path, function):
    (few, status), (many, _) = [ask(site, function, id_of(site, path), {"q": "01a"}) for site in sites]

    assert status in (200, 303, 404)
    assert 0 < many <= 1.2 * few + 2_000, (few, many)


@pytest.mark.parametrize(("path", "function"), [(path, function) for path, function in PAGES if path not in SEARCHES])
def test_page_costs_the_same_after_more_history(sites, path, function):
    assert_page_costs_the_same(sites, path, function)


@pytest.mark.acceptance
@pytest.mark.parametrize(("path", "function"), PAGES)
def test_page_costs_the_same_after_a_long_history(long_sites, path, function):
    assert_page_costs_the_same(long_sites, path, function)


@pytest.mark.acceptance
@pytest.mark.parametrize(("path", "field"), FILTERS.items())
def test_filter_that_matches_nothing_is_bounded(long_sites, path, field):
    function = dict(PAGES)[path]
    (few, status), (many, _) = [ask(site, function, "", {field: "nothing-like-it"}) for site in long_sites]

    assert status == 200
    assert 0 < many <= 1.2 * few + 2_000, (few, many)


def test_verdict_costs_the_same_after_more_history(sites):
    work = []
    for site in sites:
        site.verdicts.forget()
        with count_work() as steps:
            site.verdicts.read()
        work.append(steps[0])

    assert 0 < work[1] <= 1.2 * work[0] + 2_000, work
