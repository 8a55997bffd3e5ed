"""The system's Chromium, driven by playwright, with all its error messages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.support.web_site import TOKENS, Site

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
NO_BROWSER = "no Chromium: apt-get install chromium"


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run the browser for the block."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@dataclass(slots=True)
class Visitor:
    """A person in a browser. `faults`: console errors, CSP reports, and requests to another origin."""

    site: Site
    context: BrowserContext
    page: Page
    faults: list[str] = field(default_factory=list)

    def open(self, address: str) -> Page:
        """Load a page."""
        self.page.goto(self.site.address + address)
        return self.page


@contextmanager
def visitor(
    browser: Browser, site: Site, person: str = "ada", *, width: int = 1280, theme: str = "light", script: bool = True
) -> Iterator[Visitor]:
    """Log a person in, in a window of this width."""
    scheme: Literal["dark", "light"] = "dark" if theme == "dark" else "light"
    context = browser.new_context(
        viewport={"width": width, "height": 800}, color_scheme=scheme, java_script_enabled=script, locale="en-GB"
    )
    page = context.new_page()
    found = Visitor(site, context, page)
    page.on("console", lambda message: _note(found, message.type, message.text))
    page.on("pageerror", lambda error: found.faults.append(f"error: {error}"))
    page.on("request", lambda request: _note_origin(found, request.url))
    try:
        page.goto(f"{site.address}/login")
        page.fill("input[name=name]", person)
        page.fill("input[name=token]", TOKENS[person])
        page.click("button")
        yield found
    finally:
        context.close()


def find_serious(page: Page) -> list[str]:
    """Return the serious and critical findings of axe about a page."""
    from axe_playwright_python.sync_playwright import Axe

    return [
        f"{one['id']}: {node['html'][:120]}"
        for one in Axe().run(page).response["violations"]
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]


def _note(found: Visitor, kind: str, text: str) -> None:
    if kind in ("error", "warning"):
        found.faults.append(f"{kind}: {text}")


def _note_origin(found: Visitor, url: str) -> None:
    own = urlsplit(found.site.address).netloc
    if urlsplit(url).netloc not in ("", own):
        found.faults.append(f"asked {url}")


def press_tab_until(page: Page, selector: str, most: int = 60) -> None:
    """Press Tab until the selected element has the focus. Each element on the way must show the focus."""
    for _ in range(most):
        page.keyboard.press("Tab")
        focused = page.locator("*:focus")
        seen = focused.evaluate(_FOCUS, selector)
        assert seen["outline"], f"the focus is not visible on {seen['text']}"
        assert seen["inside"], f"the focus is outside the window, on {seen['text']}"
        if seen["reached"]:
            return
    raise AssertionError(f"Tab does not reach {selector}")


def press_and_load(page: Page, key: str) -> None:
    """Press a key that opens another page, and wait for the page."""
    with page.expect_navigation():
        page.keyboard.press(key)


_FOCUS = """(one, selector) => {
    const style = getComputedStyle(one), place = one.getBoundingClientRect();
    return {
        reached: one.matches(selector),
        outline: one.matches(":focus-visible") && style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2,
        inside: place.width > 0 && place.bottom > 0 && place.right > 0
            && place.top < innerHeight && place.left < innerWidth,
        text: one.outerHTML.slice(0, 120),
    };
}"""
