"""Queries that meet a workflow ahead of its worker: only they are repeated."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.client import WorkflowQueryFailedError

from craftcore.temporal.queries import REBUILT, TRIES_MAX, ask

pytestmark = pytest.mark.anyio


class Handle:
    """A fake handle of a workflow whose first queries fail."""

    def __init__(self, *failures: str) -> None:
        self.failures = list(failures)
        self.asked: list[tuple[str, list[Any]]] = []

    async def query(self, name: str, *, args: list[Any], result_type: Any, rpc_timeout: Any) -> str:
        self.asked.append((name, list(args)))
        if self.failures:
            raise WorkflowQueryFailedError(self.failures.pop(0))
        return "answer"


async def test_query_that_met_a_workflow_ahead_is_repeated():
    handle = Handle(REBUILT, REBUILT)

    assert await ask(handle, "act", "key", result_type=str) == "answer"  # type: ignore[arg-type]
    assert handle.asked == [("act", ["key"])] * 3


async def test_query_with_another_failure_is_not_repeated():
    handle = Handle("there is no such query")

    with pytest.raises(WorkflowQueryFailedError, match="no such query"):
        await ask(handle, "act", result_type=str)  # type: ignore[arg-type]
    assert len(handle.asked) == 1


async def test_query_that_always_meets_a_workflow_ahead_fails_in_the_end():
    handle = Handle(*[REBUILT] * (TRIES_MAX + 1))

    with pytest.raises(WorkflowQueryFailedError, match="built from its history again"):
        await ask(handle, "act", result_type=str)  # type: ignore[arg-type]
    assert len(handle.asked) == TRIES_MAX
