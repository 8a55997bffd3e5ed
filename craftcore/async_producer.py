"""The calls of a Producer for programs with an event loop: a web handler, a bot, an agent in a process of its own."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from craftcore.client.async_producer_backend import AsyncProducerBackend
from craftcore.client.backend import Backend
from craftcore.client.work_calls import WorkCalls
from craftcore.config import Config, config_of
from craftcore.errors import InvalidInput


class AsyncProducer(WorkCalls):
    """Writes into a database that a daemon runs, now or later, on asyncio or trio. Its calls are those of an App.

        async with AsyncProducer("agent.db") as producer:
            greeting = await producer.emit("greet", {"name": "Ada"})
            print(await greeting.result(timeout=60))

    Each call runs in a worker thread; waiting for results takes one thread for all callers. The file is made when it
    is missing. Entering raises a StorageError when it cannot be opened; every other method raises InvalidInput outside
    of the block.
    """

    def __init__(self, path: str | Path, *, config: Config | str | Path | None = None) -> None:
        self._open = partial(_open, Path(path), config)
        self._opened: AsyncProducerBackend | None = None

    async def __aenter__(self) -> AsyncProducer:
        self._opened = await anyio.to_thread.run_sync(self._open)
        return self

    async def __aexit__(self, *_: object) -> None:
        backend, self._opened = self._opened, None
        assert backend is not None, "entered"
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(backend.close)

    @property
    def _backend(self) -> Backend:
        if self._opened is None:
            raise InvalidInput("the producer is not open: use it inside `async with AsyncProducer(...) as producer:`")
        return self._opened


def _open(path: Path, config: Config | str | Path | None) -> AsyncProducerBackend:
    return AsyncProducerBackend(path, config_of(config))
