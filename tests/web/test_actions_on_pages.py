"""Every operator action on its page: its form passes the gate and changes the database.

All tests share one page, and each acts on a subject of its own. `test_actions_in_browser` does the same in Chromium.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from urllib.parse import quote

import pytest

from craftcore.web.actions.table import ACTIONS
from tests.support.action_uses import USES, Place, list_done, make_place
from tests.support.web_site import Form, SiteInProcess, forms, in_process


class _FormParser(HTMLParser):
    """A parser of the fields that a browser sends for an unchanged form, and of the fields of each button."""

    def __init__(self, form: Form) -> None:
        super().__init__()
        self.fields: dict[str, str] = {}
        self.named: set[str] = set()
        self.buttons: dict[str, dict[str, str]] = {}
        self._area = ""
        self._button: dict[str, str] | None = None
        self.feed(form.body)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        name = given.get("name", "")
        if tag == "button":
            self._button = {name: given["value"]} if name else {}
        elif name:
            self.named.add(name)
            if given.get("type") != "radio":  # no radio button is selected
                self.fields[name] = given.get("value", "")
            self._area = name if tag == "textarea" else ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea":
            self._area = ""

    def handle_data(self, data: str) -> None:
        if self._button is not None:
            self.buttons[data] = self._button
            self._button = None
        elif self._area:
            self.fields[self._area] += data.removeprefix("\n")  # HTML drops the first line break


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return make_place(tmp_path_factory.mktemp("place") / "agent.db")


@pytest.fixture(scope="module")
def page(place: Place) -> Iterator[SiteInProcess]:
    with in_process(place.path) as site:
        yield site


def find_form(page: str, address: str, about: str) -> Form:
    """Return the form of an action on a page that has this text."""
    return next(form for form in forms(page) if form.action == address and about in form.body)


def press(form: Form, filled: Mapping[str, str], label: str | None) -> dict[str, str]:
    """Return the fields that a browser sends for a filled form and a button. `label` None: the only button."""
    empty = _FormParser(form)
    assert empty.named >= filled.keys(), form.body
    [button] = [button for text, button in empty.buttons.items() if label in (None, text)]
    return {**empty.fields, **filled, **button}


@pytest.mark.parametrize("name", ACTIONS)
def test_action_is_done_from_its_page_through_the_gate(page, place, name):
    use, action = USES[name], ACTIONS[name]
    address = action.address(quote(use.id(place), safe=""))
    offer = page.get(use.page(place)).text
    if f'<a class="button" href="{address}"' in offer:
        offer = page.get(address).text
    form = find_form(offer, address, use.about)

    sent = page.post(address, press(form, use.filled, use.pressed))
    if action.must_confirm(use.filled) and sent.status_code == 200:
        assert "This cannot be taken back." in sent.text
        assert list_done(place)[-1:] != [(name, "ada")]
        sent = page.post(address, press(find_form(sent.text, address, use.about), {}, None))

    assert sent.status_code == 303, sent.text
    done = page.get(sent.headers["location"]).text
    assert use.notice in done
    assert use.shows in done
    assert list_done(place)[-1] == (name, "ada")
