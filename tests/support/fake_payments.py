"""A fake bank with programmed answers, and workflows that leave irreversible actions in each state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from craftcore import App, Call, Fail, NoEffect, OnUnknown, TaskContext
from craftcore.clock import Clock
from tests.support.idle_database import at_rest, run_once

LOST = ConnectionResetError("the line is dead")
REFUSED = Fail("CARD", "declined")
NOTHING = NoEffect("no route")


class Bank:
    """A bank that records its calls as (key, amount).

    It answers with the next of `answers`, a reference or an error to raise, and after the last one with "ref-1", …
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.answers: list[Any] = []
        self._path = path
        self._clock = clock

    def app(self) -> App:
        app = App("bank")

        @app.action("bank.pay", irreversible=True)
        async def pay(call: Call, *, amount: Any = 7) -> Any:
            self.calls.append((call.key, amount))
            answer = self.answers.pop(0) if self.answers else f"ref-{len(self.calls)}"
            if isinstance(answer, BaseException):
                raise answer
            return answer

        @app.action("bank.ask", irreversible=True, on_unknown=OnUnknown.RECONCILE, settle_after=3600)
        async def slow(call: Call) -> Any:
            raise LOST

        @slow.reconcile
        async def find(call: Call) -> Any:
            return None

        @app.workflow("pay", max_attempts=1)
        async def pay_one(ctx: TaskContext, key: str | None = None, **arguments: Any) -> Any:
            return await ctx.act(pay, key=key, **arguments)

        @app.workflow("pay.soon", max_attempts=1, deadline=3600)
        async def pay_soon(ctx: TaskContext) -> Any:
            return await ctx.act(pay)

        @app.workflow("pay.all")
        async def pay_all(ctx: TaskContext, amounts: list[int]) -> Any:
            return [await ctx.act(pay, amount=amount) for amount in amounts]

        @app.workflow("pay.slowly")
        async def pay_slowly(ctx: TaskContext) -> Any:
            return await ctx.act(slow)

        @app.workflow("conflict", max_attempts=2)
        async def conflict(ctx: TaskContext) -> Any:
            await ctx.act(pay, key="one", amount=ctx.attempt)
            raise RuntimeError("again")

        return app

    def pay(self, *answers: Any, workflow: str = "pay", **payload: Any) -> str:
        """Run a payment with these answers of the bank until the engine is idle; return the id of the task.

        The first payment of a file and of a bank is run once, and then copied.
        """

        async def emit(app: App) -> str:
            return (await app.emit(workflow, payload)).id

        def run() -> tuple[str, list[Any], list[tuple[str, Any]]]:
            self.answers[:] = answers
            return at_rest(self._path, emit, self._clock, self.app()), self.answers[:], self.calls[:]

        if self.calls:
            return run()[0]
        id, self.answers[:], self.calls[:] = run_once(
            self._path, self._clock, repr(("bank", workflow, payload, answers)), run
        )
        return id

    def go_on(self, *answers: Any) -> None:
        """Run an engine with these answers of the bank until it is idle."""
        self.answers[:] = answers

        async def nothing(app: App) -> None:
            pass

        at_rest(self._path, nothing, self._clock, self.app())
