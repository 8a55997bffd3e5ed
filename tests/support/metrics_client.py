"""A scrape of metrics over a real socket, parsed by the parser of Prometheus."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.to_thread
from prometheus_client.parser import text_string_to_metric_families

from craftcore.config import Config, MetricsSettings
from tests.support.engine_harness import settings
from tests.support.processes import PATIENCE

REQUEST = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"

Where = Path | tuple[str, int]


def listening(listen: str, config: Config | None = None) -> Config:
    return replace(config or settings(), metrics=MetricsSettings(listen=listen))


def call(where: Where) -> socket.socket:
    """Connect to the port."""
    family = socket.AF_UNIX if isinstance(where, Path) else socket.AF_INET6 if ":" in where[0] else socket.AF_INET
    caller = socket.socket(family, socket.SOCK_STREAM)
    caller.settimeout(PATIENCE)
    caller.connect(str(where) if isinstance(where, Path) else where)
    return caller


def answer(caller: socket.socket) -> bytes:
    """Return the whole answer."""
    received = bytearray()
    while part := caller.recv(65_536):
        received += part
    return bytes(received)


def ask(where: Where, request: bytes = REQUEST) -> bytes:
    with closing(call(where)) as caller:
        caller.sendall(request)
        return answer(caller)


async def in_thread(work: Callable[..., bytes], *args: object) -> bytes:
    """Run a function in a thread, outside of the engine's event loop."""
    with anyio.fail_after(PATIENCE):
        return await anyio.to_thread.run_sync(work, *args)


class Scrape:
    """A scraped page: `value("craftcore_triggers", state="due")`, None for a missing sample."""

    def __init__(self, text: str) -> None:
        self.samples = {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def value(self, name: str, **labels: str) -> float | None:
        return self.samples.get((name, tuple(sorted(labels.items()))))

    def all(self, name: str, *labels: str) -> dict[tuple[str, ...], float]:
        """Return every sample of that name by the values of these labels."""
        return {
            tuple(dict(given)[label] for label in labels): value
            for (found, given), value in self.samples.items()
            if found == name
        }


def scraped(body: bytes) -> Scrape:
    return Scrape(body.decode())


async def scrape(where: Where) -> Scrape:
    head, _, body = (await in_thread(ask, where)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n"), head
    assert f"Content-Length: {len(body)}".encode() in head
    return scraped(body)


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
