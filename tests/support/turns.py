"""Tasks of one function each, declared while the engine runs, and their results."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from craftcore import TaskContext
from tests.support.engine_harness import Lab

Turn = Callable[[TaskContext], Awaitable[Any]]


async def begin(it: Lab, turn: Turn, **declared: Any) -> str:
    """Emit a task whose turns are this function, and return its id."""
    name = f"turn-{len(it.app.workflows)}"

    async def workflow(ctx: TaskContext) -> Any:
        return await turn(ctx)

    it.app.declare(name, workflow, **declared)
    return (await it.app.emit(name)).id


async def run(it: Lab, turn: Turn, **declared: Any) -> dict[str, Any]:
    """Run a task whose turns are this function; return its row after its end."""
    return await it.ended(await begin(it, turn, **declared))


def result(row: dict[str, Any]) -> Any:
    assert row["status"] == "DONE", row
    return json.loads(row["result_json"])


def failure(row: dict[str, Any]) -> tuple[str, str]:
    assert row["status"] == "FAILED", row
    return row["error_code"], row["error_message"]


class Counting:
    """A function that records the arguments of each call."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    async def __call__(self, *args: Any) -> Any:
        self.calls.append(args)
        return args[0] if args else None
