"""The options of declarations and the arguments of outcomes: invalid values are refused with a reason."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from craftcore import App, Continue, CraftcoreError, Fail, NoEffect, Rate, Retry, RetryPolicy, Snooze, TaskContext
from craftcore.config import Config
from craftcore.daemon.declared_schedules import declarations
from craftcore.errors import ConfigInvalid
from craftcore.services import Services
from tests.support.engine_harness import lab

HOSTILE: dict[str, Any] = {
    "None": None,
    "text": "30s",
    "a number as text": "3",
    "no text": "",
    "True": True,
    "NaN": math.nan,
    "infinity": math.inf,
    "negative": -1,
    "zero": 0,
    "a whole number": 3,
    "a fraction": 1.5,
    "ten thousand digits": 10**10_000,
    "seconds": timedelta(seconds=3),
    "a negative time": timedelta(seconds=-3),
    "bytes": b"3",
    "a list": [3],
    "a mapping": {3: 3},
    "an object": object(),
    "a function": len,
    "a class": int,
    "a moment": datetime(2030, 1, 1, tzinfo=UTC),
    "a moment without a zone": datetime(2030, 1, 1),  # noqa: DTZ001
}


async def nothing(**rest: Any) -> None:
    pass


async def call_nothing(call: Any) -> None:
    pass


def workflow(**options: Any) -> None:
    App().workflow("flow", **options)(nothing)


def agents(**options: Any) -> None:
    App().declare("flow", nothing, **options)


def action(**options: Any) -> None:
    App().action("act", **options)(call_nothing)


def irreversible(**options: Any) -> None:
    App().action("act", irreversible=True, idempotent_provider=True, **options)(call_nothing)


def provider(**options: Any) -> None:
    App().action("act", irreversible=True, **options)(call_nothing)


def fail(**options: Any) -> None:
    Fail(**options)


def rate(**options: Any) -> None:
    Rate(**{"count": 1, "per": 60, **options})


SECONDS = {"a whole number", "a fraction", "seconds", "text", "a number as text"}
OPTIONS: list[tuple[Callable[..., Any], str, set[str]]] = [
    (App, "router", {"None"}),
    (workflow, "max_attempts", {"None", "a whole number"}),
    (workflow, "timeout", {"None", *SECONDS}),
    (workflow, "retry", {"None"}),
    (workflow, "concurrency", {"None", "a whole number"}),
    (workflow, "rate", {"None"}),
    (workflow, "version", {"None", "text", "a number as text"}),
    (workflow, "sources", set()),
    (workflow, "fallback", set()),
    (agents, "task_when", {"None", "a function", "a class"}),
    (action, "irreversible", {"None", "True"}),
    (action, "timeout", SECONDS),
    (irreversible, "on_unknown", {"None"}),
    (irreversible, "timeout", SECONDS),
    (irreversible, "settle_after", {"None", "zero", *SECONDS}),
    (irreversible, "idempotency_window", {"None"}),
    (provider, "idempotent_provider", {"True"}),
    (RetryPolicy, "max_attempts", {"a whole number"}),
    (RetryPolicy, "base", {"zero", *SECONDS}),
    (RetryPolicy, "cap", {"text"}),  # the others are less than the base
    (rate, "count", {"a whole number"}),
    (rate, "per", SECONDS),
    (Retry, "after", {"None", "zero", *SECONDS}),
    (Retry, "code", set()),
    (NoEffect, "retry_after", {"None", "zero", *SECONDS}),
    (NoEffect, "code", set()),
    (Snooze, "until", {"zero", "a whole number", "a fraction", "a moment"}),
    (fail, "code", {"text", "a number as text"}),
]


@pytest.mark.parametrize(
    ("declare", "option", "fits"), OPTIONS, ids=[f"{fn.__name__}-{name}" for fn, name, _ in OPTIONS]
)
def test_declaration_accepts_valid_values_and_refuses_others_with_a_sentence(declare, option, fits):
    refused = {
        name: refusal for name, value in HOSTILE.items() if (refusal := _refusal(declare, option, value)) is not None
    }

    assert HOSTILE.keys() - refused.keys() == fits
    assert [
        refusal
        for refusal in refused.values()
        if option.removesuffix("s") not in refusal or not _names_expected_values(refusal)
    ] == []


def _refusal(declare: Callable[..., Any], option: str, value: Any) -> str | None:
    """Return the message of the refusal, or None when the value is accepted."""
    try:
        declare(**{option: value})
    except (CraftcoreError, ValueError) as error:
        return str(error)
    return None


def _names_expected_values(refusal: str) -> bool:
    return " must " in refusal or "is not an error code. Those that are tried again:" in refusal


def test_duration_that_is_no_duration_is_refused_with_an_example():
    with pytest.raises(ConfigInvalid) as refused:
        workflow(timeout="soon")

    assert refused.value.message == (
        """workflow flow: timeout 'soon' must be seconds, a timedelta, or text like "10m" and "1h30m\""""
    )


@pytest.mark.parametrize("option", ["catch_up_window", "catch_up_spacing", "jitter", "expires_after", "max_runs", "id"])
def test_invalid_schedule_is_refused_in_a_sentence_before_the_app_runs(option, tmp_path):
    core = Services(tmp_path / "agent.db", Config())

    def schedule(**options: Any) -> None:
        app = App()
        app.workflow("flow")(nothing)
        app.schedule(**{"id": "brief", "when": "every 2h", "workflow": "flow", **options})
        declarations(app, Config(), core.schedules)

    refused = [refusal for value in HOSTILE.values() if (refusal := _refusal(schedule, option, value)) is not None]

    assert len(refused) > len(HOSTILE) / 2
    assert [refusal for refusal in refused if not _names_expected_values(refusal)] == []


