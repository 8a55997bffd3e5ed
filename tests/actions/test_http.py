"""`http.request` with every behaviour of a provider: the outcome claims no more than is known."""

from __future__ import annotations

import gzip
import hashlib
import json
import logging
import socket
import ssl
import sys
import traceback
from base64 import b64encode
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from email.utils import format_datetime
from math import inf
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from craftcore.actions.http.address_rules import look_up
from craftcore.actions.http.exchange import MissingAnswer, _certificates
from craftcore.actions.http.http_action import deadline_of_call, http_action
from craftcore.activities.model import ActionTerms, OnUnknown
from craftcore.config import HttpSettings
from craftcore.config.http_targets import HttpTarget, SecretHeader
from craftcore.errors import ErrorCode
from craftcore.outcome_exceptions import Fail, NoEffect
from craftcore.registry.action import Action
from craftcore.registry.call import Call
from tests.support.cells import some_cells
from tests.support.fakes import VirtualClock
from tests.support.http_provider import (
    Asked,
    Behaviour,
    Handler,
    Provider,
    a_provider,
    answers_too_late,
    babbles,
    breaks_off,
    creates,
    done_and,
    drips,
    floods_headers,
    hangs_up,
    never_ends,
    once,
    replies,
    resets,
    sends_partial_head,
)
from tests.support.processes import PATIENCE

pytestmark = pytest.mark.anyio

KEY = "activity:task-1:1.1"
SECRET = 'sk-a/"hunter2"+key=42'
PEM = Path(__file__).with_name("api_example.pem")
"""A self-signed certificate of api.example, valid until 2120, and its key."""

TIMEOUTS = (0.1, 1, 8, 30, PATIENCE)
"""Timeouts in seconds; the test tries the next one if a slow machine did not send the request in time."""


@pytest.fixture
def provider() -> Iterator[Provider]:
    with a_provider() as provider:
        yield provider


def an_action(*targets: tuple[str, HttpTarget], resolve: Any = look_up, clock: Any = None, **settings: Any) -> Action:
    """Return an action that may call loopback addresses, with a long timeout."""
    http_settings: dict[str, Any] = {"timeout": PATIENCE, "allow_private": True, "target": dict(targets)} | settings
    return http_action(HttpSettings(**http_settings), {"env:SECRET": SECRET}.__getitem__, resolve=resolve, clock=clock)


def a_target(base_url: str, **options: Any) -> tuple[str, HttpTarget]:
    return "pay", HttpTarget(base_url=base_url, **options)


def target_with_secret(base_url: str, **options: Any) -> tuple[str, HttpTarget]:
    return a_target(base_url, headers={"Authorization": SecretHeader(secret="env:SECRET", prefix="Bearer ")}, **options)


async def ask(action: Action, **arguments: Any) -> Any:
    call = Call(key=KEY, attempt=1, deadline=datetime.now(UTC))
    return await action(call, **{"method": "POST"} | arguments)


async def call_and_fail(action: Action, **arguments: Any) -> Exception:
    """Return the exception of a failed call."""
    with pytest.raises((NoEffect, Fail, MissingAnswer)) as ended:
        await ask(action, **arguments)
    return ended.value


# The request


async def test_http_post_sends_key_and_json_and_returns_the_response(provider):
    action = an_action()

    result = await ask(
        action, url=f"{provider.url}/v1/charges?a=1", json={"amount": 5, "for": "Ä"}, query={"b": [True, 2]}
    )

    [asked] = provider.asked
    assert (asked.method, asked.path) == ("POST", "/v1/charges?a=1&b=true&b=2")
    assert asked.key == KEY
    assert json.loads(asked.body) == {"amount": 5, "for": "Ä"}
    assert asked.headers["content-type"] == "application/json"
    assert asked.headers["host"] == provider.url.removeprefix("http://")
    body = '{"id": "made-1"}'
    assert result == {
        "status": 201,
        "url": f"{provider.url}/v1/charges?a=1&b=true&b=2",
        "headers": {"content-length": "16", "content-type": "application/json"},
        "body": body,
        "body_encoding": "text",
        "body_bytes": 16,
        "body_sha256": hashlib.sha256(body.encode()).hexdigest(),
        "body_cut": None,
        "provider_ref": "made-1",
    }


@pytest.mark.parametrize("method", ["PUT", "patch", "DELETE"])
async def test_unsafe_http_method_carries_the_idempotency_key(provider, method):
    await ask(an_action(), url=provider.url, method=method, body="text")

    [asked] = provider.asked
    assert (asked.method, asked.key, asked.body) == (method.upper(), KEY, b"text")
    assert asked.headers["content-type"] == "text/plain; charset=utf-8"


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
async def test_safe_http_method_carries_no_idempotency_key(provider, method):
    provider.behaviour = replies(200, {"id": 7})

    result = await ask(an_action(), url=provider.url, method=method, headers={"accept": "text/csv"})

    [asked] = provider.asked
    assert (asked.method, asked.key, asked.headers["accept"]) == (method, None, "text/csv")
    assert result["provider_ref"] == (None if method == "HEAD" else "7")


async def test_http_action_works_in_successive_event_loops(provider):
    action = an_action()
    await ask(action, url=provider.url)
    assert (await anyio.to_thread.run_sync(lambda: anyio.run(lambda: ask(action, url=provider.url))))["status"] == 201


async def test_http_target_supplies_base_url_headers_and_key_header(provider):
    target = target_with_secret(f"{provider.url}/v1/", key_header="X-Once")
    action = an_action(target)

    for url in ("charges", "/charges", f"{provider.url}/v1/charges"):
        await ask(action, url=url, target="pay")

    assert {asked.path for asked in provider.asked} == {"/v1/charges"}
    assert {asked.headers["x-once"] for asked in provider.asked} == {KEY}
    assert {asked.headers["authorization"] for asked in provider.asked} == {f"Bearer {SECRET}"}
    assert {asked.key for asked in provider.asked} == {None}


