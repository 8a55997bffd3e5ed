"""The chat model client over a real socket: responses, limits, timeouts and errors that contain no key."""

from __future__ import annotations

import json
import logging
import re
import socket
import sys
import traceback
from collections.abc import Iterator
from typing import Any

import anyio
import anyio.to_thread
import pytest

from craftcore.actions.llm.chat_model import BODY_MAX_BYTES, ChatModel, ModelFailed
from craftcore.errors import ConfigInvalid
from tests.support.processes import PATIENCE
from tests.support.stub_model import StubModel, a_stub, completion, drips, hangs, never_ends, replies, says

pytestmark = pytest.mark.anyio

KEY = "sk-a/secret+key=42"
TIMEOUTS = (0.1, 1, 8, 30, PATIENCE)
"""Timeouts in seconds; the test tries the next one if a slow machine did not send the request in time."""


@pytest.fixture
def stub() -> Iterator[StubModel]:
    with a_stub() as stub:
        yield stub


def a_model(base_url: str, model: str = "small", **settings: Any) -> ChatModel:
    wanted = {"api_key": None, "timeout": PATIENCE, "parameters": {}, "allow_plain_http": False} | settings
    return ChatModel(base_url, model, **wanted)


async def refusal(model: ChatModel) -> ModelFailed:
    """Return the error of a failed call of the model."""
    with pytest.raises(ModelFailed) as refused:
        await model.ask("Be brief.", "Which one?")
    return refused.value


async def test_chat_model_sends_a_chat_completion_and_returns_the_answer(stub):
    stub.answer = says(" the second ")
    model = a_model(stub.url + "/", "small", parameters={"temperature": 0, "max_tokens": 9})

    assert await model.ask("Be brief.", "Which one? Ä\ud800") == " the second "

    [asked] = stub.asked
    assert asked.path == "/v1/chat/completions"
    assert asked.headers["content-type"] == "application/json"
    assert "authorization" not in asked.headers
    assert asked.body == {
        "model": "small",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Which one? Ä\ud800"}],
        "temperature": 0,
        "max_tokens": 9,
        "stream": False,
    }


async def test_chat_model_works_in_successive_event_loops(stub):
    """A router is made at the import of a module, and each use may have its own event loop."""
    model = a_model(stub.url)
    assert await model.ask("", "") == "new"
    assert await anyio.to_thread.run_sync(anyio.run, model.ask, "", "") == "new"


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (500, b"<h1>Oops</h1>", "HTTP status 500$"),
        (503, b"", "HTTP status 503$"),
        (401, {"error": {"message": "no such key", "type": "auth"}}, "HTTP status 401: no such key$"),
        (404, {"error": "model 'small' not found"}, "HTTP status 404: model 'small' not found$"),
        (400, {"object": "error", "message": "too\nlong" + "!" * 9999}, "HTTP status 400: too\nlong!{191}…$"),
        (400, {"error": {"message": ["what"]}}, "HTTP status 400$"),
        (400, b"[" * 50_000, "HTTP status 400$"),
        (204, b"", "HTTP status 204$"),
        (200, b"", "something else than a chat completion"),
        (200, b"<h1>Welcome</h1>", "something else than a chat completion"),
        (200, b"\xff\xfe\x00", "something else than a chat completion"),
        (200, b"[" * 50_000, "something else than a chat completion"),
        (200, [], "something else than a chat completion"),
        (200, {"choices": []}, "something else than a chat completion"),
        (200, {"choices": {"0": completion("new")}}, "something else than a chat completion"),
        (200, {"choices": [{"text": "new"}]}, "something else than a chat completion"),
        (200, completion(None), "something else than a chat completion"),
        (200, completion(2), "something else than a chat completion"),
        (200, completion("new" * BODY_MAX_BYTES), f"more than {BODY_MAX_BYTES} bytes$"),
    ],
)
async def test_chat_model_reports_a_response_that_is_no_completion(stub, status, body, expected):
    stub.answer = replies(status, body)
    model = a_model(stub.url)

    error = await refusal(model)

    assert re.search(expected, str(error)), error
    assert str(error).startswith(f"small at {stub.url} answered with ")
    assert len(str(error)) < 400
    assert len(stub.asked) == 1


