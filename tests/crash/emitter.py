"""Processes that emit once, record that emit returned, and are killed.

python -m tests.crash.emitter FOLDER producer|asyncio|trio KILLS    all on one database, right after emit
python -m tests.crash.emitter FOLDER create KILLS                   each on a new one, while it is being made
"""

from __future__ import annotations

import random
import signal
import sys
from pathlib import Path

import anyio

from craftcore import App, Producer
from craftcore.failpoints import kill_process
from tests.crash.child import Journal
from tests.crash.forks import be_a_warm_parent, fork, wait


def emit_as_a_producer(folder: Path) -> None:
    accepted = Journal(folder / "accepted")
    with Producer(folder / "agent.db") as producer:
        emitted = producer.emit("greet", {"name": "Ada"}, delay=3600)
        accepted.line(emitted.id)
        kill_process()


def emit_in_an_engine(folder: Path, backend: str) -> None:
    anyio.run(_emit_in_an_engine, folder, backend=backend)


async def _emit_in_an_engine(folder: Path) -> None:
    accepted = Journal(folder / "accepted")
    app = App("test")

    @app.workflow("greet")
    async def greet(name: str) -> str:
        return name

    async with app.running(folder / "agent.db"):
        emitted = await app.emit("greet", {"name": "Ada"}, delay=3600)
        accepted.line(emitted.id)
        kill_process()


def emit_in_peace(folder: Path) -> None:
    with Producer(folder / "agent.db") as producer:
        producer.emit("greet", {"name": "Ada"}, delay=3600)


def killed_while_making(folder: Path, kills: int) -> None:
    """Somebody makes the database and is killed somewhere on the way; the next one must not mind."""
    chance = random.Random(kills)
    for number in range(kills):
        home = folder / str(number)
        home.mkdir()
        first = fork(emit_as_a_producer, home) if number % 2 else fork(emit_in_an_engine, home, "asyncio")
        wait(first, chance.uniform(0, 0.02))
        ended = wait(fork(emit_in_peace, home), None)
        assert ended == 0, f"whoever came after emitter {number} ended with {ended}"


def killed_after_emit(folder: Path, door: str, kills: int) -> None:
    for number in range(kills):
        pid = fork(emit_as_a_producer, folder) if door == "producer" else fork(emit_in_an_engine, folder, door)
        ended = wait(pid, None)
        assert ended == -signal.SIGKILL, f"emitter {number} ended with {ended}"


def main() -> None:
    folder, door, kills = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    be_a_warm_parent()
    if door == "create":
        killed_while_making(folder, kills)
    else:
        killed_after_emit(folder, door, kills)


if __name__ == "__main__":
    main()
