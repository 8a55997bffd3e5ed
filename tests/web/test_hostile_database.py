"""Pages of a database with hostile text: markup, terminal commands and line breaks are shown as text."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from html.parser import HTMLParser

import pytest

from craftcore.web.asgi_app import PAGES
from tests.support import tampered_database
from tests.support.tampered_database import HOSTILE, tamper
from tests.support.web_site import Site, in_process

MARKUP = (
    HOSTILE + "'\"></pre></a><script>alert(1)</script><img src=x onerror=alert(2)><style>*{}</style>{{7*7}}&lt;b&gt;"
)
PAGES_MAX = 250
"""The limit of a crawl; a world has fewer pages."""


class Elements(HTMLParser):
    """The elements of a page, with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def harm_in(text: str) -> Iterator[str]:
    """Yield what a page must not have: an element from the data, and a character that is not printable."""
    for tag, attributes in Elements(text).found:
        is_script = tag == "script" and attributes.get("src") == "/static/page.js"
        if tag in ("script", "img", "style", "iframe", "object", "base") and not is_script:
            yield f"<{tag} {attributes}>"
        for name, value in attributes.items():
            if name.startswith("on") or name in ("style", "srcdoc"):
                yield f"<{tag} {name}={value!r}>"
            if name in ("href", "src", "action") and not re.match(r"[/#?](?!/)", value or "/"):
                yield f"<{tag} {name}={value!r}>"
    yield from (f"does not print: {line!r}" for line in text.split("\n") if not line.isprintable())


def crawl(site: Site) -> dict[str, tuple[int, str]]:
    """Return the status and text of each page that links reach from the main pages."""
    waiting = [path for path, _ in PAGES if "{" not in path]
    seen: dict[str, tuple[int, str]] = {}
    while waiting and len(seen) < PAGES_MAX:
        address = waiting.pop(0)
        if address in seen:
            continue
        answer = site.get(address)
        seen[address] = answer.status_code, answer.text
        for tag, attributes in Elements(answer.text).found:
            link = attributes.get("href") or ""
            if tag == "a" and link.startswith("/"):
                waiting.append(link.partition("#")[0])
    return seen


def patterns_reached(pages: dict[str, tuple[int, str]]) -> set[str]:
    """Return the addresses of the table for which a crawl found a page."""
    found = set()
    for path, _ in PAGES:
        pattern = re.compile(re.sub(r"\{\w+\}", "[^/?]+", path) + r"(\?.*)?")
        if any(pattern.fullmatch(address) for address in pages):
            found.add(path)
    return found


def test_crawl_of_all_pages_writes_nothing(site):
    with closing(sqlite3.connect(site.database)) as connection:
        version = "PRAGMA data_version"
        before = connection.execute(version).fetchone()
        pages = crawl(site)
        assert connection.execute(version).fetchone() == before

    assert {address: status for address, (status, _) in pages.items() if status not in (200, 303)} == {}
    assert [address for address, (_, text) in pages.items() if "is damaged" in text] == []
    assert patterns_reached(pages) == {path for path, _ in PAGES}
    assert {address: list(harm_in(text)) for address, (_, text) in pages.items() if list(harm_in(text))} == {}


@pytest.mark.parametrize("names", [False, True], ids=["texts", "names too"])
def test_hostile_text_is_shown_without_an_effect(database, monkeypatch, names):
    monkeypatch.setattr(tampered_database, "HOSTILE", MARKUP)
    assert len(tamper(database, names=names)) > 40
    with in_process(database) as site:
        pages = crawl(site)

    assert {address: status for address, (status, _) in pages.items() if status == 500} == {}
    assert {address: list(harm_in(text)) for address, (_, text) in pages.items() if list(harm_in(text))} == {}
    assert sum("\\x1b" in text for _, text in pages.values()) > 5
    assert sum("&lt;script&gt;" in text for _, text in pages.values()) > 5


def test_harm_is_found():
    for bad in (
        *("<script>alert(1)</script>", '<script src="//evil.example/x.js"></script>', "<img src=/x>", "<p onclick=x>"),
        *('<p style="x">', "<a href='javascript:x'>", "<a href='//evil.example'>", "a\x1bb", "a\u202eb", "a\u2028b"),
    ):
        assert list(harm_in(bad)), bad
    assert list(harm_in('<a href="/q/x?y=1">ü</a><script src="/static/page.js" defer></script>')) == []