@pytest.mark.parametrize(
    ("status", "headers", "code", "wait"),
    [
        (400, {}, "VALIDATION_ERROR", None),
        (401, {}, "UNAUTHORIZED", None),
        (403, {}, "UNAUTHORIZED", None),
        (404, {}, "AGENT_ERROR", None),
        (408, {}, "AGENT_TIMEOUT", None),
        (429, {"Retry-After": "7"}, "RATE_LIMIT", 7),
        (429, {}, "RATE_LIMIT", None),
        (429, {"Retry-After": "Fri, 20 Nov 2020 12:00:00 GMT"}, "RATE_LIMIT", 0),
        (500, {}, "AGENT_UNAVAILABLE", None),
        (503, {"Retry-After": "999999"}, "AGENT_UNAVAILABLE", 86_400),
        (504, {}, "AGENT_TIMEOUT", None),
    ],
)
async def test_chat_model_error_carries_code_and_retry_after(stub, status, headers, code, wait):
    stub.answer = replies(status, b"{}", **headers)

    error = await refusal(a_model(stub.url))

    assert (error.code, error.retry_after) == (code, wait)


async def test_chat_model_answer_is_limited_to_the_maximum_size(stub):
    empty = len(json.dumps(completion("")))
    stub.answer = says("n" * (BODY_MAX_BYTES - empty))
    assert len(await a_model(stub.url).ask("", "")) == BODY_MAX_BYTES - empty
    stub.answer = says("n" * (BODY_MAX_BYTES - empty + 1))
    assert "more than" in str(await refusal(a_model(stub.url)))


async def test_chat_model_stops_reading_an_endless_answer(stub):
    stub.answer = never_ends
    assert f"more than {BODY_MAX_BYTES} bytes" in str(await refusal(a_model(stub.url)))
    assert await anyio.to_thread.run_sync(stub.left.wait, PATIENCE)


async def test_chat_model_timeout_covers_the_whole_request(stub):
    """The timeout also ends a request whose response has begun."""
    stub.answer = drips
    for seconds in TIMEOUTS:
        error = await refusal(a_model(stub.url, timeout=seconds))
        assert str(error) == f"small at {stub.url} did not answer within {seconds:g} seconds"
        assert error.code == "AGENT_TIMEOUT"
        if stub.began.is_set():
            break
    assert stub.began.is_set()
    assert not stub.released.is_set()


async def test_chat_model_request_stops_at_once_when_cancelled(stub):
    stub.answer = hangs(says("new"))
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as asking:
            asking.start_soon(a_model(stub.url, timeout=3600).ask, "", "")
            assert await anyio.to_thread.run_sync(stub.began.wait, PATIENCE)
            asking.cancel_scope.cancel()
    assert not stub.released.is_set()


async def test_closed_model_port_fails_as_a_transport_error():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # bound, without a listener
        url = f"http://127.0.0.1:{bound.getsockname()[1]}/v1"
        error = await refusal(a_model(url))
        assert str(error).startswith(f"small at {url} cannot be talked to: ")
        assert error.code == "TRANSPORT_ERROR"


async def test_chat_model_reports_a_peer_without_http(stub):
    stub.answer = lambda handler, asked: handler.wfile.write(b"220 mail.example ESMTP\r\n")
    assert "cannot be talked to" in str(await refusal(a_model(stub.url)))


async def test_chat_model_does_not_fall_back_from_tls_to_clear_text(stub):
    model = a_model(stub.url.replace("http:", "https:"), api_key=KEY)
    assert "cannot be talked to" in str(await refusal(model))
    assert stub.asked == []


# The key


async def test_chat_model_sends_the_key_as_a_bearer_token(stub):
    await a_model(stub.url, api_key=KEY).ask("", "")
    [asked] = stub.asked
    assert asked.headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_chat_model_does_not_follow_redirects(stub, status):
    with a_stub() as elsewhere:
        stub.answer = replies(status, Location=f"{elsewhere.url}/chat/completions")
        error = await refusal(a_model(stub.url, api_key=KEY))
        assert f"HTTP status {status}, a redirect, which is not followed" in str(error)
        assert elsewhere.asked == []


async def test_chat_model_ignores_proxies_of_the_environment(stub, monkeypatch):
    with a_stub() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url.removesuffix("/v1"))
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        assert await a_model(stub.url, api_key=KEY).ask("", "") == "new"
        assert proxy.asked == []


async def test_model_key_appears_in_no_error_or_log_line(stub, caplog):
    """The endpoint repeats the key in its response."""
    caplog.set_level(logging.DEBUG)
    echo = {"error": {"message": f"{KEY} is no key"}}
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        deaf = a_model(f"http://127.0.0.1:{bound.getsockname()[1]}", api_key=KEY)
        errors = [await refusal(deaf)]
    model = a_model(stub.url, api_key=KEY)
    for answer in (replies(401, echo), replies(302, Location="/"), replies(200, b"?"), lambda handler, asked: None):
        stub.answer = answer
        errors.append(await refusal(model))
    stub.answer = hangs(says("new"))
    errors.append(await refusal(a_model(stub.url, api_key=KEY, timeout=0.01)))
    stub.released.set()
    stub.answer = says(f"your key is {KEY}")

    assert await model.ask("", "") == "your key is ***"
    assert "*** is no key" in str(errors[1])
    texts = [repr(model), str(model), caplog.text]
    for error in errors:
        texts += [str(error), repr(error), *traceback.format_exception(error)]
    assert "httpx" in caplog.text
    assert not any("secret" in text for text in texts)


