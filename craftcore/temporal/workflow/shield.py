"""Work of a workflow that no cancel breaks off."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


async def run_shielded(work: Coroutine[Any, Any, T]) -> T:
    """Do this to its end, and return its result. A cancel of the workflow does not interrupt it, and is not raised.

    A cancel may come together with the answer to a signal. The library (temporalio 1.35) then cancels a signal that has
    arrived, which its core refuses at each attempt, so the workflow would never go on. It also cancels the child that
    was being started.
    """
    doing = asyncio.create_task(work)
    while not doing.done():
        with suppress(asyncio.CancelledError):
            await asyncio.shield(doing)
    return doing.result()
