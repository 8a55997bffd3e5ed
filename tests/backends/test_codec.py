"""A value of each type comes through each call as it is, the first time and at a re-entry, over both backends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from craftcore import App, Call, Continue, Done, Event, Handle, TaskContext
from craftcore.temporal.settings import TemporalSettings
from craftcore.temporal.worker import working
from craftcore.triggers.model import TriggerSpec
from tests.support.engine_harness import lab
from tests.support.generated_types import TypedValue, TypeGenerator
from tests.support.processes import PATIENCE

pytestmark = pytest.mark.anyio

TYPES = [30, pytest.param(200, marks=pytest.mark.campaign)]


class Observed:
    """The values that user code received, and those among them that were not equal."""

    def __init__(self, expected: Mapping[int, TypedValue]) -> None:
        self.expected = expected
        self.calls: set[str] = set()
        self.entries = 0
        self.wrong: list[tuple[str, Any, Any]] = []

    def check(self, number: int, call: str, value: Any) -> None:
        """Note a value that came through this call."""
        self.calls.add(call)
        given = self.expected[number].value
        if value != given or type(value) is not type(given):
            self.wrong.append((call, given, value))


def declare(app: App, number: int, hint: Any, observed: Observed) -> None:
    """Declare the workflows `whole` and `part` of one type, and two actions."""

    async def echo(value: Any) -> Any:
        observed.check(number, "an argument of a step", value)
        return value

    async def act(call: Call, value: Any) -> Any:
        return value

    async def part(value: Any) -> Any:
        observed.check(number, "a payload", value)
        return value

    async def whole(ctx: TaskContext[Any, Any], value: Any) -> Any:
        observed.entries += 1
        if ctx.turn == 2:
            observed.check(number, "the state", ctx.state)
            observed.check(number, "what a turn received", ctx.received)
            return Done(ctx.state)
        observed.check(number, "a payload of a task", value)
        observed.check(number, "the result of a step", await ctx.step("echo", echo, value))
        observed.check(number, "the result of an action", await ctx.act(f"read{number}", value=value))
        observed.check(number, "the result of an irreversible action", await ctx.act(f"pay{number}", value=value))
        await ctx.note("note", value)
        await ctx.progress(value)
        await ctx.emit(f"part{number}", {"value": value})
        child = await ctx.start_child(f"part-of-whole{number}", {"value": value})
        observed.check(number, "the result of a child", await child.result(hint))
        observed.check(number, "an event", await ctx.wait_for("go", type=hint))
        first = await ctx.wait_any({"go": Event("more", type=hint)})
        observed.check(number, "an alternative", first.value)
        return Continue(value, on="next")

    echo.__annotations__ |= {"value": hint, "return": hint}
    act.__annotations__ |= {"call": Call, "value": hint, "return": hint}
    part.__annotations__ |= {"value": hint, "return": hint}
    whole.__annotations__ |= {"ctx": TaskContext[hint, hint], "value": hint, "return": Continue[hint] | Done[hint]}
    app.action(f"read{number}", irreversible=False)(act)
    app.action(f"pay{number}", irreversible=True)(act)
    app.declare(f"part{number}", part)
    app.declare(f"part-of-whole{number}", part)
    app.declare(f"whole{number}", whole)


async def make_calls(app: App, observed: Observed, *, with_schedules: bool) -> None:
    """Make each call of a program with a value of each type, and check all results."""
    begun: list[tuple[int, Handle[Any]]] = []
    for number, typed in observed.expected.items():
        payload = {"value": typed.value}
        whole = await app.emit(f"whole{number}", payload)
        begun.append((number, whole))
        [emitted] = await app.emit_many([TriggerSpec(workflow=f"part{number}", payload=payload)])
        begun.append((number, emitted))
        for event in ("go", "more", "next"):
            await app.signal(whole.id, event, typed.value)
        if with_schedules:
            await app.schedules.add(f"schedule{number}", "every 1h", workflow=f"part{number}", payload=payload)
            fired = await app.schedules.run_now(f"schedule{number}")
            begun.append((number, app.handle(str(fired.trigger_id))))
    for number, handle in begun:
        observed.check(number, "a result", await handle.result(timeout=PATIENCE))
        observed.check(number, "a result as a type", await handle.result(observed.expected[number].hint))


def draw_types(count: int) -> dict[int, TypedValue]:
    generator = TypeGenerator(2026)
    return {number: generator.draw() for number in range(count)}


@pytest.mark.parametrize("count", TYPES)
async def test_values_of_generated_types_survive_all_calls_on_a_file(tmp_path, count):
    app, observed = App("codec"), Observed(draw_types(count))
    for number, typed in observed.expected.items():
        declare(app, number, typed.hint, observed)

    async with lab(app, tmp_path):
        await make_calls(app, observed, with_schedules=True)

    assert observed.wrong == []
    assert len(observed.calls) == 13
    assert observed.entries >= 2 * count


@pytest.mark.cluster
@pytest.mark.parametrize("count", TYPES)
async def test_values_of_generated_types_survive_all_calls_on_a_cluster(cluster: TemporalSettings, count):
    app, observed = App("codec"), Observed(draw_types(count))
    for number, typed in observed.expected.items():
        declare(app, number, typed.hint, observed)

    async with working(app, replace(cluster, task_queue="codec")):
        await make_calls(app, observed, with_schedules=False)

    assert observed.wrong == []
    assert len(observed.calls) == 13
