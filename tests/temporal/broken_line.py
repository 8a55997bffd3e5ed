"""A proxy between a client and the server that can drop answers and close connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class FaultyProxy:
    """A proxy that forwards bytes. `loses_answers` drops the answers; `is_cut` closes each new connection."""

    def __init__(self, address: str) -> None:
        self._host, _, self._port = address.partition(":")
        self._open: list[asyncio.StreamWriter] = []
        self._passing: set[asyncio.Task[None]] = set()
        self.loses_answers = False
        self.is_cut = False
        self.address = ""

    def break_off(self) -> None:
        """Close all connections. New ones work."""
        self.loses_answers = False
        for writer in self._open:
            writer.close()
        self._open.clear()

    def cut(self) -> None:
        """Close all connections, and each new one."""
        self.break_off()
        self.is_cut = True

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward the requests of a client and the answers of the server."""
        if self.is_cut:
            writer.close()
            return
        far_reader, far_writer = await asyncio.open_connection(self._host, int(self._port))
        self._open += [writer, far_writer]
        for direction in (self._forward(reader, far_writer, False), self._forward(far_reader, writer, True)):
            task = asyncio.create_task(direction)
            self._passing.add(task)
            task.add_done_callback(self._passing.discard)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_answer: bool) -> None:
        with suppress(OSError):
            while received := await reader.read(65_536):
                if not (is_answer and self.loses_answers):
                    writer.write(received)
        writer.close()


@asynccontextmanager
async def faulty_proxy(address: str) -> AsyncIterator[FaultyProxy]:
    """Run a proxy to this address for the block."""
    line = FaultyProxy(address)
    server = await asyncio.start_server(line.accept, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    line.address = f"{host}:{port}"
    try:
        yield line
    finally:
        server.close()
        line.break_off()