async def sleeps(ctx: TaskContext, value: Any) -> None:
    await ctx.sleep(value)


async def sleeps_until(ctx: TaskContext, value: Any) -> None:
    await ctx.sleep_until(value)


async def waits(ctx: TaskContext, value: Any) -> None:
    await ctx.wait_for("paid", timeout=value)


async def waits_for(ctx: TaskContext, value: Any) -> None:
    await ctx.wait_for(value)


async def asks(ctx: TaskContext, value: Any) -> None:
    await ctx.ask("go?", value)


async def asks_for_long(ctx: TaskContext, value: Any) -> None:
    await ctx.ask("go?", timeout=value)


async def asks_by_message(ctx: TaskContext, value: Any) -> None:
    await ctx.ask("go?", by_message=value)


async def asks_with_default(ctx: TaskContext, value: Any) -> None:
    await ctx.ask("go?", default=value)


async def retries(ctx: TaskContext, value: Any) -> None:
    await ctx.step("step", nothing, retry=value)


async def steps(ctx: TaskContext, value: Any) -> None:
    await ctx.step("step", value)


async def reruns(ctx: TaskContext, value: Any) -> None:
    await ctx.step("step", nothing, on_change=value)


async def keys(ctx: TaskContext, value: Any) -> None:
    await ctx.step("step", nothing, key=value)


async def reads(ctx: TaskContext, value: Any) -> None:
    await ctx.events(value)


async def emits(ctx: TaskContext, value: Any) -> None:
    await ctx.emit("flow", {}, delay=value)


async def starts(ctx: TaskContext, value: Any) -> None:
    await ctx.start_child("flow", {}, max_attempts=value)


async def expects(ctx: TaskContext, value: Any) -> None:
    child = await ctx.start_child("flow", {"nr": "0"})
    await child.result(timeout=value)


async def continues_after(ctx: TaskContext, value: Any) -> Any:
    return Continue({}, after=value)


async def continues_on(ctx: TaskContext, value: Any) -> Any:
    return Continue({}, on=value)


async def acts(ctx: TaskContext, value: Any) -> None:
    await ctx.act(value)


async def fails(ctx: TaskContext, value: Any) -> None:
    raise Retry(after=value)


CALLS: list[tuple[Callable[..., Any], str, set[str]]] = [
    (sleeps, "ctx.sleep: seconds", SECONDS | {"zero"}),
    (sleeps_until, "at ", SECONDS | {"zero", "a number as text", "a moment"}),
    (waits, "ctx.wait_for: timeout", SECONDS | {"zero", "None"}),
    (waits_for, "event", {"text", "a number as text"}),
    (asks, "option", {"None"}),
    (asks_for_long, "ctx.ask: timeout", SECONDS | {"zero", "None"}),
    (asks_by_message, "ctx.ask: by_message", {"True"}),
    (asks_with_default, "default", {"None", "text", "a number as text"}),
    (retries, "step 'step': retry", {"None"}),
    (steps, "step 'step': fn", {"a class", "a function"}),
    (reruns, "step 'step': on_change", set()),
    (keys, "step key", {"None", "text", "a number as text"}),
    (reads, "ctx.events: limit", {"a whole number"}),
    (emits, "delay", SECONDS | {"zero", "None"}),
    (starts, "max_attempts", {"None", "a whole number"}),
    (expects, "child.result: timeout", SECONDS | {"zero", "None"}),
    (continues_after, "Continue: after", SECONDS | {"zero", "None"}),
    (continues_on, "Continue(on=", {"None", "text", "a number as text"}),
    (acts, "action", set()),
    (fails, "Retry: after", SECONDS | {"zero", "None"}),
]


@pytest.mark.anyio
async def test_invalid_argument_of_a_turn_fails_only_that_trigger_with_a_sentence(tmp_path):
    """One engine runs every call with every invalid value."""
    app = App()
    values = list(HOSTILE.items())
    for call, _, _ in CALLS:
        app.declare(call.__name__, _call_with(values, call), max_attempts=1)

    @app.workflow("flow")
    async def child(nr: str = "0") -> None:
        pass

    async with lab(app, tmp_path) as it:
        ids = {}
        for (call, _, fits), nr in itertools.product(CALLS, range(len(values))):
            if values[nr][0] not in fits:
                emitted = await app.emit(call.__name__, {"nr": nr})
                ids[emitted.id] = (call.__name__, values[nr][0])
        rows = {id: await it.settled(id) for id in ids}

    expected = {call.__name__: part for call, part, _ in CALLS}
    wrong = {
        ids[id]: (row["status"], row["error_message"])
        for id, row in rows.items()
        if row["status"] not in ("FAILED", "DEAD")
        or expected[ids[id][0]] not in str(row["error_message"])
        or row["error_message"].startswith(("'", "TypeError", "unsupported"))
    }
    assert wrong == {}


def _call_with(values: list[tuple[str, Any]], call: Callable[..., Any]) -> Callable[..., Any]:
    async def flow(ctx: TaskContext, nr: int) -> Any:
        return await call(ctx, values[nr][1])

    return flow


def test_duration_is_written_as_seconds_timedelta_or_text():
    for duration in (90, 90.0, timedelta(seconds=90), "90", "90s", "1m30s", "1.5 m"):
        assert Rate(1, per=duration).seconds == 90
