"""The site: what all requests share, and how a page function becomes an answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import quote

import anyio
import anyio.to_thread
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from craftcore.config.web_people import WebPerson
from craftcore.diagnostics.damage import find_damage
from craftcore.errors import (
    CraftcoreError,
    FilterInvalid,
    InvalidInput,
    NotFound,
    PermissionRefused,
    StateRefused,
    StorageError,
    UnreadableRow,
)
from craftcore.log import get_logger
from craftcore.services import Services
from craftcore.storage.damaged_rows import describe_damage
from craftcore.web.actions.table import make_form, make_request
from craftcore.web.body import BodyRefused, parse_fields, read_form
from craftcore.web.hour_rates import HourRates
from craftcore.web.notices import Notices
from craftcore.web.page import Answer, Page, Redirect
from craftcore.web.people import People
from craftcore.web.request_gate import Door
from craftcore.web.template_environment import make_environment
from craftcore.web.timeline_store import TimelineStore
from craftcore.web.verdict import READ_SECONDS, VerdictReader
from craftcore.web.visit import Visit

log = get_logger(__name__)

THREADS = 4
"""How many pages are read and drawn at once."""

WRITERS = 1
"""How many forms are carried out at once: in threads of their own, so that one that waits for the write lock keeps no
page from being read."""

REST_SECONDS = 2.0
"""Seconds after the last reading until the file is closed."""

OWN_ERROR = "The page has an error of its own. The log of craftcore web has it."

NOTHING: Mapping[str, str] = {}

PageFunction = Callable[[Visit], Answer]
STATUSES: tuple[tuple[type[CraftcoreError], int], ...] = (
    (NotFound, 404),
    (StateRefused, 409),
    (PermissionRefused, 403),
    (FilterInvalid, 400),
    (InvalidInput, 400),
    (StorageError, 503),
)


class Site:
    """The page of one database: its settings and people, and what is read once for all visits."""

    def __init__(self, services: Services, people: People, door: Door) -> None:
        self.services = services
        self.settings = services.config.web
        self.people = people
        self.door = door
        self.verdicts = VerdictReader(services, time.monotonic)
        self.rates = HourRates()
        self.timelines = TimelineStore()
        self.notices = Notices(time.monotonic)
        self.is_stopping: Callable[[], bool] = lambda: False
        self.templates = make_environment(make_form, make_request)
        self._readers = anyio.CapacityLimiter(THREADS)
        self._writers = anyio.CapacityLimiter(WRITERS)
        self._rest: asyncio.TimerHandle | None = None

    def endpoint(self, function: PageFunction) -> Callable[[Request], Any]:
        """Return the endpoint of a page function: it reads the form, runs the function in a thread, and draws."""

        async def answer(request: Request) -> Response:
            query = parse_fields(request.scope["query_string"])
            form = await read_form(request) if request.method == "POST" else {}
            make_visit = partial(
                self.visit, request.scope["person"], request.scope["path"], request.path_params, query, form
            )
            return await self.run(self._answer, function, make_visit, writes=request.method == "POST")

        return answer

    async def refuse_body(self, request: Request, error: Exception) -> Response:
        """Return the page of a form or query that cannot be taken."""
        assert isinstance(error, BodyRefused)
        return await self.run(self.draw_error, request.scope["person"], error.status, error.why)

    async def refuse_address(self, request: Request) -> Response:
        """Return the page of an address that does not exist."""
        return await self.run(self.draw_error, request.scope["person"], 404, "There is no such page.")

    async def run(self, function: Callable[..., Response], *args: Any, writes: bool = False) -> Response:
        """Run a function that draws in one of the threads."""
        try:
            return await anyio.to_thread.run_sync(function, *args, limiter=self._writers if writes else self._readers)
        finally:
            self.close_later()

    def close_later(self) -> None:
        """Close the file some seconds from now, unless it is read again before."""
        if self._rest is not None:
            self._rest.cancel()
        self._rest = asyncio.get_running_loop().call_later(REST_SECONDS, self.services.database.close_readers)

    def _answer(self, function: PageFunction, make_visit: Callable[[], Visit]) -> Response:
        visit = make_visit()
        try:
            answer = function(visit)
            if isinstance(answer, Redirect):
                location = answer.location
                if answer.notice:  # something was done
                    self.verdicts.forget()
                    location += f"?done={self.notices.add(answer.notice)}"
                return RedirectResponse(location, 303)
            return self.draw(answer, visit)
        except CraftcoreError as error:
            status = next((status for kind, status in STATUSES if isinstance(error, kind)), 500)
            return self.draw_error(visit.person, status, error.message, _find_subject(visit) if status == 409 else None)
        except Exception as error:
            if (wrong := self._find_damage(error)) is None:
                log.exception("web.failed", address=visit.address)
                return self.draw_error(visit.person, 500, OWN_ERROR)
            id = visit.path.get("id")
            why = f"a damaged row cannot be shown: {wrong}" if id is None else f"{id} is damaged: {wrong}"
            return self.draw(Page(template="damaged.html", title="Damaged", facts={"why": why}, status=503), visit)

    def _find_damage(self, error: Exception) -> str | None:
        """Return the damage of the database that explains a failure; None: there is none."""
        if isinstance(error, UnreadableRow):
            return str(error)
        wrong = find_damage(self.services.database, error, READ_SECONDS)
        return describe_damage(error) if wrong is None and isinstance(error, UnicodeDecodeError) else wrong

    def visit(
        self,
        person: WebPerson,
        address: str = "",
        path: Mapping[str, str] = NOTHING,
        query: Mapping[str, str] = NOTHING,
        form: Mapping[str, str] = NOTHING,
    ) -> Visit:
        return Visit(
            services=self.services,
            verdicts=self.verdicts,
            settings=self.settings,
            person=person,
            address=address,
            path=path,
            query=query,
            form=form,
            now=self.services.clock.now(),
            rates=self.rates,
            timelines=self.timelines,
        )

    def draw(self, page: Page, visit: Visit) -> Response:
        """Return a page as HTML, with the head that all pages have."""
        facts = {
            **page.facts,
            "title": page.title,
            "visit": visit,
            "person": visit.person,
            "verdict": self.verdicts.read(),
            "notice": self.notices.take(visit.query.get("done")),
            "now": visit.now,
        }
        return HTMLResponse(self.templates.get_template(page.template).render(facts), page.status)

    def draw_plain(self, page: Page) -> Response:
        """Return a page for a browser that is not logged in: without the head, which has the verdict."""
        return HTMLResponse(
            self.templates.get_template(page.template).render(page.facts, title=page.title), page.status
        )

    def draw_error(self, person: WebPerson | None, status: int, why: str, back: str | None = None) -> Response:
        """Return the page of a refused request. `back`: the page that shows the state that refused it."""
        title, template = "Not done" if status < 500 else "Error", "refused.html" if person is None else "error.html"
        page = Page(template=template, title=title, facts={"why": why, "back": back}, status=status)
        if person is None:
            return self.draw_plain(page)
        return self.draw(page, self.visit(person))


def _find_subject(visit: Visit) -> str:
    """Return the address of the page that a form is about: that of the form without its last part."""
    return quote(visit.address.rpartition("/")[0]) or "/"
