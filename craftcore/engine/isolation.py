"""Each run has its own context variables, although the workers that drive the runs are few and live long."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from contextvars import copy_context
from types import coroutine
from typing import Any, TypeVar

T = TypeVar("T")


@coroutine
def in_own_context(workflow: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
    """Await a coroutine so that what it sets in context variables is gone when it ends.

    A task of its own would do that, too; it costs ten times as much, and the scope that cancels a run ends at its task.
    """
    run = copy_context().run
    step, value = workflow.send, None
    while True:
        try:
            yielded = run(step, value)
        except StopIteration as end:
            result: T = end.value
            return result
        try:
            value = yield yielded
            step = workflow.send
        except BaseException as error:
            step, value = workflow.throw, error
