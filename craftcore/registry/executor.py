"""Where a plain function runs: in a thread of the daemon, on its loop, or in a worker process, which imports it."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from functools import partial
from types import FunctionType
from typing import Any, Literal, get_args

from craftcore.errors import ConfigInvalid
from craftcore.registry.workflow import Workflow
from craftcore.serialization.annotations import is_async
from craftcore.serialization.arguments import show_value
from craftcore.serialization.encode import describe_error

Executor = Literal["thread", "inline", "process"]
"""`inline`: on the event loop, for functions that return at once. Nothing else runs meanwhile."""


def find_executor_mistake(executor: object, fn: Callable[..., Any]) -> str | None:
    """Return why this executor cannot run the function, and what to do; None when it can, as far as its declaration
    shows."""
    if executor not in (choices := get_args(Executor)):
        return f"executor {show_value(executor)} must be one of {', '.join(choices)}"
    if executor == "thread":
        return None
    if is_async(fn):
        return f'executor="{executor}" needs a plain function: declare it with def, or leave the executor out'
    if executor == "inline":
        return None
    target: Any = fn
    while isinstance(target, partial):
        target = target.func
    if not isinstance(target := getattr(target, "__func__", target), FunctionType):
        return None
    if "<" in target.__qualname__:
        return (
            f"a worker process cannot import {target.__qualname__}: "
            "define it with def at the top level of a module, not as a lambda or inside a function"
        )
    if target.__module__ == "__main__":
        return f"a worker process cannot import {target.__qualname__} of the main program: move it to another module"
    return None


def require_importable(workflows: Iterable[Workflow]) -> None:
    """Raise ConfigInvalid for workflows that worker processes cannot import by their names, one a line."""
    mistakes = []
    for workflow in workflows:
        if workflow.in_process:
            try:
                pickle.dumps(workflow.fn)
            except Exception as error:
                mistakes.append(
                    f"workflow {workflow.name}: a worker process cannot import its function "
                    f"({describe_error(error)}): put @app.workflow above all other decorators"
                )
    if mistakes:
        raise ConfigInvalid("\n".join(mistakes))
