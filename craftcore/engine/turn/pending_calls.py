"""Irreversible actions that are being called: a second caller of the same one waits for it."""

from __future__ import annotations

from collections.abc import Set

import anyio


class PendingCall:
    """An irreversible action on its way through the ledger, known by what it is called with."""

    __slots__ = ("_over", "args_hash")

    def __init__(self, args_hash: str) -> None:
        self.args_hash = args_hash
        self._over: anyio.Event | None = None

    async def wait_until_recorded(self) -> None:
        """Wait until what it came to is on disk."""
        self._over = self._over or anyio.Event()  # hardly any is waited for
        await self._over.wait()

    def finish(self) -> None:
        if self._over is not None:
            self._over.set()


async def wait_for_pending_calls(flights: Set[PendingCall]) -> None:
    """Wait until none of these is on its way: the record of a turn is settled after the last of them."""
    while flights:
        with anyio.CancelScope(shield=True):
            await next(iter(flights)).wait_until_recorded()
