"""`page.js` in a real Chromium: updates without a reload, kept input, time zones, keys and the theme."""

from __future__ import annotations

from pathlib import Path

import pytest

import craftcore.web
from craftcore.triggers.model import TriggerSpec
from tests.support.metrics_client import free_port
from tests.support.processes import open_files, until
from tests.support.web_site import serving
from tests.web.browser import CHROMIUM, NO_BROWSER, chromium, visitor

SCRIPT_MAX = 8 << 10


def in_chromium(test):
    """Mark a test that needs the browser."""
    return pytest.mark.browser(pytest.mark.skipif(CHROMIUM is None, reason=NO_BROWSER)(test))


HIDE = """hidden => {
  Object.defineProperty(document, 'hidden', {get: () => hidden, configurable: true});
  document.dispatchEvent(new Event('visibilitychange'));
}"""


@pytest.fixture(scope="module")
def browser():
    with chromium() as running:
        yield running


@pytest.fixture
def own_site(database):
    """Serve a page for a single test, which may change it."""
    with serving(database, port=free_port()) as site:
        yield site


@pytest.fixture
def person(browser, own_site):
    with visitor(browser, own_site) as found:
        yield found
        assert found.faults == []


def emit(site, name):
    """Emit a trigger that is due at once; the fragment of current work shows the trigger."""
    services = site.services
    with services.transaction() as tx:
        services.triggers.emit(tx, TriggerSpec(workflow=name))


def is_watched(site):
    return bool(open_files(site.process.pid, site.database))


def test_script_is_small_as_shipped():
    path = Path(craftcore.web.__file__).parent / "static" / "page.js"

    assert path.stat().st_size <= SCRIPT_MAX


@in_chromium
def test_commit_is_shown_without_a_reload(own_site, person):
    page = person.open("/now")
    page.evaluate("window.kept = 'yes'")

    emit(own_site, "fresh")

    page.wait_for_selector("td:has-text('fresh')")
    assert page.evaluate("window.kept") == "yes"


@in_chromium
def test_timeline_disappears_with_the_database(own_site, person):
    page = person.open("/now")
    page.wait_for_selector("[data-live=coming] section")

    own_site.database.unlink()

    page.wait_for_selector("[data-live=now] .failed:has-text('no such database')")
    page.wait_for_selector("[data-live=coming] section", state="detached")


@in_chromium
def test_open_details_keep_their_fragment_until_a_key(own_site, person):
    page = person.open("/now")
    page.click("summary:has-text('query') >> nth=0")
    emit(own_site, "fresh")

    page.wait_for_selector(".changed")
    assert "fresh" not in page.inner_text("main")
    assert page.locator("details[open]").count() == 1

    page.keyboard.press("u")

    page.wait_for_selector("td:has-text('fresh')")
    assert page.locator(".changed").count() == 0


@in_chromium
def test_focus_and_selection_keep_their_fragment_and_a_tap_shows_the_change(own_site, person):
    page = person.open("/now")
    page.focus("main table a >> nth=0")
    emit(own_site, "first")
    page.wait_for_selector(".changed")
    assert page.evaluate("document.activeElement.tagName") == "A"
    page.click(".changed button")
    page.wait_for_selector("td:has-text('first')")

    page.evaluate("document.activeElement.blur(); getSelection().selectAllChildren(document.querySelector('main h2'))")
    emit(own_site, "second")
    page.wait_for_selector(".changed")
    assert "second" not in page.inner_text("main")


@in_chromium
def test_hidden_tab_closes_its_connection_and_reloads_when_shown(own_site, person):
    page = person.open("/now")
    until(lambda: is_watched(own_site), "the connection")

    page.evaluate(HIDE, True)
    until(lambda: not is_watched(own_site), "its end")
    emit(own_site, "meanwhile")

    page.evaluate(HIDE, False)

    page.wait_for_selector("td:has-text('meanwhile')")


@in_chromium
def test_moments_are_in_the_zone_of_the_reader_with_utc_in_the_title(own_site, person):
    session = person.context.new_cdp_session(person.page)
    session.send("Emulation.setTimezoneOverride", {"timezoneId": "Asia/Kolkata"})
    page = person.open("/health")

    found = page.evaluate("(e => [e.dateTime, e.title, e.textContent])(document.querySelector('main time'))")

    assert found[0].startswith("2026-11-21T12:00:00")
    assert found[1] == "2026-11-21 12:00:00Z"
    assert "17:30:00" in found[2]


@in_chromium
def test_keys_go_to_pages_find_rows_and_help(own_site, person):
    page = person.open("/now")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.name") == "q"
    page.keyboard.type("g")  # typed text, not a shortcut
    page.keyboard.type("s")
    assert page.url.endswith("/now")
    page.evaluate("document.activeElement.blur()")

    page.keyboard.press("?")
    assert page.locator("dialog[open]").count() == 1
    page.keyboard.press("Escape")
    assert page.locator("dialog[open]").count() == 0

    page.keyboard.press("j")
    first = page.evaluate("document.activeElement.closest('main tr, main li') !== null")
    page.keyboard.press("j")
    page.keyboard.press("k")
    assert first
    assert page.evaluate("document.activeElement.matches('main a, main summary')")

    page.keyboard.press("g")
    page.keyboard.press("i")
    page.wait_for_url(f"{own_site.address}/")


@in_chromium
def test_theme_is_chosen_by_a_button_and_kept(own_site, person):
    page = person.open("/now")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)

    page.click("button.theme")
    assert page.evaluate(ground) != light

    page = person.open("/health")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.click("button.theme")
    assert page.evaluate(ground) == light


@in_chromium
def test_lost_server_is_named_and_the_page_stays(own_site, browser):
    with visitor(browser, own_site) as person:
        page = person.open("/now")
        until(lambda: is_watched(own_site), "the connection")

        own_site.process.terminate()

        page.wait_for_selector("#connection")
        assert "not connected" in page.inner_text("#connection")
        assert "The next 24 hours" in page.inner_text("main")
