"""The refusal to wait for other work in the code of a workflow.

The wait would keep the slot of the workflow, and the other work needs a slot. With all slots taken by such waits
nothing would ever end. A task that waits for its child keeps no slot.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import NamedTuple, Protocol

from craftcore.errors import InvalidInput


class RunningCode(Protocol):
    """The code of a workflow."""

    @property
    def home(self) -> str | None:
        """The database or task queue whose engine runs it."""

    @property
    def is_settling(self) -> bool:
        """It has ended, and keeps no slot for long any more."""


CURRENT_CODE: ContextVar[RunningCode | None] = ContextVar("current_run", default=None)
"""Whose code runs: set in the code of a workflow, and in the tasks and threads that it starts."""


class ProcessCode(NamedTuple):
    """The code that a worker process runs."""

    home: str | None
    is_settling: bool = False


def run_in_process(home: str | None) -> None:
    """Note that all further code of this process belongs to the engine of this database."""
    CURRENT_CODE.set(ProcessCode(home))


def refuse_own_wait(home: str, timeout: float | None, call: str) -> None:
    """Raise InvalidInput in the code of a workflow that the engine of this home runs. With a `timeout` of 0 nothing is
    waited for, so that is allowed."""
    code = CURRENT_CODE.get()
    if code is None or code.home != home or code.is_settling or timeout == 0:
        return
    raise InvalidInput(
        f"a workflow cannot wait for other work with handle.{call}(): it would keep its slot, and the other work may "
        "need one. Start a child, `child = await ctx.start_child(...)`, and `await child.result()`"
    )
