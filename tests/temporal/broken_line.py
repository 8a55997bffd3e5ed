"""A proxy between a client and the server that can drop answers and close connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class BrokenLine:
    """Passes bytes on in both directions. `loses_answers`: nothing comes back any more. `is_cut`: nobody is there."""

    def __init__(self, address: str) -> None:
        self._host, _, self._port = address.partition(":")
        self._open: list[asyncio.StreamWriter] = []
        self._passing: set[asyncio.Task[None]] = set()
        self.loses_answers = False
        self.is_cut = False
        self.address = ""

    def break_off(self) -> None:
        """Close all connections. New ones are whole."""
        self.loses_answers = False
        for writer in self._open:
            writer.close()
        self._open.clear()

    def cut(self) -> None:
        """Let nothing through any more."""
        self.break_off()
        self.is_cut = True

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on what a client says, and what it is answered."""
        if self.is_cut:
            writer.close()
            return
        far_reader, far_writer = await asyncio.open_connection(self._host, int(self._port))
        self._open += [writer, far_writer]
        for way in (self._pass_on(reader, far_writer, False), self._pass_on(far_reader, writer, True)):
            task = asyncio.create_task(way)
            self._passing.add(task)
            task.add_done_callback(self._passing.discard)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_answer: bool) -> None:
        with suppress(OSError):
            while said := await reader.read(65_536):
                if not (is_answer and self.loses_answers):
                    writer.write(said)
        writer.close()


@asynccontextmanager
async def a_line(address: str) -> AsyncIterator[BrokenLine]:
    """A line to this address while the block lasts."""
    line = BrokenLine(address)
    server = await asyncio.start_server(line.accept, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    line.address = f"{host}:{port}"
    try:
        yield line
    finally:
        server.close()
        line.break_off()