@pytest.mark.parametrize(
    ("url", "path"),
    [("", "/v1"), ("?a=b", "/v1?a=b"), ("a%2Fb?c=%2e", "/v1/a%2Fb?c=%2e"), ("charges/a:b", "/v1/charges/a:b")],
)
async def test_relative_url_is_appended_to_the_target_base_url(provider, url, path):
    await ask(an_action(a_target(f"{provider.url}/v1")), url=url, target="pay")

    [asked] = provider.asked
    assert asked.path == path


@pytest.mark.parametrize(
    "url",
    [
        *("../v2", "/../v2", "a/../../v2", "a/%2e%2e/b", "%2e%2e/v2", "%252e%252e/v2", "..%2fv2", "..;x=y/v2"),
        *("a\\..\\..\\v2", "./a/%2E/b", "//127.0.0.1/v1", "https://{host}/v1/a", "http://127.0.0.1:1/v1/a"),
        *("http://{host}/v2", "http://{host}/v10", "http://{host}", "http://{host}@127.0.0.1/v1/a", "ftp://{host}/v1"),
        *("http://me@{host}/v1/a", "file:///etc/passwd", "http://{host}.example/v1", "http:/v1/a", "javascript:1"),
    ],
)
async def test_url_outside_the_target_is_refused(provider, url):
    """The secrets of a target are only for URLs below its base URL."""
    action = an_action(target_with_secret(f"{provider.url}/v1"))

    ended = await call_and_fail(action, url=url.replace("{host}", provider.url.removeprefix("http://")), target="pay")

    assert isinstance(ended, Fail)
    assert ended.code == "VALIDATION_ERROR"
    assert provider.asked == []


# Refusals before anything is sent


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"method": "TRACE"}, "method 'TRACE' is not one of DELETE, GET"),
        ({"method": "GET\r\nX: y"}, "method 'GET.* is not one of"),
        ({"method": 3}, "method 3 is not one of"),
        ({"target": "missing"}, r"there is no \[http.target.missing\]"),
        ({"json": {}, "body": ""}, "give json or body, one of them"),
        ({"method": "GET", "json": {}}, "a GET has no body"),
        ({"json": {"a": float("nan")}}, "json must be JSON"),
        ({"body": "\ud800"}, "valid Unicode"),
        ({"body": 3}, "body a text"),
        ({"query": {"a": {}}}, "query: 'a' must be a text"),
        ({"query": {"a": None}}, "query: 'a' must be a text"),
        ({"query": {"a": "\ud800"}}, "query must be valid Unicode"),
        ({"headers": {"Authorization": "Bearer x"}}, "header Authorization is given by a target"),
        ({"headers": {"cookie": "a=b"}}, "header cookie is given by a target"),
        ({"headers": {"X-API-Key": "x"}}, "header X-API-Key is given by a target"),
        ({"headers": {"idempotency-key": "x"}}, "header idempotency-key carries the key"),
        ({"headers": {"Host": "x"}}, "header 'Host' cannot be given"),
        ({"headers": {"Content-Length": "0"}}, "header 'Content-Length' cannot be given"),
        ({"headers": {"Transfer-Encoding": "chunked"}}, "cannot be given"),
        ({"headers": {"X-HTTP-Method-Override": "DELETE"}, "method": "GET"}, "cannot be given"),
        ({"headers": {"X y": "x"}}, "cannot be given"),
        ({"headers": {"X": "a\r\nY: b"}}, "header X must be a text"),
        ({"headers": {"X": "ä"}}, "header X must be a text"),
        ({"headers": {"X": 3}}, "header X must be a text"),
        ({"headers": {"X": "a", "x": "b"}}, "headers must be at most 64, each once"),
        ({"headers": ["X"]}, "headers must be a table"),
    ],
)
async def test_http_request_with_invalid_arguments_is_refused(provider, arguments, expected):
    ended = await call_and_fail(an_action(), **{"url": provider.url} | arguments)

    assert isinstance(ended, Fail)
    with pytest.raises(Fail, match=expected):
        raise ended
    assert provider.asked == []


async def test_header_supplied_by_the_target_is_refused_in_the_payload(provider):
    action = an_action(a_target(provider.url, headers={"X-Account": "7"}, key_header="X-Once"))

    for name in ("x-account", "X-ONCE", "Idempotency-Key"):
        assert isinstance(await call_and_fail(action, url="", target="pay", headers={name: "8"}), Fail)
    assert provider.asked == []


@pytest.mark.parametrize(
    "url",
    [
        *("ftp://example.com/", "file:///etc/passwd", "gopher://127.0.0.1/", "unix:///run/docker.sock", "data:,x", ""),
        *("example.com", "/relative", "//example.com/", "http://", "http:///x", "http://me@example.com/"),
        *("http://me:pw@example.com/", "http://a b/", "http://a\r\nb/", "http://exa%6dple.com/"),
        *("http://127%2e0.0.1/", "http://１２７.0.0.1/", "http://ⓛocalhost/", "http://a..b/", "http://[::1%25lo]/"),
        *(
            "http://[::1",
            "http://127.0.0.1:0/",
            "http://127.0.0.1:65536/",
            "http://127.0.0.1:x/",
            "http://\\127.0.0.1/",
        ),
        *("http://example.com\\@127.0.0.1/", "http://!/", "http://" + "a" * 9000, 3, None),
    ],
)
async def test_invalid_url_is_refused(url):
    ended = await call_and_fail(an_action(), url=url)

    assert isinstance(ended, Fail), ended
    assert ended.code == "VALIDATION_ERROR"


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_loopback_request_is_refused_without_allow_private(provider, method):
    """The hosts are loopback addresses in several notations, local names and a foreign name for a loopback address."""

    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"] if host.startswith("evil.example") else await look_up(host, port)

    action = an_action(resolve=resolve, allow_private=False)
    for host in ("127.0.0.1", "localhost", "2130706433", "0x7f.1", "127.1", "evil.example", "EVIL.example.", "[::1]"):
        ended = await call_and_fail(action, url=f"http://{host}:{provider.server_port}/", method=method)
        assert isinstance(ended, Fail), (host, ended)
        assert ended.code == "VALIDATION_ERROR"
    assert provider.asked == []


