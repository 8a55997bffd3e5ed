"""The page beside a busy daemon on a file with a past: how long each page takes, what open tabs cost, and memory.

python -m benchmarks web [SETTLED] [REQUESTS]      1,000,000 settled triggers, and 5,000 requests for the memory
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median

from benchmarks import history, web_history
from craftcore.config import Config
from craftcore.producer import Producer
from craftcore.services import Services
from craftcore.triggers.model import TriggerSpec

APP = """
import time
import anyio
from craftcore import App, TaskContext
app = App("web")

@app.workflow("noop")
async def noop(n: int = 0) -> None: ...

@app.workflow("deep")
async def deep(ctx: TaskContext, count: int = 2_000) -> None:
    for number in range(count):
        await ctx.step("one", lambda: number, key=str(number), executor="inline")

@app.workflow("lag")
async def lag(seconds: float) -> float:
    ends, late = time.perf_counter() + seconds, []
    while (began := time.perf_counter()) < ends:
        await anyio.sleep(0.01)
        late.append(time.perf_counter() - began - 0.01)
    return sorted(late)[len(late) * 99 // 100]

@app.workflow("ask")
async def ask(ctx: TaskContext) -> str:
    return await ctx.ask("Send it?", options=["send", "hold"])
"""
SETTINGS = """
[web]
[[web.person]]
name = "ada"
token = "env:WEB_ADA"
may = "act"
"""
TOKEN = "ada-has-a-long-token"
EACH = 100
PER_SECOND = 300
TABS = 100
SECONDS = 10.0
ROUNDS = 3
DEFAULTS = (1_000_000, 5_000)
"""Settled triggers, and requests for the memory."""

CHANGES = 40
MEGABYTE = 1 << 20


def main() -> None:
    """Make the file, start both processes, and measure."""
    given = [int(one) for one in sys.argv[2:4]]
    settled, requests = [*given, *DEFAULTS[len(given) :]]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        database = folder / "bench.db"
        history.make(database, settled=settled, pending=10_000)
        web_history.add_rows(Services(database, Config()))
        (folder / "web_app.py").write_text(APP)
        (folder / "web.toml").write_text(SETTINGS)
        command = [sys.executable, "-m", "craftcore", "--db", str(database)]
        with _process([*command, "run", "web_app:app"], folder), Producer(database) as producer:
            ids = web_history.add_tasks(producer, Services(database, Config()))
            with _process([*command, "--config", "web.toml", "web", "--listen", "unix:web.sock"], folder) as web:
                asyncio.run(_measure(web, folder, ids, producer, settled, requests))


async def _measure(
    web: subprocess.Popen[bytes], folder: Path, ids: dict[str, str], producer: Producer, settled: int, requests: int
) -> None:
    socket = folder / "web.sock"
    while not socket.exists():  # noqa: ASYNC110 - a file has no event
        await asyncio.sleep(0.05)
    cookie = await _log_in(socket)
    print(f"  {settled:,} settled; resident {_resident(web.pid):.0f} MB at the start    (at most 80)")
    await asyncio.sleep(2)
    await _idle(web.pid, "nobody looks")
    with _emitting(producer):
        await _pages(socket, cookie, ids)
    print(f"  resident {_resident(web.pid):.0f} MB after these    (at most 80)")
    without, with_tabs = [], []
    for _ in range(ROUNDS):
        without.append(await _load(producer))
        async with asyncio.timeout(180):
            with_tabs.append(await _with_tabs(web.pid, socket, cookie, producer))
    for number, (title, limit) in enumerate(
        [("triggers a second", "at least 0.97"), ("p99 of the lag of its loop, ms", "at most 1.03")]
    ):
        plain, watched = (median(one[number] for one in rounds) for rounds in (without, with_tabs))
        print(
            f"  the daemon's {title}: {plain:,.1f} without tabs, {watched:,.1f} with {TABS}: {watched / plain:.3f}"
            f"    ({limit})"
        )
    await _notice(socket, cookie, producer)
    await _memory(web.pid, socket, cookie, web_history.list_addresses(ids), requests)


async def _pages(socket: Path, cookie: str, ids: dict[str, str]) -> None:
    """Print what each page takes beside a daemon that runs 300 triggers a second."""
    for address in web_history.list_addresses(ids):
        times, size = [], 0
        for _ in range(EACH):
            began = time.perf_counter()
            status, body = await _get(socket, address, cookie)
            times.append((time.perf_counter() - began) * 1e3)
            assert status in (200, 404), (address, status)
            size = len(body)
        times.sort()
        p95 = times[EACH * 95 // 100]
        title = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{20,}", "ID", address)
        print(
            f"    {title:44} {status}  p50 {median(times):6.1f} ms  p95 {p95:6.1f} ms"
            f"  {size / 1000:6.1f} KB    (p95 at most 50 ms, 100 KB)"
        )


async def _memory(pid: int, socket: Path, cookie: str, addresses: list[str], requests: int) -> None:
    """Print the memory before and after many requests, to all pages in turn."""
    for address in addresses:
        await _get(socket, address, cookie)
    before = _resident(pid)
    for number in range(requests):
        status, _ = await _get(socket, addresses[number % len(addresses)], cookie)
        assert status in (200, 404), status
    print(f"  resident {before:.0f} MB, and {_resident(pid):.0f} MB after {requests:,} more requests    (10 % more)")


async def _load(producer: Producer) -> tuple[float, float]:
    """Return how many triggers a second go through the daemon, and the lag of its loop at 300 a second, in ms."""
    with _emitting(producer):
        await asyncio.sleep(2)
        lag = await asyncio.to_thread(lambda: producer.emit("lag", {"seconds": SECONDS}).result(timeout=60))
    return await _drain(producer), float(lag) * 1e3


async def _with_tabs(pid: int, socket: Path, cookie: str, producer: Producer) -> tuple[float, float]:
    """Return the same while tabs listen, and print what they cost the page's process."""
    readers = [asyncio.create_task(_listen(socket, cookie)) for _ in range(TABS)]
    with _emitting(producer):
        await asyncio.sleep(2)
        cpu = _cpu_seconds(pid)
        await asyncio.sleep(SECONDS)
        share = (_cpu_seconds(pid) - cpu) / SECONDS
    found = await _load(producer)
    print(f"    {TABS} tabs: {share:.2%} of a core, resident {_resident(pid):.0f} MB    (at most 3 %, 110 MB)")
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    return found


async def _listen(socket: Path, cookie: str) -> None:
    reader, writer = await asyncio.open_unix_connection(socket)
    request = f"GET /live?topic=coming,now,verdict HTTP/1.1\r\nHost: localhost\r\nCookie: {cookie}\r\n\r\n"
    writer.write(request.encode())
    try:
        while await reader.read(1 << 16):
            pass
    finally:
        writer.close()


async def _notice(socket: Path, cookie: str, producer: Producer) -> None:
    """Print how long after a commit its fragment arrives in a tab."""
    reader, writer = await asyncio.open_unix_connection(socket)
    writer.write(f"GET /live?topic=now HTTP/1.1\r\nHost: localhost\r\nCookie: {cookie}\r\n\r\n".encode())
    times = []
    for _ in range(CHANGES):
        await asyncio.sleep(1.3)
        with suppress(TimeoutError):  # what came before
            while await asyncio.wait_for(reader.read(1 << 20), 0.2):
                pass
        began = time.perf_counter()
        await asyncio.to_thread(producer.emit, "ask")
        await reader.read(1 << 20)
        times.append(time.perf_counter() - began)
    writer.close()
    times.sort()
    print(
        f"  a commit in a tab: p50 {median(times):.2f} s, p95 {times[CHANGES * 95 // 100]:.2f} s    (p95 at most 1.5 s)"
    )


async def _drain(producer: Producer, count: int = 20_000) -> float:
    """Return how many triggers a second go through the daemon."""

    def run() -> float:
        began = time.perf_counter()
        handles = producer.emit_many([TriggerSpec(workflow="noop", payload={"n": n}) for n in range(count)])
        handles[-1].result(timeout=120)
        return count / (time.perf_counter() - began)

    return await asyncio.to_thread(run)


async def _idle(pid: int, title: str) -> None:
    cpu, read = _cpu_seconds(pid), _bytes_read(pid)
    await asyncio.sleep(SECONDS)
    share = (_cpu_seconds(pid) - cpu) / SECONDS
    print(f"  {title}: {share:.2%} of a core, {_bytes_read(pid) - read} bytes read    (at most 0.1 %, none)")


async def _log_in(socket: Path) -> str:
    body = f"name=ada&token={TOKEN}"
    head = (
        "POST /login HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: same-origin\r\nConnection: close\r\n"
        f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    _, answer = await _ask(socket, (head + body).encode())
    found = re.search(rb"set-cookie: ([^;]+);", answer, re.IGNORECASE)
    assert found is not None, answer[:300]
    return found[1].decode()


async def _get(socket: Path, address: str, cookie: str) -> tuple[int, bytes]:
    request = f"GET {address} HTTP/1.1\r\nHost: localhost\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n"
    head, answer = await _ask(socket, request.encode())
    return int(head.split()[1]), answer.partition(b"\r\n\r\n")[2]


async def _ask(socket: Path, request: bytes) -> tuple[bytes, bytes]:
    reader, writer = await asyncio.open_unix_connection(socket)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer.partition(b"\r\n")[0], answer


@contextmanager
def _emitting(producer: Producer) -> Iterator[None]:
    """Emit 300 triggers a second while the block runs."""
    stop = threading.Event()

    def emit() -> None:
        while not stop.wait(0.1):
            producer.emit_many([TriggerSpec(workflow="noop", payload={"n": n}) for n in range(PER_SECOND // 10)])

    thread = threading.Thread(target=emit)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextmanager
def _process(command: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    env = {**os.environ, "WEB_ADA": TOKEN}
    with subprocess.Popen(command, cwd=folder, env=env, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.terminate()


def _cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process, to the nanosecond: ticks are too coarse for a few milliseconds a second."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((one / "schedstat").read_text().split()[0]) for one in threads) / 1e9


def _bytes_read(pid: int) -> int:
    found = re.search(r"rchar: (\d+)", Path(f"/proc/{pid}/io").read_text(encoding="utf-8"))
    return 0 if found is None else int(found[1])


def _resident(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(encoding="utf-8"))
    return 0.0 if found is None else int(found[1]) * 1024 / MEGABYTE


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
