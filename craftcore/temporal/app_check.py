"""The parts of an app that a cluster keeps less well, found in its declarations and its source. It needs no cluster."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

from craftcore.registry.registry import Registry

CALLS = {
    "ctx.transaction": "a cluster has no tables: write to your own database in a ctx.step, under ctx.task_id",
    "ctx.schedules": "a turn on a cluster adds no schedules: declare them",
    "ctx.history": "a cluster has no tables: keep messages in a database of your own, in a ctx.step",
    "ctx.events": "the history of the workflow has the events",
}
"""Calls that a cluster refuses in a turn, with the advice."""

_CALL = {name: re.compile(rf"\b\w+\.{name.partition('.')[2]}\b\s*[.(]") for name in CALLS}
_STARTUP, _SUBSECOND = re.compile(r"\bstartup\b"), re.compile(r"every\s+0?\.\d+\s*s|every\s+\d+\s*ms")


def list_refused_calls(app: Registry) -> Iterator[str]:
    """Yield a sentence for each call in the source of a workflow that a cluster refuses in a turn.

    A call in a function that the workflow calls is not found, and neither is one without source.
    """
    for workflow in app.workflows.values():
        source = _read_source(workflow.fn)
        for name, advice in CALLS.items():
            if "ctx" in source and _CALL[name].search(source.replace("self.", "")):
                yield f"workflow {workflow.name} has a call of {name}, which fails there: {advice}"


def list_changes(app: Registry) -> Iterator[str]:
    """Yield a sentence for each declaration that means something else on a cluster."""
    for workflow in app.workflows.values():
        module = inspect.getmodule(workflow.fn)
        if module is not None and hasattr(module, "trio"):
            yield f"workflow {workflow.name} is in a module that imports trio: a worker of a cluster runs asyncio only"
    if app.retention_functions:
        yield "a cluster calls no function of app.on_retention: it removes ended work by the retention of the namespace"
    for id, spec in app.declared_schedules.items():
        when = str(spec.when)
        if _STARTUP.search(when):
            yield f"schedule {id} fires on startup: on a cluster that is once per sync of schedules"
        if _SUBSECOND.search(when):
            yield f"schedule {id} fires more than once a second: a cluster refuses it"


def _read_source(fn: Callable[..., Any]) -> str:
    try:
        return inspect.getsource(inspect.unwrap(fn))
    except (OSError, TypeError):
        return ""