async def test_target_allow_private_overrides_the_general_setting(provider):
    allowed = an_action(a_target(provider.url, allow_private=True), allow_private=False)
    forbidden = an_action(a_target(provider.url, allow_private=False))

    assert (await ask(allowed, url="", target="pay"))["status"] == 201
    assert isinstance(await call_and_fail(allowed, url=provider.url), Fail)
    assert isinstance(await call_and_fail(forbidden, url="", target="pay"), Fail)


async def test_host_name_is_resolved_once_and_the_resolved_address_used(provider):
    """The owner of a name could change its address between two lookups. The Host header keeps the name."""
    answers = iter([["127.0.0.1"], ["127.0.0.2"]])
    looked_up = []

    async def resolve(host: str, port: int) -> list[str]:
        looked_up.append((host, port))
        return next(answers)

    url = f"http://API.example.:{provider.server_port}/"
    assert (await ask(an_action(resolve=resolve), url=url))["status"] == 201

    assert looked_up == [("api.example.", provider.server_port)]
    assert provider.asked[0].headers["host"] == f"api.example:{provider.server_port}"


async def test_host_name_with_non_ascii_letters_is_resolved_as_punycode(provider):
    looked_up = []

    async def resolve(host: str, port: int) -> list[str]:
        looked_up.append(host)
        return ["127.0.0.1"]

    await ask(an_action(resolve=resolve), url=f"http://bücher.example:{provider.server_port}/")

    assert looked_up == ["xn--bcher-kva.example"]
    assert provider.asked[0].headers["host"] == f"xn--bcher-kva.example:{provider.server_port}"


# Failures before the request is sent: NoEffect


