"""The built-in workflow `http.request`, emitted by name, with a real engine and a real provider."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from craftcore import App, InvalidInput, TaskContext
from craftcore.config import Config, HttpSettings
from craftcore.config.http_targets import HttpTarget, SecretHeader
from craftcore.daemon.builtin_actions import declare_ready_made
from tests.actions.test_http import CallOnLogLine
from tests.support.engine_harness import Lab, lab, settings
from tests.support.http_provider import (
    Provider,
    a_provider,
    answers_too_late,
    breaks_off,
    done_and,
    once,
    replies,
    resets,
)
from tests.support.processes import PATIENCE
from tests.support.turns import failure, result

pytestmark = pytest.mark.anyio

SECRET = "sk-hunter2"


@pytest.fixture
def provider() -> Iterator[Provider]:
    with a_provider() as provider:
        yield provider


def build_app(provider: Provider, **target: Any) -> tuple[App, Config]:
    """Build an app and settings in which the target `pay` is the provider."""
    app = App()
    headers = {"Authorization": SecretHeader(secret="env:PAY_KEY", prefix="Bearer ")}
    known = HttpTarget(base_url=provider.url, headers=headers, allow_private=True, **target)
    config = replace(settings(), http=HttpSettings(timeout=PATIENCE, target={"pay": known}))
    declare_ready_made(app, config, {"PAY_KEY": SECRET})
    return app, config


CHARGE = {"method": "POST", "target": "pay", "url": "charges", "json": {"amount": 5}}


def ledger(harness: Lab) -> list[dict[str, Any]]:
    return harness.rows("SELECT * FROM activity_log ORDER BY seq")


async def test_http_request_is_emitted_by_name_and_done_once(provider, tmp_path):
    app, config = build_app(provider)
    async with lab(app, tmp_path, config) as harness:
        task = (await app.emit("http.request", CHARGE)).id
        got = result(await harness.ended(task))

        assert (got["status"], got["provider_ref"]) == (201, "made-1")
        [row] = ledger(harness)
        assert (row["status"], row["provider_ref"]) == ("DONE", "made-1")
        assert provider.effects[0].key == row["idem_key"] == f"activity:{task}:1.1"
        assert provider.effects[0].headers["authorization"] == f"Bearer {SECRET}"


@pytest.mark.parametrize("payload", [{}, {"url": 3}, {"url": "/", "headers": []}, {"url": "/", "methd": "GET"}])
async def test_http_payload_that_is_not_a_request_is_refused_at_emit(provider, tmp_path, payload):
    app, config = build_app(provider)
    async with lab(app, tmp_path, config):
        with pytest.raises(InvalidInput):
            await app.emit("http.request", payload)


@pytest.mark.parametrize("behaviour", [done_and(resets), resets])
async def test_lost_answer_of_a_deduplicating_provider_is_a_single_effect(provider, tmp_path, behaviour):
    provider.honours_keys = True
    provider.behaviour = once(behaviour)
    app, config = build_app(provider, provider_dedupes=True)
    async with lab(app, tmp_path, config) as harness:
        got = result(await harness.ended((await app.emit("http.request", CHARGE)).id))

        assert got["provider_ref"] == "made-1"
        assert len(provider.asked) == 2
        assert len(provider.effects) == 1
        assert [row["status"] for row in ledger(harness)] == ["DONE"]
        assert await app.questions() == []


@pytest.mark.parametrize(
    ("choice", "effects", "ends"),
    [("happened", 1, {"provider_ref": "by phone"}), ("resend", 2, "made-2"), ("give up", 1, "ACTIVITY_UNKNOWN")],
)
async def test_lost_answer_of_another_provider_asks_a_person(provider, tmp_path, choice, effects, ends):
    provider.behaviour = once(done_and(resets))
    app, config = build_app(provider)
    async with lab(app, tmp_path, config) as harness:
        task = (await app.emit("http.request", CHARGE)).id
        await harness.waiting(task)
        [question] = await app.questions()
        assert question.options == ("happened", "resend", "give up")
        assert [row["status"] for row in ledger(harness)] == ["UNKNOWN"]

        reference = {"reference": "by phone"} if choice == "happened" else {}
        await app.answer(question.id, choice, answered_by="ada", **reference)
        row = await harness.ended(task)

        if choice == "give up":
            assert failure(row)[0] == ends
        else:
            got = result(row)
            assert (got if choice == "happened" else got["provider_ref"]) == ends
        assert len(provider.effects) == effects


async def test_request_refused_by_the_provider_is_not_repeated_and_raises_no_question(provider, tmp_path):
    provider.behaviour = replies(402, {"error": {"message": f"declined for {SECRET}"}})
    app, config = build_app(provider)
    async with lab(app, tmp_path, config) as harness:
        row = await harness.ended((await app.emit("http.request", CHARGE)).id)

        assert failure(row) == ("AGENT_ERROR", "answered with HTTP status 402: declined for ***")
        assert [row["status"] for row in ledger(harness)] == ["FAILED"]
        assert len(provider.asked) == 1


async def test_get_request_is_not_in_the_ledger_and_is_retried(provider, tmp_path):
    provider.behaviour = once(breaks_off(200), replies(200, {"id": 7}))
    app, config = build_app(provider)
    async with lab(app, tmp_path, config) as harness:
        got = result(await harness.ended((await app.emit("http.request", {"url": "x", "target": "pay"})).id))

        assert (got["status"], got["body"]) == (200, '{"id": 7}')
        assert len(provider.asked) == 2
        assert ledger(harness) == []


async def test_workflow_may_call_the_http_action_by_name(provider, tmp_path):
    app, config = build_app(provider)

    @app.workflow("order")
    async def order(ctx: TaskContext) -> list[Any]:
        charge = await ctx.act("http.request", key="charge", **CHARGE)
        status = await ctx.act("http.request", target="pay", url="charges/1", headers={"Accept": "text/plain"})
        return [charge["provider_ref"], status["status"]]

    async with lab(app, tmp_path, config) as harness:
        assert result(await harness.ended((await app.emit("order")).id)) == ["made-1", 201]


async def test_task_cancelled_while_connecting_leaves_no_doubt(provider, tmp_path):
    """A task whose request has left is in doubt instead."""
    app, config = build_app(provider)
    provider.behaviour = done_and(answers_too_late)
    public = replace(config.http, allow_private=True)
    connecting = App()
    declare_ready_made(connecting, replace(config, http=public), {})
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://127.0.0.1:{silent.getsockname()[1]}/"
        async with lab(connecting, tmp_path, config) as harness:
            with CallOnLogLine("start_tls.started", lambda: begun.append(True)):
                begun: list[bool] = []
                task = (await connecting.emit("http.request", {"method": "POST", "url": url})).id
                await harness.until(lambda: bool(begun))
            await connecting.cancel_task(task)
            assert (await harness.ended(task))["status"] == "CANCELLED"
            assert [(row["status"], row["error_message"]) for row in ledger(harness)] == [
                ("FAILED", "cancelled before anything was sent")
            ]
    async with lab(app, tmp_path, config) as harness:
        task = (await app.emit("http.request", CHARGE)).id
        await harness.until(provider.began.is_set)
        await app.cancel_task(task)
        assert (await harness.ended(task))["status"] == "CANCELLED"
        assert ledger(harness)[-1]["status"] == "UNKNOWN"


async def test_secret_is_not_stored_even_when_the_provider_repeats_the_secret(provider, tmp_path):
    app, config = build_app(provider)
    provider.behaviour = replies(201, {"id": SECRET, "echo": f"Bearer {SECRET}"}, X_Echo=SECRET)
    async with lab(app, tmp_path, config) as harness:
        got = result(await harness.ended((await app.emit("http.request", CHARGE)).id))
        assert got["provider_ref"] == "***"

    files: list[Path] = [path for path in tmp_path.iterdir() if path.is_file()]
    assert files
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]
    assert SECRET not in json.dumps(got)


async def test_builtin_action_does_not_replace_an_action_of_the_app(provider):
    app = App()

    @app.workflow("http.request")
    async def own_workflow() -> None:
        pass

    @app.action("http.request")
    async def own_action(call: Any) -> None:
        pass

    declare_ready_made(app, Config(), {})

    assert app.workflows["http.request"].fn is own_workflow
    assert app.actions["http.request"] is own_action
