"""The failures of built-in actions, as recorded in trigger, record and ledger, and the time of their retries."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from craftcore import App, RetryPolicy
from craftcore.config import CommandSettings, Config, EmailSettings, HttpSettings
from craftcore.config.http_targets import HttpTarget
from craftcore.daemon.builtin_actions import declare_ready_made
from tests.support.engine_harness import lab
from tests.support.fakes import NEW_YEAR, VirtualClock
from tests.support.http_provider import Provider, a_provider, done_and, replies
from tests.support.processes import PATIENCE
from tests.support.smtp_peers import a_server

pytestmark = pytest.mark.anyio

HOUR = 3600.0
MAIL = {"to": "ada@example.net", "subject": "Hello", "body": "Hello Ada"}


@pytest.fixture
def provider() -> Iterator[Provider]:
    with a_provider() as provider:
        yield provider


@pytest.fixture
def closed_port() -> Iterator[int]:
    """Yield a bound port without a listener."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


async def first_failure(
    folder: Path, workflow: str, payload: dict[str, Any], **settings: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run a built-in workflow until its first attempt fails. Return its trigger and the error of its record."""
    app, config = App(), replace(Config(), **settings)
    declare_ready_made(app, config, os.environ)
    app._workflows[workflow] = replace(app.workflows[workflow], retry=RetryPolicy(base=HOUR, cap=HOUR))
    async with lab(app, folder, clock=VirtualClock()) as harness:
        emitted = await app.emit(workflow, payload)
        await harness.until(lambda: harness.trigger(emitted.id)["error_code"] is not None)
        ledger = harness.rows("SELECT status, error_code FROM activity_log")
        error = harness.response(emitted.id)["error"]
        assert error["code"] == harness.trigger(emitted.id)["error_code"]
        return harness.trigger(emitted.id), error | {"ledger": [tuple(row.values()) for row in ledger]}


def http(**targets: HttpTarget) -> HttpSettings:
    return HttpSettings(timeout=PATIENCE, allow_private=True, target=targets)


def is_delayed(row: dict[str, Any]) -> bool:
    return row["status"] == "PENDING" and HOUR / 2 <= float(row["not_before"]) - NEW_YEAR <= HOUR


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_closed_port_fails_as_a_transport_error_and_is_retried(tmp_path, closed_port, method):
    asked = {"url": f"http://127.0.0.1:{closed_port}/", "method": method}

    row, error = await first_failure(tmp_path, "http.request", asked, http=http())

    assert is_delayed(row)
    assert (error["code"], error["retryable"], error["effect_possible"]) == ("TRANSPORT_ERROR", True, False)
    assert error["ledger"] == ([("FAILED", "TRANSPORT_ERROR")] if method == "POST" else [])


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_rate_limited_request_is_retried_at_the_retry_after_time(tmp_path, provider, method):
    provider.behaviour = replies(429, Retry_After="7")

    row, error = await first_failure(tmp_path, "http.request", {"url": provider.url, "method": method}, http=http())

    assert (row["status"], row["not_before"]) == ("PENDING", NEW_YEAR + 7)
    assert (error["code"], error["retryable"], error["retry_after"]) == ("RATE_LIMIT", True, 7)
    assert error["ledger"] == ([("FAILED", "RATE_LIMIT")] if method == "POST" else [])


@pytest.mark.parametrize(("status", "code"), [(503, "AGENT_UNAVAILABLE"), (504, "AGENT_TIMEOUT")])
async def test_busy_provider_is_not_retried_before_the_retry_after_time(tmp_path, provider, status, code):
    provider.behaviour = replies(status, Retry_After="20000")

    row, error = await first_failure(tmp_path, "http.request", {"url": provider.url}, http=http())

    assert (row["status"], row["not_before"], error["code"]) == ("PENDING", NEW_YEAR + 20_000, code)


async def test_request_in_doubt_at_a_busy_provider_waits_for_the_retry_after_time(tmp_path, provider):
    provider.behaviour = done_and(replies(503, Retry_After="20000"))
    target = HttpTarget(base_url=provider.url, provider_dedupes=True)
    asked = {"url": "", "method": "POST", "target": "pay"}

    row, error = await first_failure(tmp_path, "http.request", asked, http=http(pay=target))

    assert (row["status"], row["not_before"]) == ("PENDING", NEW_YEAR + 20_000)
    assert (error["code"], error["effect_possible"]) == ("ACTIVITY_UNKNOWN", True)
    assert error["ledger"] == [("UNKNOWN", "ACTIVITY_UNKNOWN")]


@pytest.mark.parametrize(
    ("status", "code"),
    [(401, "UNAUTHORIZED"), (403, "UNAUTHORIZED"), (404, "AGENT_ERROR"), (422, "VALIDATION_ERROR")],
)
async def test_refused_request_fails_without_a_retry(tmp_path, provider, status, code):
    provider.behaviour = replies(status)

    row, error = await first_failure(tmp_path, "http.request", {"url": provider.url, "method": "POST"}, http=http())

    assert (row["status"], error["code"], error["retryable"]) == ("FAILED", code, False)
    assert (error["details"], error["effect_possible"], error["ledger"]) == (
        {"status": status},
        False,
        [("FAILED", code)],
    )


async def test_command_that_is_missing_failing_or_slow_fails_with_a_fitting_code(tmp_path):
    command = CommandSettings(timeout=PATIENCE)
    for argv, timeout, code, status in (
        (["/no/such/program"], None, "VALIDATION_ERROR", "FAILED"),
        (["sh", "-c", "exit 3"], None, "AGENT_ERROR", "PENDING"),
        (["sleep", "600"], 0.05, "AGENT_TIMEOUT", "PENDING"),
    ):
        folder = tmp_path / code
        folder.mkdir()
        payload = {"argv": argv, "timeout": timeout}
        row, error = await first_failure(folder, "command.run", payload, command=command)
        assert (row["status"], error["code"], error["ledger"]) == (status, code, [])


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_mail_server_that_is_absent_busy_or_refusing_fails_with_a_fitting_code(tmp_path, closed_port):
    async def mailed(folder: str, port: int) -> tuple[str, str]:
        (tmp_path / folder).mkdir()
        email = EmailSettings(
            host="127.0.0.1", port=port, security="none", sender="house@example.org", timeout=PATIENCE
        )
        row, error = await first_failure(tmp_path / folder, "email.send", MAIL, email=email)
        assert error["ledger"] == [("FAILED", error["code"])]
        return row["status"], error["code"]

    assert await mailed("away", closed_port) == ("PENDING", "TRANSPORT_ERROR")
    async with a_server(None, None, MAIL="451 later") as server:
        assert await mailed("busy", server.port) == ("PENDING", "AGENT_UNAVAILABLE")
    async with a_server(None, None, MAIL="530 who are you") as server:
        assert await mailed("who", server.port) == ("FAILED", "UNAUTHORIZED")
