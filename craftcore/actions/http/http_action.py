"""`http.request`: a request to a provider as an action, without writing Python.

It returns the answer of a provider that did the work. It raises NoEffect when nothing can have happened, Fail when the
provider or the address rules refused, and another error when the outcome is unknown. It never sends a request twice by
itself: the terms of the action decide about that.

It needs httpx2, of the extra `http`, which is imported when it is first called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any

import anyio

from craftcore.actions.http.address_rules import Resolve, look_up
from craftcore.actions.http.exchange import Answer, Exchange, MissingAnswer
from craftcore.actions.http.request import SAFE_METHODS, Request, check, compose, origin, refusal
from craftcore.actions.http.response import header, judge, read_in_thread, result
from craftcore.actions.redaction import Scrubber
from craftcore.activities.model import ActionTerms, OnUnknown
from craftcore.clock import Clock, SystemClock
from craftcore.config import HttpSettings
from craftcore.config.http_targets import ANSWER_MARGIN_SECONDS, HttpTarget
from craftcore.engine.turn.context import TaskContext
from craftcore.errors import ErrorCode
from craftcore.outcome_exceptions import Fail, NoEffect
from craftcore.registry.action import Action
from craftcore.registry.call import Call
from craftcore.serialization.plurals import format_count

if TYPE_CHECKING:
    import httpx2

HTTP_REQUEST = "http.request"
"""The name under which the daemon declares it."""

ERROR_BODY_BYTES = 16 << 10
"""Bytes of an answer that are searched for an error text or an id, however little is kept."""

HEADROOM_SECONDS = 1.0
"""The seconds of an attempt that are reserved for reporting the outcome of a call."""

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_FOLLOWED = frozenset({"GET", "HEAD"})


def http_action(
    settings: HttpSettings, secret: Callable[[str], str], *, resolve: Resolve = look_up, clock: Clock | None = None
) -> Action:
    """Return the action, bound to settings. `secret` resolves a reference of a target, at each call."""
    clock = clock or SystemClock()

    async def http_request(
        call: Call,
        *,
        url: str,
        method: str = "GET",
        target: str | None = None,
        headers: dict[str, str] | None = None,
        query: dict[str, Any] | None = None,
        json: Any = None,
        body: str | None = None,
    ) -> dict[str, Any]:
        """Ask a provider. `url` is absolute, or relative to the base_url of the target; `json` or `body` is sent."""
        _require_library()
        known = _target(settings, target)
        arguments = {"url": url, "method": method, "headers": headers, "query": query, "json": json, "body": body}
        request = compose(arguments, known, call.key, secret)
        dedupes = known is not None and known.provider_dedupes
        try:
            answer, asked = await _ask(request, settings, known, resolve)
            return await read_in_thread(answer, lambda: read(answer, asked, request, dedupes=dedupes))
        except (NoEffect, Fail, MissingAnswer) as ended:
            raise _masked_error(ended, request) from None

    def read(answer: Answer, asked: httpx2.URL, request: Request, *, dedupes: bool) -> dict[str, Any]:
        judge(answer, safe=request.safe, provider_dedupes=dedupes, now=clock.now(), scrubber=request.scrubber)
        return result(answer, keep=settings.response_max_bytes, url=str(asked), scrubber=request.scrubber)

    def terms_of(arguments: Mapping[str, Any]) -> ActionTerms:
        return _terms(settings, arguments.get("method", "GET"), arguments.get("target"))

    return Action(HTTP_REQUEST, http_request, _terms(settings, "POST", None), terms_of=terms_of)


async def send_request(
    ctx: TaskContext,
    url: str,
    method: str = "GET",
    target: str | None = None,
    headers: dict[str, str] | None = None,
    query: dict[str, Any] | None = None,
    json: Any = None,
    body: str | None = None,
) -> Any:
    return await ctx.act(
        HTTP_REQUEST, url=url, method=method, target=target, headers=headers, query=query, json=json, body=body
    )


def _terms(settings: HttpSettings, method: object, name: object) -> ActionTerms:
    """Return the terms of a request: a safe method is a plain step. For others the target says whether the request may
    be repeated, and what follows from doubt."""
    seconds = settings.timeout + ANSWER_MARGIN_SECONDS
    if isinstance(method, str) and method.upper() in SAFE_METHODS:
        return ActionTerms(irreversible=False, timeout=seconds)
    target = settings.target.get(name) if isinstance(name, str) else None
    if target is None:
        return ActionTerms(timeout=seconds)
    unless_said = OnUnknown.RESEND if target.provider_dedupes else OnUnknown.ASK
    return ActionTerms(
        on_unknown=unless_said if target.on_unknown is None else OnUnknown(target.on_unknown),
        idempotent_provider=target.provider_dedupes,
        idempotency_window=target.dedup_window,
        timeout=seconds,
    )


def _target(settings: HttpSettings, name: object) -> HttpTarget | None:
    """Return the target of this name. Raises Fail when there is none."""
    found = settings.target.get(name) if isinstance(name, str) else None
    if name is not None and found is None:
        raise refusal(f"there is no [http.target.{name!s:.100}] in the configuration")
    return found


async def _ask(
    request: Request, settings: HttpSettings, target: HttpTarget | None, resolve: Resolve
) -> tuple[Answer, httpx2.URL]:
    """Return the last answer, and who gave it. Redirects are followed for GET and HEAD only, and each host is judged.
    The headers and secrets of the target are not sent once a redirect leads to another host."""
    import httpx2

    now, cancelled_at = anyio.current_time(), anyio.current_effective_deadline()
    deadline = deadline_of_call(settings.timeout, now=now, cancelled_at=cancelled_at)
    home = None if target is None else origin(httpx2.URL(target.base_url))
    keep = max(ERROR_BODY_BYTES, settings.response_max_bytes + request.scrubber.longest)
    url, own = request.url, request.own
    for hops in count():
        allow_private = settings.allow_private
        if origin(url) != home:
            own = {}
        elif target is not None and target.allow_private is not None:
            allow_private = target.allow_private
        headers = {**request.headers, **own}
        exchange = Exchange(request.method, url, headers, request.content, keep=keep, settle=not request.safe)
        answer = await exchange.run(resolve, deadline, allow_private=allow_private)
        location = header(answer, "location")
        if location is None or answer.status not in _REDIRECTS or request.method not in _FOLLOWED:
            break
        if hops == settings.redirects_max:
            # Cut after the masking: half of a secret would not be recognised.
            address = request.scrubber.head(location, 200)[:200]
            times = format_count(hops, "time")
            raise Fail(ErrorCode.AGENT_ERROR, f"redirected more than {times}, at last to {address}")
        url = _redirect_url(url, location, request.scrubber)
    return answer, url


def deadline_of_call(timeout: float, *, now: float, cancelled_at: float) -> float:
    """Return when a call stops by itself: before it is cancelled, so that it can report what it knows."""
    left = max(0.0, cancelled_at - now)
    return now + min(timeout, left - min(HEADROOM_SECONDS, left / 10))


def _redirect_url(url: httpx2.URL, location: str, scrubber: Scrubber) -> httpx2.URL:
    """Return the address of a redirect. Raises Fail for an address that is not allowed."""
    import httpx2

    address = scrubber.head(location, 200)[:200]

    try:
        led = url.join(location).copy_with(fragment=None)
    except (httpx2.InvalidURL, ValueError):
        raise refusal(f"redirected to {address!r}, which cannot be read") from None
    try:
        check(led, scrubber.text)
    except Fail as error:
        raise refusal(f"redirected to {address!r}, which is not asked: {error}") from None
    if (url.scheme, led.scheme) == ("https", "http"):
        raise refusal(f"redirected to {address!r}, which is not asked: it would be in clear text")
    return led


def _masked_error(ended: NoEffect | Fail | MissingAnswer, request: Request) -> Exception:
    """Return the error without secrets. For a safe method a missing answer leaves no doubt."""
    message = request.scrubber.text(str(ended))
    if isinstance(ended, Fail):
        return Fail(ended.code, message, **ended.details)
    if isinstance(ended, NoEffect):
        return NoEffect(message, retry_after=ended.retry_after, code=ended.code)
    if request.safe:
        return NoEffect(message, retry_after=ended.retry_after, code=ended.code)
    return MissingAnswer(message, code=ended.code, retry_after=ended.retry_after, **ended.details)


def _require_library() -> None:
    """Raise Fail where httpx2 is not installed."""
    try:
        import httpx2  # noqa: F401 - whether it is there
    except ModuleNotFoundError:
        raise Fail(
            ErrorCode.CAPABILITY_NOT_FOUND, f"{HTTP_REQUEST} needs httpx2: pip install 'craftcore[http]'"
        ) from None
