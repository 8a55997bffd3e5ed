"""Every operator action in a real Chromium: on a phone without script, and by keyboard.

`test_actions_on_pages` uses each without a browser. One process and one browser serve all tests of this file. Each test
acts on a subject of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from craftcore.web.actions.table import ACTIONS
from tests.support.action_uses import USES, WHY, Place, list_done, make_place
from tests.support.metrics_client import free_port
from tests.support.web_site import serving
from tests.web.browser import CHROMIUM, NO_BROWSER, Visitor, chromium, press_and_load, press_tab_until, visitor

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason=NO_BROWSER)]


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Place:
    return make_place(tmp_path_factory.mktemp("place") / "agent.db")


@pytest.fixture(scope="module")
def visitors(place) -> Iterator[tuple[Visitor, Visitor]]:
    """Open two browsers of Ada: a phone of 360 px without script, and a desktop."""
    with serving(place.path, port=free_port()) as site, chromium() as browser:
        with visitor(browser, site, width=360, script=False) as phone, visitor(browser, site) as screen:
            yield phone, screen


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
    form = page.locator(f'main form[action="{address}"]').filter(has_text=use.about)
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
