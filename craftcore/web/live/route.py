"""`/live?topic=now,verdict`: the topics of the site, and the stream of their fragments."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from craftcore.config.web_people import WebPerson
from craftcore.errors import InvalidInput, StateRefused
from craftcore.services import Services
from craftcore.storage.repeated_reads import RepeatedReads
from craftcore.web.body import parse_fields
from craftcore.web.live.topics import Live
from craftcore.web.live.watch import FileWatch
from craftcore.web.pages.inbox_page import read_inbox
from craftcore.web.pages.now_page import read_now
from craftcore.web.request_gate import find_cookie
from craftcore.web.request_rules import Headers
from craftcore.web.site import Asked, Site
from craftcore.web.verdict import VerdictReader
from craftcore.web.visit import Visit

TOPICS: Mapping[str, Callable[[Visit], Mapping[str, Any]]] = {
    "verdict": lambda visit: {},
    "inbox": read_inbox,
    "now": read_now,
}
"""The facts of each topic. `templates/live/` has a fragment of its name, which a page includes in its `[data-live]`."""


class LiveRoute:
    """The endpoint of the stream."""

    def __init__(self, site: Site) -> None:
        self._site = site
        shared = site.services
        self._services = Services(
            shared.database.path, shared.config, shared.clock, read_only=True, database=RepeatedReads
        )
        self._verdicts = VerdictReader(self._services, time.monotonic)
        self._live = Live(
            FileWatch(shared.database),
            TOPICS,
            self._draw,
            on_news=self._forget_verdicts,
            on_end=self._services.close,
            is_stopping=lambda: site.is_stopping(),
        )

    async def answer(self, request: Request) -> Response:
        """Return the stream; 400 for an unknown topic, 503 when there are too many listeners."""
        try:
            topics = parse_fields(request.scope["query_string"]).get("topic", "").split(",")
            self._live.require_place(topics)
        except InvalidInput as error:
            return PlainTextResponse(f"{error.message}\n", 400)
        except StateRefused as error:
            return PlainTextResponse(f"{error.message}\n", 503)
        person: WebPerson = request.scope["person"]
        stream = self._live.stream(topics, person.may, self._make_login_check(request))
        return StreamingResponse(stream, media_type="text/event-stream", headers={"x-accel-buffering": "no"})

    def _make_login_check(self, request: Request) -> Callable[[], bool]:
        """Return a function that says whether the listener is still let in. Without a login it came from a proxy, which
        lets it in again for each stream; a cookie that it also has is of an earlier login."""
        cookie = find_cookie(Headers(request.scope["headers"]), self._site.door.cookie)
        if cookie is not None and (has_login := self._site.people.make_login_check(cookie))():
            return has_login
        return lambda: True

    def _forget_verdicts(self) -> None:
        self._site.verdicts.forget()
        self._verdicts.forget()

    def _draw(self, topic: str, role: str) -> str:
        """Return the fragment of a topic for a role. Its template has no visit: no form, no payload, no person."""
        person = WebPerson(name="", may="act" if role == "act" else "look")
        asked = Asked(person=person, address="", path={}, query={}, form={})
        visit = replace(self._site.visit(asked), services=self._services, verdicts=self._verdicts)
        facts = {**TOPICS[topic](visit), "verdict": self._verdicts.read(), "now": visit.now}
        return self._site.templates.get_template(f"live/{topic}.html").render(facts)
