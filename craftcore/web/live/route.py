"""`/live?topic=now,verdict`: the topics of the site, and the stream of their fragments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from craftcore.config.web_people import WebPerson
from craftcore.errors import InvalidInput, StateRefused
from craftcore.web.body import parse_fields
from craftcore.web.live.topics import Live
from craftcore.web.live.watch import FileWatch
from craftcore.web.pages.inbox_page import read_inbox
from craftcore.web.pages.now_page import read_coming, read_now
from craftcore.web.request_gate import list_cookies
from craftcore.web.request_rules import Headers
from craftcore.web.site import Site
from craftcore.web.visit import Visit

Facts = Mapping[str, Any]

TOPICS: Mapping[str, Callable[[Visit], Facts]] = {
    "verdict": lambda visit: {"verdict": visit.verdicts.read()},
    "inbox": read_inbox,
    "now": read_now,
    "coming": read_coming,
}
"""The facts of each topic. `templates/live/` has a fragment of its name, which a page includes in its `[data-live]`."""


class Drawn(NamedTuple):
    """A fragment and the facts that it was drawn from."""

    facts: Facts
    text: str


class LiveRoute:
    """The endpoint of the stream."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._drawn: dict[tuple[str, str], Drawn] = {}
        self._live = Live(
            FileWatch(site.services.database),
            TOPICS,
            self._draw,
            before_rendering=site.verdicts.forget,
            on_end=self._forget,
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
        cookies = list_cookies(Headers(request.scope["headers"]), self._site.door.cookie)
        checks = map(self._site.people.make_login_check, cookies)
        return next((has_login for has_login in checks if has_login()), lambda: True)

    def _draw(self, topic: str, role: str) -> str:
        """Return the fragment of a topic for a role. Its template has no visit: no form, no payload, no person.

        The same facts are not drawn again.
        """
        person = WebPerson(name="", may="act" if role == "act" else "look")
        facts = TOPICS[topic](self._site.visit(person))
        known = self._drawn.get((topic, role))
        if known is None or known.facts != facts:
            text = self._site.templates.get_template(f"live/{topic}.html").render(facts)
            known = self._drawn[topic, role] = Drawn(facts, text)
        return known.text

    def _forget(self) -> None:
        self._drawn.clear()
        self._site.close_later()
