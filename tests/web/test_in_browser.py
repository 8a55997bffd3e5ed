"""The pages in a real Chromium: no error, accessible, and usable without a mouse and without script.

`CRAFTCORE_SCREENSHOTS=DIR pytest tests/web/test_in_browser.py` keeps a picture of each page there.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from craftcore.web.asgi_app import PAGES
from tests.support.metrics_client import free_port
from tests.support.web_site import serving
from tests.web.browser import CHROMIUM, NO_BROWSER, chromium, find_serious, visitor

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason=NO_BROWSER)]

PATHS = [path for path, _ in PAGES]


@pytest.fixture(scope="module")
def browser():
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def shared_site(made, tmp_path_factory):
    """Serve a page for tests that only read."""
    database = tmp_path_factory.mktemp("shown") / "agent.db"
    shutil.copy(made[1], database)
    with serving(database, port=free_port()) as site:
        yield site


@pytest.fixture
def own_site(database):
    """Serve a page for a single test, which may change it."""
    with serving(database, port=free_port()) as site:
        yield site


def address_of(path, world):
    """Return an address of a page for a row of the database."""
    ids = {
        "/q/{id}": world.question,
        "/activities/{id}": world.in_doubt,
        "/tasks/{id}": world.asks,
        "/triggers/{id}": world.dead,
        "/records/{id}": world.died,
        "/schedules/{id}": "nightly",
    }
    found = path.replace("{id}", ids.get(path, ""))
    return f"{found}?q={world.asks[:8]}" if path == "/find" else found


def picture_of(page, path, theme, width):
    if folder := os.environ.get("CRAFTCORE_SCREENSHOTS"):
        name = path.strip("/").replace("/{id}", "-one") or "inbox"
        page.screenshot(path=Path(folder) / f"{name}-{theme}-{width}.png", full_page=True)


@pytest.mark.parametrize(
    ("width", "theme"),
    [
        (360, "dark"),
        (1280, "light"),
        pytest.param(360, "light", marks=pytest.mark.campaign),
        pytest.param(1280, "dark", marks=pytest.mark.campaign),
    ],
)
def test_pages_have_no_fault_in_a_browser(browser, shared_site, world, width, theme):
    wrong = {}
    with visitor(browser, shared_site, width=width, theme=theme) as person:
        for path in PATHS:
            page = person.open(address_of(path, world))
            page.wait_for_load_state("load")
            picture_of(page, path, theme, width)
            serious = find_serious(page)
            if serious or person.faults:
                wrong[path] = [*serious, *person.faults]
            person.faults.clear()

    assert wrong == {}


def test_pages_do_not_scroll_sideways_at_320_px(browser, shared_site, world):
    with visitor(browser, shared_site, width=320) as person:
        wide = {
            path: page.evaluate("document.documentElement.scrollWidth")
            for path in PATHS
            if (page := person.open(address_of(path, world))).evaluate("document.documentElement.scrollWidth") > 320
        }

    assert wide == {}


def test_pages_have_the_same_text_without_script(browser, shared_site, world):
    def words(page):
        text = page.inner_text("main")
        return re.sub(r"\d|\s+", " ", text).split()  # the script shows times in the zone of the reader

    with visitor(browser, shared_site) as scripted, visitor(browser, shared_site, script=False) as plain:
        for path in PATHS:
            address = address_of(path, world)
            missing = set(words(scripted.open(address))) - set(words(plain.open(address)))
            assert {word for word in missing if len(word) > 4} == set(), path


def test_question_is_answered_from_a_link_in_two_taps_at_360_px(browser, own_site, world):
    with visitor(browser, own_site, width=360) as person:
        page = person.open(f"/q/{world.question}")  # the link in a message
        page.click(".choices button >> nth=0")

        page.wait_for_selector(".notice")
        assert "ada (web)" in page.inner_text("main")
        assert person.faults == []


def test_question_is_answered_by_keyboard_alone(browser, own_site, world):
    with visitor(browser, own_site) as person:
        page = person.open(f"/q/{world.question}")
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.name === 'option'"):
                break
        page.keyboard.press("Enter")

        page.wait_for_selector(".notice")
        assert "ada (web)" in page.inner_text("main")


def test_doubt_is_decided_without_script(browser, own_site, world):
    with visitor(browser, own_site, script=False) as person:
        page = person.open(f"/activities/{world.in_doubt}")
        page.check("input[value=resend]")
        page.fill("input[name=note]", "not in the bank")
        page.click("main button")
        assert "This cannot be taken back." in page.inner_text("main")
        page.click("main button")

        assert "not in the bank" in page.inner_text("main")