async def test_unknown_host_name_ends_without_an_effect():
    async def resolve(host: str, port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    ended = await call_and_fail(an_action(resolve=resolve), url="https://nowhere.example/")
    assert isinstance(ended, NoEffect)
    assert str(ended) == "nowhere.example cannot be found: Name or service not known"
    assert ended.code == "TRANSPORT_ERROR"


async def test_host_name_lookup_timeout_ends_without_an_effect():
    async def resolve(host: str, port: int) -> list[str]:
        await anyio.sleep_forever()
        raise AssertionError

    ended = await call_and_fail(an_action(resolve=resolve, timeout=0.01), url="https://slow.example/")
    assert isinstance(ended, NoEffect)
    assert str(ended) == "slow.example cannot be talked to: it was not found in time"
    assert ended.code == "AGENT_TIMEOUT"


async def test_closed_http_port_ends_without_an_effect():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # bound, without a listener
        ended = await call_and_fail(an_action(), url=f"http://127.0.0.1:{bound.getsockname()[1]}/")
    assert isinstance(ended, NoEffect)
    assert "cannot be talked to" in str(ended)
    assert ended.code == "TRANSPORT_ERROR"


async def test_refused_connection_falls_back_to_the_next_address(provider):
    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.2", "127.0.0.1"]

    assert (await ask(an_action(resolve=resolve), url=f"http://a.example:{provider.server_port}/"))["status"] == 201
    assert len(provider.asked) == 1


async def test_request_sent_to_an_address_is_not_sent_to_the_next(provider):
    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1", "127.0.0.1", "127.0.0.2"]

    provider.behaviour = done_and(hangs_up)
    ended = await call_and_fail(an_action(resolve=resolve), url=f"http://a.example:{provider.server_port}/")

    assert isinstance(ended, MissingAnswer)
    assert len(provider.effects) == 1


async def test_tls_handshake_timeout_ends_without_an_effect():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        action = an_action(timeout=0.2)
        ended = await call_and_fail(action, url=f"https://127.0.0.1:{silent.getsockname()[1]}/")
    assert isinstance(ended, NoEffect)
    assert ended.code == "AGENT_TIMEOUT"


async def test_http_call_cancelled_while_connecting_ends_without_an_effect():
    """The cancellation hits the lookup or the handshake. Otherwise a person would get a question without need."""
    ended = []

    async def resolve(host: str, port: int) -> list[str]:
        if host == "slow.example":
            cancel()
            await anyio.sleep_forever()
        return ["127.0.0.1"]

    async def call(url: str) -> None:
        ended.append(await call_and_fail(an_action(resolve=resolve), url=url))

    with socket.create_server(("127.0.0.1", 0)) as silent:
        for host, event in (("slow.example", "no event"), ("a.example", "start_tls.started")):
            with anyio.CancelScope() as scope:
                cancel = scope.cancel
                with CallOnLogLine(event, cancel):
                    await call(f"https://{host}:{silent.getsockname()[1]}/")
            assert scope.cancel_called

    assert [(type(one), str(one)) for one in ended] == [(NoEffect, "cancelled before anything was sent")] * 2


@pytest.mark.parametrize(
    ("timeout", "cancelled_at", "stops"),
    [(30, inf, 130), (30, 1000, 130), (30, 130.5, 129.5), (30, 105, 104.5), (30, 100, 100), (30, -inf, 100)],
)
def test_http_call_deadline_precedes_the_cancellation(timeout, cancelled_at, stops):
    """A call that ends by itself can report its outcome; a cancelled call cannot."""
    assert deadline_of_call(timeout, now=100, cancelled_at=cancelled_at) == stops


async def test_peer_without_tls_receives_no_request(provider):
    ended = await call_and_fail(an_action(), url=provider.url.replace("http:", "https:"))
    assert isinstance(ended, NoEffect)
    assert provider.asked == []


@pytest.fixture
def encrypted() -> Iterator[Provider]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(PEM)
    with a_provider(tls=context) as provider:
        yield provider


@pytest.fixture
def trusted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Trust the self-signed certificate."""
    monkeypatch.setenv("SSL_CERT_FILE", str(PEM))
    _certificates.cache_clear()
    yield
    _certificates.cache_clear()


async def resolve_to_loopback(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


async def test_certificate_must_match_the_requested_host_name(encrypted, trusted):
    action = an_action(resolve=resolve_to_loopback)

    assert (await ask(action, url=f"https://api.example:{encrypted.server_port}/"))["provider_ref"] == "made-1"
    assert encrypted.asked[0].headers["host"] == f"api.example:{encrypted.server_port}"
    for other in ("other.example", "127.0.0.1"):
        ended = await call_and_fail(action, url=f"https://{other}:{encrypted.server_port}/")
        assert isinstance(ended, NoEffect)
        assert "certificate" in str(ended).lower()
    assert len(encrypted.effects) == 1


async def test_untrusted_certificate_receives_no_request(encrypted):
    ended = await call_and_fail(
        an_action(resolve=resolve_to_loopback), url=f"https://api.example:{encrypted.server_port}/"
    )

    assert isinstance(ended, NoEffect)
    assert encrypted.asked == []


async def test_missing_http_secret_ends_without_an_effect(provider):
    def secret(reference: str) -> str:
        raise NoEffect(f"the secret {reference} is not there")

    action = http_action(HttpSettings(allow_private=True, target=dict([target_with_secret(provider.url)])), secret)

    assert isinstance(await call_and_fail(action, url="", target="pay"), NoEffect)
    assert provider.asked == []


@pytest.mark.parametrize("text", ["hunter2\n", " hunter2", "hunter2\r\nX: y", "hünter2"])
async def test_secret_unfit_for_a_header_is_named_without_the_value(provider, text):
    action = http_action(
        HttpSettings(allow_private=True, target=dict([target_with_secret(provider.url)])), lambda reference: text
    )

    ended = await call_and_fail(action, url="", target="pay")

    assert isinstance(ended, NoEffect)
    assert str(ended).startswith("the secret env:SECRET cannot stand in a header")
    assert "nter2" not in "".join(traceback.format_exception(ended))
    assert provider.asked == []


async def test_missing_http_library_is_named_with_the_extra(monkeypatch):
    action = an_action()
    monkeypatch.setitem(sys.modules, "httpx2", None)

    ended = await call_and_fail(action, url="https://api.example/")

    assert isinstance(ended, Fail)
    assert ended.code == "CAPABILITY_NOT_FOUND"
    assert "pip install 'craftcore[http]'" in str(ended)


# Requests without a response


@pytest.mark.parametrize("behaviour", [resets, hangs_up, babbles, sends_partial_head, floods_headers])
async def test_unsafe_request_without_a_response_is_in_doubt(provider, behaviour):
    for happened, full_behaviour in ((0, once(behaviour)), (1, done_and(behaviour))):
        provider.asked.clear()
        provider.behaviour = full_behaviour
        ended = await call_and_fail(an_action(), url=provider.url)
        assert type(ended) is MissingAnswer, ended
        assert "was asked, and no answer came" in str(ended)
        assert len(provider.effects) == happened
        assert len(provider.asked) == 1


@pytest.mark.parametrize("behaviour", [resets, hangs_up, babbles, sends_partial_head, floods_headers])
async def test_safe_request_without_a_response_can_be_retried(provider, behaviour):
    provider.behaviour = behaviour
    ended = await call_and_fail(an_action(), url=provider.url, method="GET")
    assert isinstance(ended, NoEffect)
    assert ended.code == "TRANSPORT_ERROR"


async def test_http_response_after_the_timeout_leaves_the_request_in_doubt(provider):
    provider.behaviour = done_and(answers_too_late)
    for seconds in TIMEOUTS:
        ended = await call_and_fail(an_action(timeout=seconds), url=provider.url)
        if provider.began.is_set():
            break
    assert isinstance(ended, MissingAnswer)
    assert "it was out of time" in str(ended)
    assert ended.code == "AGENT_TIMEOUT"
    assert provider.effects
    assert await anyio.to_thread.run_sync(provider.left.wait, PATIENCE)


async def test_cancelled_http_call_stops_at_once(provider):
    provider.behaviour = answers_too_late
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: ask(an_action(timeout=3600), url=provider.url))
            assert await anyio.to_thread.run_sync(provider.began.wait, PATIENCE)
            group.cancel_scope.cancel()
    assert await anyio.to_thread.run_sync(provider.left.wait, PATIENCE)


# The status of the response


HAPPENED, REFUSED, AGAIN, UNKNOWN = None, Fail, NoEffect, MissingAnswer


@pytest.mark.parametrize(
    ("status", "unsafe", "safe"),
    [
        (200, HAPPENED, HAPPENED),
        (202, HAPPENED, HAPPENED),
        (204, HAPPENED, HAPPENED),
        (300, UNKNOWN, AGAIN),
        (301, REFUSED, REFUSED),
        (302, UNKNOWN, AGAIN),
        (303, UNKNOWN, AGAIN),
        (304, UNKNOWN, HAPPENED),
        (307, REFUSED, REFUSED),
        (308, REFUSED, REFUSED),
        (400, REFUSED, REFUSED),
        (401, REFUSED, REFUSED),
        (404, REFUSED, REFUSED),
        (408, UNKNOWN, AGAIN),
        (409, REFUSED, REFUSED),
        (410, REFUSED, REFUSED),
        (422, REFUSED, REFUSED),
        (425, AGAIN, AGAIN),
        (429, AGAIN, AGAIN),
        (500, UNKNOWN, AGAIN),
        (501, UNKNOWN, AGAIN),
        (502, UNKNOWN, AGAIN),
        (503, UNKNOWN, AGAIN),
        (504, UNKNOWN, AGAIN),
        (599, UNKNOWN, AGAIN),
    ],
)
async def test_http_status_maps_to_success_refusal_retry_or_doubt(provider, status, unsafe, safe):
    provider.behaviour = replies(status)
    for method, meaning in (("POST", unsafe), ("GET", safe)):
        if meaning is HAPPENED:
            assert (await ask(an_action(), url=provider.url, method=method))["status"] == status
            continue
        ended = await call_and_fail(an_action(), url=provider.url, method=method)
        assert type(ended) is meaning, (method, ended)
        assert f"answered with HTTP status {status}" in str(ended)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "VALIDATION_ERROR"),
        (401, "UNAUTHORIZED"),
        (403, "UNAUTHORIZED"),
        (407, "UNAUTHORIZED"),
        (402, "AGENT_ERROR"),
        (404, "AGENT_ERROR"),
        (409, "AGENT_ERROR"),
        (410, "AGENT_ERROR"),
        (413, "PAYLOAD_TOO_LARGE"),
        (422, "VALIDATION_ERROR"),
    ],
)
async def test_http_refusal_carries_a_code_and_the_provider_message(provider, status, code):
    provider.behaviour = replies(status, {"error": {"message": "no such\ncard" + "!" * 999}})

    ended = await call_and_fail(an_action(), url=provider.url)

    assert isinstance(ended, Fail)
    assert (ended.code, ended.details) == (code, {"status": status})
    assert str(ended).startswith(f"answered with HTTP status {status}: no such\ncard!!!")
    assert len(str(ended)) < 300


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    ("status", "code"),
    [
        (408, "AGENT_TIMEOUT"),
        (425, "AGENT_UNAVAILABLE"),
        (429, "RATE_LIMIT"),
        (500, "AGENT_UNAVAILABLE"),
        (502, "AGENT_UNAVAILABLE"),
        (503, "AGENT_UNAVAILABLE"),
        (504, "AGENT_TIMEOUT"),
        (599, "AGENT_UNAVAILABLE"),
    ],
)
async def test_transient_http_status_has_a_retryable_code_and_retry_after(provider, method, status, code):
    """The doubt about a POST has the same code and retry time."""
    provider.behaviour = replies(status, Retry_After="7")

    ended = await call_and_fail(an_action(), url=provider.url, method=method)

    assert not isinstance(ended, Fail)
    assert (ended.code, ended.retry_after) == (code, 7)  # type: ignore[attr-defined]
    assert ErrorCode(code).may_be_retried


async def test_http_conflict_is_in_doubt_when_the_provider_dedupes(provider):
    provider.behaviour = replies(409, {"message": "in progress"})

    for dedupes, meaning in ((True, MissingAnswer), (False, Fail)):
        action = an_action(a_target(provider.url, provider_dedupes=dedupes))
        assert type(await call_and_fail(action, url="", target="pay")) is meaning


NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def http_date(seconds: float) -> str:
    return format_datetime(datetime.fromtimestamp(NOON.timestamp() + seconds, UTC), usegmt=True)


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({}, None),
        ({"Retry_After": "7"}, 7),
        ({"Retry_After": " 0 "}, 0),
        ({"Retry_After": "999999999"}, 86_400),
        ({"Retry_After": "9" * 5000}, None),
        ({"Retry_After": "-1"}, None),
        ({"Retry_After": "soon"}, None),
        ({"Retry_After": http_date(90)}, 90),
        ({"Retry_After": http_date(-90)}, 0),
        ({"Retry_After": http_date(9e6)}, 86_400),
        ({"Retry_After": http_date(3690), "Date": http_date(3600)}, 90),
        ({"Retry_After": "Fri, 31 Feb 2026 00:00:00 GMT"}, None),
    ],
)
async def test_retry_after_is_parsed_and_limited_to_a_day(provider, headers, wait):
    """The header has seconds or a date; the Date header gives the clock of the provider."""
    provider.behaviour = replies(429, **headers)
    clock = VirtualClock()
    clock.advance(seconds=NOON.timestamp() - clock.now())

    ended = await call_and_fail(an_action(clock=clock), url=provider.url)

    assert isinstance(ended, NoEffect)
    assert ended.retry_after == wait


async def test_unavailable_status_with_retry_after_is_still_in_doubt(provider):
    provider.behaviour = done_and(replies(503, Retry_After="7"))
    assert isinstance(await call_and_fail(an_action(), url=provider.url), MissingAnswer)
    assert len(provider.effects) == 1


@pytest.mark.parametrize(
    ("behaviour", "reference"),
    [
        (replies(201, {"id": "ch_1"}, Location="/charges/1", Request_Id="r"), "ch_1"),
        (replies(201, {"id": 17}), "17"),
        (replies(201, {"id": True}, Location="/charges/1", Request_Id="r"), "/charges/1"),
        (replies(201, {"id": ""}, X_Request_Id="r"), "r"),
        (replies(201, [1]), None),
        (replies(201, b"[" * 50_000), None),
        (replies(201, b'{"id": ' + b"9" * 5000 + b"}"), None),
        (replies(201, {"id": "x" * 999}), "x" * 199 + "…"),
        (replies(204), None),
    ],
)
async def test_provider_reference_is_taken_from_body_or_headers(provider, behaviour, reference):
    provider.behaviour = behaviour
    assert (await ask(an_action(), url=provider.url))["provider_ref"] == reference


# The body of the response


@pytest.mark.parametrize("reset", [False, True])
async def test_successful_response_that_breaks_off_is_kept_as_broken(provider, reset):
    provider.behaviour = done_and(breaks_off(reset=reset))

    result = await ask(an_action(), url=provider.url)

    assert (result["status"], result["body"], result["body_cut"]) == (201, '{"id": ', "broken")
    assert result["body_bytes"] == 7
    assert result["provider_ref"] == "req-7"
    assert len(provider.effects) == 1


async def test_get_response_that_breaks_off_can_be_retried(provider):
    provider.behaviour = once(breaks_off(200), replies(200, b"whole"))

    assert isinstance(await call_and_fail(an_action(), url=provider.url, method="GET"), NoEffect)
    assert (await ask(an_action(), url=provider.url, method="GET"))["body"] == "whole"


async def test_refusal_with_a_broken_body_stays_a_refusal(provider):
    provider.behaviour = breaks_off(402)
    assert isinstance(await call_and_fail(an_action(), url=provider.url), Fail)


async def test_successful_response_with_a_slow_body_is_kept_as_late(provider):
    provider.behaviour = drips
    for seconds in TIMEOUTS:
        try:
            result = await ask(an_action(timeout=seconds), url=provider.url)
            break
        except (NoEffect, MissingAnswer):  # a slow machine
            continue
    assert (result["status"], result["body_cut"]) == (201, "late")
    assert "a begin".startswith(result["body"])
    assert not provider.released.is_set()


async def test_successful_response_cancelled_during_the_body_is_returned(provider):
    """The cancellation comes when the head of the response is complete."""
    provider.behaviour = drips
    results = []
    with anyio.CancelScope() as scope, CallOnLogLine("receive_response_headers.complete", scope.cancel):
        provider.released.set()
        results.append(await ask(an_action(), url=provider.url))

    assert scope.cancel_called
    assert results[0]["body"] == "a beginning."


async def test_endless_response_is_cut_off(provider):
    provider.behaviour = done_and(never_ends)

    result = await ask(an_action(response_max_bytes=10), url=provider.url)

    assert (result["body_cut"], result["body_encoding"], result["body"]) == ("endless", "base64", "/////////////w==")
    assert result["body_bytes"] > 16 << 20
    assert await anyio.to_thread.run_sync(provider.left.wait, PATIENCE)


async def test_long_response_keeps_the_beginning_with_full_size_and_hash(provider):
    body = "Ä" * 500_000
    provider.behaviour = replies(200, body.encode())

    result = await ask(an_action(response_max_bytes=7), url=provider.url)

    assert (result["body"], result["body_cut"], result["body_bytes"]) == ("ÄÄÄ", "long", 1_000_000)
    assert result["body_sha256"] == hashlib.sha256(body.encode()).hexdigest()


@pytest.mark.parametrize(
    ("body", "headers", "kept", "encoding"),
    [
        (b"caf\xc3\xa9", {}, "café", "text"),
        (b"caf\xe9", {}, "Y2Fm6Q==", "base64"),
        (b"caf\xe9", {"Content_Type": "text/plain; charset=ISO-8859-1"}, "café", "text"),
        (b"caf\xe9", {"Content_Type": "text/plain; charset=zlib"}, "Y2Fm6Q==", "base64"),
        (b"\xc3", {}, "ww==", "base64"),
        (b"", {}, "", "text"),
        (b"\x00", {}, "\x00", "text"),
    ],
)
async def test_response_body_is_text_when_decodable_and_base64_otherwise(provider, body, headers, kept, encoding):
    provider.behaviour = replies(200, body, **headers)
    result = await ask(an_action(), url=provider.url, method="GET")
    assert (result["body"], result["body_encoding"]) == (kept, encoding)


async def test_response_headers_are_limited_and_exclude_cookies(provider):
    many = {f"X-Many-{number}": "x" for number in range(99)}
    provider.behaviour = replies(200, Set_Cookie="session=hunter2", X_Long="x" * 5000, **many)

    headers = (await ask(an_action(), url=provider.url))["headers"]

    assert "set-cookie" not in headers
    assert len(headers) == 64
    assert len(headers["x-long"]) == 1024


# Redirects


async def test_http_get_follows_redirects_and_returns_the_final_url(provider):
    provider.behaviour = at_paths(
        {"/": replies(301, Location="/a"), "/a": replies(307, Location="b?c#d")}, replies(200)
    )

    result = await ask(an_action(), url=provider.url, method="GET")

    assert [asked.path for asked in provider.asked] == ["/", "/a", "/b?c"]
    assert result["url"] == f"{provider.url}/b?c"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("method", ["POST", "DELETE", "OPTIONS"])
async def test_redirect_of_another_method_is_not_followed_and_names_the_location(provider, status, method):
    provider.behaviour = replies(status, Location="/elsewhere")

    ended = await call_and_fail(an_action(), url=provider.url, method=method)

    assert "a redirect to /elsewhere that is not followed" in str(ended)
    assert len(provider.asked) == 1


@pytest.mark.parametrize("limit", [0, 3])
async def test_redirects_beyond_the_limit_are_refused(provider, limit):
    provider.behaviour = replies(302, Location="/")

    ended = await call_and_fail(an_action(redirects_max=limit), url=provider.url, method="GET")

    assert isinstance(ended, Fail)
    assert f"redirected more than {limit} times, at last to /" in str(ended)
    assert len(provider.asked) == limit + 1


@pytest.mark.parametrize(
    "location",
    [
        *("http://127.0.0.1:{port}/", "http://localhost:{port}/", "http://2130706433:{port}/", "http://[::1]:{port}/"),
        *("http://169.254.169.254/latest/meta-data/", "http://evil.example:{port}/", "file:///etc/passwd", "ftp://x/"),
        *("http://me@api.example:{port}/", "//127.0.0.1:{port}/", "http://a b/", "http://[::1"),
    ],
)
async def test_redirect_to_a_refused_address_is_not_followed(provider, location):
    """An allowed provider redirects to a loopback address or to another refused one."""

    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"] if host.endswith(".example") else await look_up(host, port)

    with a_provider() as inner:
        provider.behaviour = replies(302, Location=location.replace("{port}", str(inner.server_port)))
        base = f"http://api.example:{provider.server_port}"
        action = an_action(a_target(base, allow_private=True), allow_private=False, resolve=resolve)

        ended = await call_and_fail(action, url="", target="pay", method="GET")

        assert isinstance(ended, Fail), ended
        assert ended.code == "VALIDATION_ERROR"
        assert inner.asked == []


async def test_redirect_from_https_to_http_is_refused(encrypted, trusted, provider):
    encrypted.behaviour = replies(302, Location=f"http://api.example:{provider.server_port}/")

    url = f"https://api.example:{encrypted.server_port}/"
    ended = await call_and_fail(an_action(resolve=resolve_to_loopback), url=url, method="GET")

    assert isinstance(ended, Fail)
    assert "it would be in clear text" in str(ended)
    assert provider.asked == []


# Secrets


async def test_redirect_to_another_host_and_back_carries_no_secret(provider):
    with a_provider() as elsewhere:
        provider.behaviour = once(replies(302, Location=f"{elsewhere.url}/x"), replies(200))
        elsewhere.behaviour = replies(302, Location=f"{provider.url}/back")
        target = (
            "pay",
            HttpTarget(base_url=provider.url, headers=dict(target_with_secret("")[1].headers) | {"X-Account": "7"}),
        )

        await ask(an_action(target), url="", target="pay", method="GET")

        assert [asked.headers.get("authorization") for asked in provider.asked] == [f"Bearer {SECRET}", None]
        [asked] = elsewhere.asked
        assert "authorization" not in asked.headers
        assert "x-account" not in asked.headers


async def test_redirect_within_the_target_carries_the_secret(provider):
    provider.behaviour = once(replies(302, Location="/b"), replies(200))
    await ask(an_action(target_with_secret(provider.url)), url="a", target="pay", method="GET")
    assert [asked.headers["authorization"] for asked in provider.asked] == [f"Bearer {SECRET}"] * 2


async def test_http_action_ignores_proxies_of_the_environment(provider, monkeypatch):
    with a_provider() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        assert (await ask(an_action(), url=provider.url))["status"] == 201
        assert proxy.asked == []


def echoes(status: int) -> Behaviour:
    """Return the behaviour of a provider that repeats the secret in several encodings."""

    def behaviour(handler: Handler, asked: Asked) -> None:
        body = {"id": SECRET, "error": {"message": f"{SECRET} is no key"}}
        as_url = "/sk-a%2F%22hunter2%22%2Bkey%3D42?sk-a/%22hunter2%22%2Bkey%3D42"
        replies(status, body, X_Echo=SECRET, Location=as_url)(handler, asked)

    return behaviour


@pytest.mark.parametrize("status", [200, 307, 401, 409, 429, 500])
async def test_http_secret_appears_in_no_result_error_or_log_line(provider, caplog, status):
    """The provider repeats the secret in its response."""
    caplog.set_level(logging.DEBUG)
    provider.behaviour = echoes(status)
    action = an_action(target_with_secret(provider.url))

    texts = [repr(action)]
    try:
        texts.append(json.dumps(await ask(action, url="", target="pay")))
    except (Fail, NoEffect, MissingAnswer) as ended:
        texts += [repr(ended), str(ended), *traceback.format_exception(ended)]

    assert provider.asked[0].headers["authorization"] == f"Bearer {SECRET}"
    assert "***" in "".join(texts)
    assert not [text for text in [*texts, caplog.text] if "hunter2" in text]


async def test_secret_at_the_end_of_a_cut_body_is_not_shown_in_part(provider):
    provider.behaviour = replies(200, f"your key is {SECRET}!".encode())
    for limit in range(1, 40):
        action = an_action(target_with_secret(provider.url), response_max_bytes=limit)
        body = (await ask(action, url="", target="pay"))["body"]
        assert body == "your key is ***!"[:limit]


async def test_body_shortened_by_masking_ends_without_a_partial_secret(provider):
    """The read limit is within a repeated secret. Each masked secret leaves three characters, so the result would
    be under the limit."""
    for more in some_cells(range(len(SECRET))):
        provider.behaviour = replies(200, b"." * more + SECRET.encode() * 3000)
        action = an_action(target_with_secret(provider.url), response_max_bytes=20_000)

        result = await ask(action, url="", target="pay")

        assert result["body_cut"] == "long"
        assert set(result["body"][more:].replace("***", "")) <= {*SECRET[:4], "*"}


@pytest.mark.parametrize("cut", range(6, len(SECRET)))
async def test_body_that_breaks_off_within_a_secret_is_masked(provider, cut):
    body = f"your key is {SECRET}!".encode()

    def behaviour(handler: Handler, asked: Asked) -> None:
        handler.begin(200, Content_Length=str(len(body)))
        handler.wfile.write(body[: len("your key is ") + cut])
        handler.wfile.flush()
        hangs_up(handler, asked)

    provider.behaviour = behaviour

    result = await ask(an_action(target_with_secret(provider.url)), url="", target="pay", method="POST")

    assert (result["body"], result["body_cut"]) == ("your key is ***", "broken")


@pytest.mark.parametrize("encoding", ["gzip", "br", "Identity, GZIP"])
async def test_encoded_body_is_not_kept_for_a_target_with_a_secret(provider, encoding):
    packed = gzip.compress(SECRET.encode())
    provider.behaviour = replies(200, packed, Content_Encoding=encoding)

    result = await ask(an_action(target_with_secret(provider.url)), url="", target="pay")

    assert (result["body"], result["body_cut"]) == ("", "encoded")
    assert (result["body_bytes"], result["body_sha256"]) == (len(packed), hashlib.sha256(packed).hexdigest())
    without = await ask(an_action(), url=provider.url)
    assert (without["body_cut"], without["body_encoding"]) == (None, "base64")


async def test_body_with_identity_encoding_is_kept(provider):
    provider.behaviour = replies(200, b"plain", Content_Encoding="identity")

    assert (await ask(an_action(target_with_secret(provider.url)), url="", target="pay"))["body"] == "plain"


async def test_secret_in_header_names_and_redirects_is_masked(provider):
    """The client converts header names, hosts and schemes to lower case."""
    token = "sk-Hunter2-Key42-Hunter2-Key42-Hunter2-Key42-Hunter2"
    pay = target_with_secret(provider.url)

    def action(**settings: Any) -> Action:
        http_settings = HttpSettings(timeout=PATIENCE, allow_private=True, target=dict([pay]), **settings)
        return http_action(http_settings, {"env:SECRET": token}.__getitem__)

    provider.behaviour = replies(200, b"", **{token: "1", "X-" + token: "2"})
    texts = [json.dumps(await ask(action(), url="", target="pay"))]
    for where in (
        f"{token}://x/",
        f"http://{token}!/",
        f"http://{token * 3}/",
        f"http://{token}.invalid/",
        f"/{token}",
    ):
        provider.behaviour = replies(302, b"", Location=where)
        ended = await call_and_fail(action(redirects_max=0 if where[0] == "/" else 3), url="", target="pay")
        texts += [str(ended), repr(ended)]

    assert "***" in texts[0]
    assert not [text for text in texts if "hunter2" in text.lower()]


async def test_password_decoded_from_a_basic_secret_is_masked(provider):
    pair = b64encode(b"ada:pass-word").decode()
    _, pay = a_target(provider.url, headers={"Authorization": SecretHeader(secret="env:SECRET", prefix="Basic ")})
    http_settings = HttpSettings(timeout=PATIENCE, allow_private=True, target={"pay": pay})
    provider.behaviour = replies(200, b"you are ada:pass-word; your password is pass-word")

    result = await ask(http_action(http_settings, {"env:SECRET": pair}.__getitem__), url="", target="pay")

    assert result["body"] == "you are ***; your password is ***"


REFUSED_WITH_A_TARGET = [
    *("Accept-Encoding", "accept_encoding", "Accept-Charset", "Range", "If-Range", "A-IM", "Want-Content-Digest"),
    *("X-Original-URL", "X_Original_URL", "X-Rewrite-URL", "X-Original-Host", "X-Host", "Forwarded", "Via"),
    *("X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Anything", "Proxy-Connection", "X-Real-IP"),
]
REFUSED_ALWAYS = [
    "Host",
    "Transfer_Encoding",
    "Content_Length",
    "TE",
    "Connection",
    "X_HTTP_Method_Override",
    "Proxy-Authorization",
]


@pytest.mark.parametrize("name", [*REFUSED_WITH_A_TARGET, *REFUSED_ALWAYS])
async def test_header_that_could_divert_or_hide_a_secret_is_refused_with_a_target(provider, name):
    ended = await call_and_fail(an_action(target_with_secret(provider.url)), url="", target="pay", headers={name: "x"})

    assert isinstance(ended, Fail)
    assert provider.asked == []
    if name in REFUSED_WITH_A_TARGET:
        assert "cannot be given with a target" in str(ended)
        assert (await ask(an_action(), url=provider.url, headers={name: "x"}))["status"] == 201


async def test_header_equivalent_to_a_target_header_is_refused(provider):
    action = an_action(a_target(provider.url, headers={"X-Account": "7"}, key_header="X-Once"))

    for name in ("X_Account", "x_once", "Idempotency_Key", "X_Api_Key"):
        assert isinstance(await call_and_fail(action, url="", target="pay", headers={name: "8"}), Fail)
    assert isinstance(await call_and_fail(an_action(), url=provider.url, headers={"X-A": "1", "X_A": "2"}), Fail)
    assert provider.asked == []


async def test_malformed_response_that_repeats_a_secret_is_masked(provider):
    def behaviour(handler: Handler, asked: Asked) -> None:
        handler.wfile.write(f"HTTP/1.1 200 OK\r\n{SECRET} no header\r\n\r\n".encode())

    provider.behaviour = behaviour
    ended = await call_and_fail(an_action(target_with_secret(provider.url)), url="", target="pay")

    assert isinstance(ended, MissingAnswer)
    assert "hunter2" not in "".join(traceback.format_exception(ended))


# Terms


@pytest.mark.parametrize(
    ("arguments", "terms"),
    [
        ({"method": "GET"}, ActionTerms(irreversible=False, timeout=35)),
        ({}, ActionTerms(irreversible=False, timeout=35)),
        ({"method": "head", "target": "dedupes"}, ActionTerms(irreversible=False, timeout=35)),
        ({"method": "POST"}, ActionTerms(timeout=35)),
        ({"method": "POST", "target": "missing"}, ActionTerms(timeout=35)),
        ({"method": ["POST"], "target": ["x"]}, ActionTerms(timeout=35)),
        ({"method": "DELETE", "target": "plain"}, ActionTerms(timeout=35)),
        (
            {"method": "POST", "target": "dedupes"},
            ActionTerms(on_unknown=OnUnknown.RESEND, idempotent_provider=True, idempotency_window=600, timeout=35),
        ),
        (
            {"method": "POST", "target": "for_ever"},
            ActionTerms(on_unknown=OnUnknown.RESEND, idempotent_provider=True, timeout=35),
        ),
        ({"method": "POST", "target": "asks"}, ActionTerms(idempotent_provider=True, timeout=35)),
        ({"method": "POST", "target": "assumes"}, ActionTerms(on_unknown=OnUnknown.ASSUME_DONE, timeout=35)),
    ],
)
def test_http_action_terms_depend_on_method_and_target(arguments, terms):
    action = an_action(
        ("plain", HttpTarget(base_url="https://a.example")),
        ("dedupes", HttpTarget(base_url="https://a.example", provider_dedupes=True, dedup_window=600)),
        ("for_ever", HttpTarget(base_url="https://a.example", provider_dedupes=True)),
        ("asks", HttpTarget(base_url="https://a.example", provider_dedupes=True, on_unknown="ask")),
        ("assumes", HttpTarget(base_url="https://a.example", on_unknown="assume_done")),
        timeout=30.0,
    )
    assert action.terms_for({"url": "", **arguments}) == terms


# The stub provider


async def test_stub_provider_dedupes_by_key_within_the_window(provider, tmp_path):
    action = an_action()
    await ask(action, url=provider.url)
    await ask(action, url=provider.url)
    assert len(provider.effects) == 2

    with a_provider(tmp_path / "effects") as deduplicating:
        deduplicating.honours_keys, deduplicating.window = True, 60
        assert [(await ask(action, url=deduplicating.url))["provider_ref"] for _ in range(2)] == ["made-1", "made-1"]
        deduplicating.later(60)
        assert (await ask(action, url=deduplicating.url))["provider_ref"] == "made-2"
        assert (tmp_path / "effects").read_text() == f"{KEY}\n" * 2


def at_paths(behaviours: dict[str, Behaviour], otherwise: Behaviour = creates) -> Behaviour:
    def behaviour(handler: Handler, asked: Asked) -> None:
        behaviours.get(asked.path, otherwise)(handler, asked)

    return behaviour


class CallOnLogLine(logging.Handler):
    """A context that calls a function when the library logs an event."""

    def __init__(self, event: str, act: Callable[[], None]) -> None:
        super().__init__()
        self._event, self._act = event, act
        self._logger = logging.getLogger("httpcore2")

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith(self._event):
            self._act()

    def __enter__(self) -> None:
        self._before = self._logger.level
        self._logger.setLevel(logging.DEBUG)
        self._logger.addHandler(self)

    def __exit__(self, *error: object) -> None:
        self._logger.removeHandler(self)
        self._logger.setLevel(self._before)
