"""Processes that emit once, record that `emit` returned, and are killed.

python -m tests.crash.emitter FOLDER producer|asyncio|trio KILLS    all on one database, right after `emit`
python -m tests.crash.emitter FOLDER create KILLS                   each on a new database, during its creation
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
from tests.crash.forks import fork, prepare_forks, wait


def emit_with_producer(folder: Path) -> None:
    accepted = Journal(folder / "accepted")
    with Producer(folder / "agent.db") as producer:
        emitted = producer.emit("greet", {"name": "Ada"}, delay=3600)
        accepted.line(emitted.id)
        kill_process()


def emit_in_engine(folder: Path, backend: str) -> None:
    anyio.run(_emit_in_engine, folder, backend=backend)


async def _emit_in_engine(folder: Path) -> None:
    accepted = Journal(folder / "accepted")
    app = App("test")

    @app.workflow("greet")
    async def greet(name: str) -> str:
        return name

    async with app.running(folder / "agent.db"):
        emitted = await app.emit("greet", {"name": "Ada"}, delay=3600)
        accepted.line(emitted.id)
        kill_process()


def emit_undisturbed(folder: Path) -> None:
    with Producer(folder / "agent.db") as producer:
        producer.emit("greet", {"name": "Ada"}, delay=3600)


def kill_during_creation(folder: Path, kills: int) -> None:
    """Kill processes while they create their database, and require that the next process can emit."""
    chance = random.Random(kills)
    for number in range(kills):
        home = folder / str(number)
        home.mkdir()
        first = fork(emit_with_producer, home) if number % 2 else fork(emit_in_engine, home, "asyncio")
        wait(first, chance.uniform(0, 0.02))
        ended = wait(fork(emit_undisturbed, home), None)
        assert ended == 0, f"the process after emitter {number} ended with {ended}"


def kill_after_emit(folder: Path, way: str, kills: int) -> None:
    for number in range(kills):
        pid = fork(emit_with_producer, folder) if way == "producer" else fork(emit_in_engine, folder, way)
        ended = wait(pid, None)
        assert ended == -signal.SIGKILL, f"emitter {number} ended with {ended}"


def main() -> None:
    folder, way, kills = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    prepare_forks()
    if way == "create":
        kill_during_creation(folder, kills)
    else:
        kill_after_emit(folder, way, kills)


if __name__ == "__main__":
    main()