# Settings


@pytest.mark.parametrize(
    "base_url",
    [
        "https://model.example/v1",
        "https://model.example",
        "http://127.0.0.1:11434/v1",
        "http://127.8.8.8/v1",
        "http://[::1]:11434/v1",
        "http://LOCALHOST:11434/v1",
    ],
)
def test_model_key_is_accepted_for_https_and_loopback(base_url):
    a_model(base_url, api_key=KEY)


@pytest.mark.parametrize(
    "base_url",
    [
        "http://model.example/v1",
        "http://192.168.0.7:8000/v1",
        "http://0.0.0.0/v1",
        "http://localhost.example/v1",
        "http://127.0.0.1.example/v1",
        "http://2130706433/v1",
        "http://[2001:db8::1]/v1",
    ],
)
def test_model_key_in_clear_text_to_another_machine_is_refused(base_url):
    with pytest.raises(ConfigInvalid, match="would travel in clear text") as refused:
        a_model(base_url, api_key=KEY)
    assert "secret" not in str(refused.value)
    a_model(base_url, api_key=KEY, allow_plain_http=True)
    a_model(base_url)


@pytest.mark.parametrize(
    ("settings", "mistake"),
    [
        ({"base_url": ""}, "base_url must be like"),
        ({"base_url": None}, "base_url must be like"),
        ({"base_url": "localhost:11434/v1"}, "base_url must be like"),
        ({"base_url": "ftp://model.example/v1"}, "base_url must be like"),
        ({"base_url": "file:///etc/passwd"}, "base_url must be like"),
        ({"base_url": "http:///v1"}, "base_url must be like"),
        ({"base_url": "http://127.0.0.1:0/v1"}, "base_url must be like"),
        ({"base_url": "http://127.0.0.1:65536/v1"}, "base_url must be like"),
        ({"base_url": "http://127.0.0.1\n/v1"}, "base_url must be like"),
        ({"base_url": "https://me:secret@model.example/v1"}, "base_url must have no user"),
        ({"base_url": "https://model.example/v1?key=secret"}, "base_url must have no user"),
        ({"base_url": "https://model.example/v1#secret"}, "base_url must have no user"),
        ({"api_key": ""}, "api_key must be"),
        ({"api_key": "secret\n"}, "api_key must be .* line break"),
        ({"api_key": "sec ret"}, "api_key must be"),
        ({"api_key": "secrét"}, "api_key must be"),
        ({"api_key": b"secret"}, "api_key must be"),
        ({"api_key": "secret" * 1000}, "api_key must be"),
        ({"model": ""}, "model must be"),
        ({"model": "a\nb"}, "model must be"),
        ({"model": "m" * 201}, "model must be"),
        ({"model": None}, "model must be"),
        ({"timeout": 0}, "timeout must be"),
        ({"timeout": -1.0}, "timeout must be"),
        ({"timeout": float("nan")}, "timeout must be"),
        ({"timeout": float("inf")}, "timeout must be"),
        ({"timeout": 3601}, "timeout must be"),
        ({"timeout": True}, "timeout must be"),
        ({"timeout": "soon"}, "timeout must be"),
        ({"parameters": {"stream": True, "model": "x"}}, "parameters must not hold model, stream"),
        ({"parameters": {"temperature": float("nan")}}, "parameters must be JSON"),
        ({"parameters": {"stop": {1, 2}}}, "parameters must be JSON"),
    ],
)
def test_chat_model_with_invalid_settings_is_refused_at_construction(settings, mistake):
    with pytest.raises(ConfigInvalid, match=mistake) as refused:
        a_model(**{"base_url": "http://127.0.0.1:11434/v1", **settings})
    assert "secret" not in "".join(traceback.format_exception(refused.value)).partition("ConfigInvalid: ")[2]
    assert len(str(refused.value).splitlines()) == 1


def test_chat_model_reports_all_invalid_settings_together():
    with pytest.raises(ConfigInvalid) as refused:
        a_model("nowhere", "", api_key="", timeout=0, parameters={"stream": True})
    assert len(str(refused.value).splitlines()) == 5


def test_missing_model_library_is_named_with_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "httpx2", None)
    with pytest.raises(ConfigInvalid, match=re.escape("pip install 'craftcore[llm]'")):
        a_model("http://127.0.0.1:11434/v1")
