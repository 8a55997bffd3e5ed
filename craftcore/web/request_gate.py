"""The checks before a page is asked: host, origin, proxy, login; and the headers of every answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from craftcore.config.web_people import WebPerson
from craftcore.config.web_settings import WebSettings
from craftcore.web.people import People
from craftcore.web.request_rules import Headers, Refusal, judge_head, judge_host, judge_method, judge_proxy

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS: Mapping[bytes, bytes] = {
    b"content-security-policy": CSP.encode(),
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"permissions-policy": b"camera=(), geolocation=(), microphone=()",
    b"cache-control": b"no-store",
}
OPEN = ("/login", "/up", "/static/")
"""Addresses that need no login: one, or all that begin with it where it ends with `/`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """How the page can be reached. `on_port`: by any program of this machine. `cookie`: the name of the login's cookie.
    `trusted_secret`: the secret of the proxy; None: none is set."""

    on_port: bool
    cookie: str
    trusted_secret: str | None


class Gate:
    """The application around the pages. It puts the person into the scope as `person`, None before a login."""

    def __init__(self, app: ASGIApp, people: People, settings: WebSettings, door: Door) -> None:
        self._app = app
        self._people = people
        self._settings = settings
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # a websocket is refused by the server; there is no lifespan
        send = _with_headers(send)
        headers = Headers(scope["headers"])
        judged = judge_head(scope["raw_path"], scope["query_string"], headers) or self._judge(scope["method"], headers)
        if isinstance(judged, Refusal):
            ends = {"connection": "close"} if judged.status == 400 else None  # where its body ends is not certain
            await PlainTextResponse(f"{judged.why}\n", judged.status, ends)(scope, receive, send)
            return
        scope["person"] = judged
        path: str = scope["path"]
        if judged is None and not _is_open(path):
            if scope["method"] == "POST" or path == "/live":
                await PlainTextResponse("log in first\n", 403)(scope, receive, send)
            else:
                asked = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
                wanted = b"/login?next=" + quote(asked, safe="/").encode()
                await send({"type": "http.response.start", "status": 303, "headers": [(b"location", wanted)]})
                await send({"type": "http.response.body", "body": b""})
            return
        await self._app(scope, receive, send)

    def _judge(self, method: str, headers: Headers) -> Refusal | WebPerson | None:
        refusal = judge_host(headers, self._settings.hosts) or judge_method(method, headers)
        if refusal is not None:
            return refusal
        user = judge_proxy(
            headers,
            trusted_header=self._settings.trusted_header,
            trusted_secret=self._door.trusted_secret,
            on_port=self._door.on_port,
        )
        if isinstance(user, Refusal):
            return user
        if user is not None:
            return self._people.find_proxy_user(user) or Refusal(403, "this user of the proxy is not one of web.person")
        logins = map(self._people.find_login, list_cookies(headers, self._door.cookie))
        return next((person for person in logins if person is not None), None)


def list_cookies(headers: Headers, name: str) -> list[str]:
    """Return the values of a cookie: there are several when another program of this host has set one of that name, for
    a port is not a part of it."""
    pairs = (pair.strip().partition("=") for text in headers.list_values("cookie") for pair in text.split(";"))
    return [value for given, _, value in pairs if given == name]  # http.cookies stops at one that is set badly


def _is_open(path: str) -> bool:
    return any(path.startswith(one) if one.endswith("/") else path == one for one in OPEN)


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            given: list[Any] = list(message.get("headers", []))
            names = {name.lower() for name, _ in given}
            message["headers"] = [*given, *((name, text) for name, text in HEADERS.items() if name not in names)]
        await send(message)

    return send_with_headers
