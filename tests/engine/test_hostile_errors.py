"""Exceptions with hostile attributes, raised by each kind of user function, end only their own attempt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from craftcore import App, Call, Continue, TaskContext
from tests.support.acts import ledger
from tests.support.cells import cells
from tests.support.engine_harness import lab
from tests.support.hostile_objects import ERRORS

pytestmark = pytest.mark.anyio

Make = Callable[[], BaseException]

FAILING_PLACES = (
    *("raises", "plainly", "step", "plain_step", "transaction", "reversible"),
    *("step_result", "transaction_result", "state"),  # raised by a value that is serialized
    *("payload", "step_type", "transaction_type"),  # raised by a type that is parsed
)
"""The places in which the error fails the attempt."""

ACT_PLACES = {
    "act": "UNKNOWN",
    "plain_act": "UNKNOWN",
    "act_result": "DONE",
    "act_type": "DONE",
    "act_reference": "DONE",
    "reconciled": "UNKNOWN",
}
"""The places of an irreversible action, its result or its reconcile function, with the resulting ledger state."""


def build_app(make: Make) -> App:
    """Build an app with a workflow for each place."""
    app = App()
    accepted: list[bool] = []

    class Encoded:
        def model_dump(self, **_: Any) -> Any:
            raise make()

    class ReadBack:
        @classmethod
        def model_validate(cls, value: Any) -> Any:
            raise make()

    class ReadBackLater:
        """A payload type that raises when the workflow is entered, and not yet when the trigger is accepted."""

        @classmethod
        def model_validate(cls, value: Any) -> Any:
            if accepted:
                raise make()
            accepted.append(True)
            return cls()

    class Reference(dict[str, Any]):
        def get(self, *_: Any) -> Any:
            raise make()

    async def raises(value: Any = None) -> None:
        raise make()

    def plainly(value: Any = None) -> None:
        raise make()

    def encoded(value: Any = None) -> Any:
        return Encoded()

    def read_back(value: Any = None) -> Any:
        return {}

    async def result(ctx: TaskContext) -> Any:
        return Encoded()

    async def step(ctx: TaskContext) -> None:
        await ctx.step("it", raises)

    async def plain_step(ctx: TaskContext) -> None:
        await ctx.step("it", plainly)

    async def step_result(ctx: TaskContext) -> None:
        await ctx.step("it", encoded)

    async def step_type(ctx: TaskContext) -> None:
        await ctx.step("it", read_back)

    async def transaction(ctx: TaskContext) -> None:
        await ctx.transaction("it", plainly)

    async def transaction_result(ctx: TaskContext) -> None:
        await ctx.transaction("it", encoded)

    async def transaction_type(ctx: TaskContext) -> None:
        await ctx.transaction("it", read_back)

    async def state(ctx: TaskContext) -> Any:
        return Continue(Encoded())

    async def next_state(ctx: Any) -> Any:
        return Continue({})

    async def payload(value: Any) -> None: ...

    read_back.__annotations__["return"] = ReadBack
    next_state.__annotations__["ctx"] = TaskContext[ReadBack]
    payload.__annotations__["value"] = ReadBackLater

    def action(name: str, fn: Callable[..., Any], **options: Any) -> Any:
        declared = app.action(name, **{"irreversible": True, **options})(fn)

        async def acts(ctx: TaskContext) -> None:
            await ctx.act(declared)

        app.declare(name, acts, max_attempts=1)
        return declared

    async def refused(call: Call) -> None:
        raise ConnectionError

    async def returns(call: Call) -> Any:
        return Encoded()

    async def returns_type(call: Call) -> Any:
        return {}

    async def returns_reference(call: Call) -> Any:
        return Reference(x=1)

    returns_type.__annotations__["return"] = ReadBack
    action("reversible", raises, irreversible=False)
    action("act", raises)
    action("plain_act", plainly)
    action("act_result", returns)
    action("act_type", returns_type)
    action("act_reference", returns_reference)
    action("reconciled", refused, on_unknown="reconcile").reconcile(raises)
    for fn in (
        *(raises, plainly, step, plain_step, transaction),
        *(result, step_result, transaction_result, state),
        *(payload, step_type, transaction_type, next_state),
    ):
        app.declare(fn.__name__, fn, max_attempts=1)

    @app.workflow("good")
    async def good(ctx: TaskContext) -> str:
        return await ctx.transaction("it", lambda tx: "written")

    return app


@pytest.mark.parametrize("make", cells(list(ERRORS.values()), list(ERRORS)))
async def test_hostile_error_in_any_user_code_ends_only_that_attempt(tmp_path, monkeypatch, make):
    monkeypatch.setattr("craftcore.engine.turn.provider_call.RECONCILE_WAIT_SECONDS", 0.0)
    app = build_app(make)
    async with lab(app, tmp_path) as harness:
        payloads: dict[str, Any] = {"payload": {"value": {}}}
        ids = {
            name: (await app.emit(name, payloads.get(name))).id
            for name in (*FAILING_PLACES, *ACT_PLACES, "result", "next_state")
        }
        for name in FAILING_PLACES:
            row = await harness.settled(ids[name])
            assert (name, row["status"] in ("DEAD", "FAILED"), bool(row["error_code"])) == (name, True, True)
        assert (await harness.ended(ids["next_state"]))["status"] == "FAILED"
        for name in (*ACT_PLACES, "result"):
            await harness.settled(ids[name])
        assert "result_unstored" in harness.task(ids["result"])["result_json"]
        assert {row["action"]: row["status"] for row in ledger(harness)} == ACT_PLACES
        assert (await harness.settled((await app.emit("good")).id))["status"] == "DONE"
        assert harness.engine.writer.failed is None
