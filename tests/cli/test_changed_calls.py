"""`craftcore check`: acts and steps of live tasks whose key or name the new source does not have."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from craftcore import App, Call, TaskContext
from craftcore.cli.service.changed_calls import list_changed_calls
from craftcore.cli.service.turn_calls_store import TurnCall, TurnCalls
from craftcore.config import Config
from craftcore.services import Services
from tests.support.engine_harness import lab
from tests.support.processes import craftcore

PROGRAM = """
from craftcore import App, Call, TaskContext

app = App("shop")

@app.action("pay", irreversible=True)
async def pay(call: Call) -> None: ...

@app.workflow("order")
async def order(ctx: TaskContext) -> None:
    await ctx.step("{step}", len, "abc")
    await ctx.act(pay{key})
    await ctx.wait_for("go")
"""


async def unkeyed(ctx: TaskContext) -> None:
    await ctx.step("count", len, "abc")
    await ctx.act("pay")
    await ctx.wait_for("go")


async def keyed(ctx: TaskContext) -> None:
    await ctx.step("count", len, "abc", key="k")
    await ctx.act("pay", key="fee")


async def computed(ctx: TaskContext) -> None:
    for name in ("fee", "rent"):
        await ctx.step(name, len, name, key=name)
        await ctx.act("pay", key=name)


async def with_helper(ctx: TaskContext) -> None:
    await unkeyed(ctx)


def an_app(fn: Callable[[TaskContext], Awaitable[None]]) -> App:
    app = App("shop")

    @app.action("pay", irreversible=True)
    async def pay(call: Call) -> None: ...

    app.declare("order", fn)
    return app


def test_check_warns_of_a_key_and_a_name_that_the_source_does_not_have(tmp_path):
    (tmp_path / "before.py").write_text(PROGRAM.format(step="count", key=""))
    (tmp_path / "after.py").write_text(PROGRAM.format(step="measure", key=', key="fee"'))
    craftcore(tmp_path, "emit", "order")
    craftcore(tmp_path, "run", "before:app", "--until-idle")

    assert "warn  workflow" not in craftcore(tmp_path, "check", "before:app").out
    lines = craftcore(tmp_path, "check", "after:app").out.splitlines()
    assert [line for line in lines if line.startswith("warn  workflow")] == [
        "warn  workflow order: 1 live task called pay without a key, and the source has no such call: it is taken for "
        "the same act if its arguments are the same",
        "warn  workflow order: 1 live task called count without a key, and the source has no such call: it runs again",
    ]


@pytest.mark.anyio
async def test_unchanged_source_has_the_calls_of_its_live_tasks(tmp_path):
    app = an_app(unkeyed)
    async with lab(app, tmp_path) as harness:
        await harness.waiting((await app.emit("order")).id)

    with Services(tmp_path / "agent.db", Config()).reading() as reader:
        calls = list(TurnCalls().list_live(reader))
    assert sorted((call.action, call.identity.rpartition(":")[2]) for call in calls if call.action) == [("pay", "1.1")]
    assert [call.identity for call in calls if not call.action] == ["step:count"]
    assert list(list_changed_calls(app, calls)) == []


ACT, STEP = TurnCall("t", "order", "pay", "activity:t:1.1"), TurnCall("t", "order", None, "step:count~1")


@pytest.mark.parametrize(
    ("fn", "calls", "warnings"),
    [
        (keyed, [ACT, STEP], 2),
        (keyed, [ACT._replace(identity="activity:t:fee"), STEP._replace(identity="step:count/k|second")], 0),
        (computed, [ACT, STEP._replace(identity="step:other/rent")], 0),
        (with_helper, [ACT, STEP], 0),
        (unkeyed, [STEP._replace(identity="step:pay/1.1"), STEP._replace(workflow="gone")], 0),
    ],
    ids=["other keys", "same keys", "computed", "in a helper", "reversible action"],
)
def test_call_is_reported_only_where_the_source_shows_all_calls(fn: Any, calls, warnings):
    assert len(list(list_changed_calls(an_app(fn), calls))) == warnings
