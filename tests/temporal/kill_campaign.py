"""The kill campaign on a cluster: tasks run while workers and the server are killed, and a person answers questions.

python -m tests.temporal.kill_campaign NAMES --kills 100 [--server-kills 10] [--seed 1]
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import anyio
from temporalio.client import Client, WorkflowQueryFailedError, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.service import RPCError

from craftcore.errors import CraftcoreError
from craftcore.temporal.settings import TemporalSettings
from tests.temporal.dev_server import DevServer
from tests.temporal.example_worker import app_of
from tests.temporal.kill_cases import CASES, KillCase, PlayedTask, Tally
from tests.temporal.task_client import TaskClient
from tests.temporal.worker_processes import ROOT, Workers, lines

T = TypeVar("T")

ANSWER_SECONDS = 5.0
"""The timeout of a call of the person, for which there may be no worker."""


@dataclass(slots=True, kw_only=True)
class Campaign:
    """A run of cases under kills. `timeout` None: the timeout of the examples, after which a doubt opens."""

    settings: TemporalSettings
    folder: Path
    cases: Sequence[KillCase]
    kills: int
    seed: int = 1
    live_max: int = 8
    pace: float = 0.1
    pause: float = 0.4
    timeout: float | None = None
    server: DevServer | None = None
    server_kills: int = 0
    prints: bool = False
    played: dict[str, list[PlayedTask]] = field(default_factory=dict)
    tallies: dict[str, Tally] = field(default_factory=dict)
    killed: int = 0
    exits: list[int] = field(default_factory=list)
    _ends_feeding: bool = False
    _id: str = field(default_factory=lambda: uuid4().hex)
    """Part of the keys, because several campaigns may share a server."""

    @property
    def allowed_seconds(self) -> float:
        """Return the seconds after which a task counts as one that never ends."""
        return 300.0 + 10 * self.kills

    async def play(self, seconds: float) -> dict[str, Tally]:
        """Run all tasks to their ends, and count. Raises TimeoutError if a task does not end within `seconds`."""
        self.played = {case.name: [] for case in self.cases}
        self.tallies = {case.name: Tally() for case in self.cases}
        with a_model(self.folder) as url:
            workers = Workers(
                "tests.temporal.example_worker",
                [
                    self.settings.address,
                    ",".join(case.name for case in self.cases),
                    *([] if self.timeout is None else [str(self.timeout)]),
                ],
                self.folder,
                environment={"MODEL_URL": url},
            )
            try:
                with anyio.fail_after(seconds):
                    async with anyio.create_task_group() as around:
                        around.start_soon(self._replace_dead, workers)
                        async with anyio.create_task_group() as group:
                            for case in self.cases:
                                group.start_soon(self._feed, case)
                            await self._kill(workers)
                            self._ends_feeding = True
                        around.cancel_scope.cancel()
            finally:
                workers.close()
                self.killed, self.exits = workers.killed, workers.exits
        for case in self.cases:
            tally, played = self.tallies[case.name], self.played[case.name]
            tally.tasks, tally.crashes = len(played), sum(one.crashes for one in played)
            case.judge(played, tally)
        return self.tallies

    async def _replace_dead(self, workers: Workers) -> None:
        """Replace workers that exited without a server, as a service manager does."""
        while True:
            await anyio.sleep(0.5)
            workers.replace_dead()

    async def _kill(self, workers: Workers) -> None:
        chance = random.Random(self.seed)
        server_at = {(n + 1) * self.kills // (self.server_kills + 1) for n in range(self.server_kills)}
        began = time.monotonic()
        while workers.killed < self.kills:
            size = self._written()
            with anyio.move_on_after(5):
                while self._written() == size:  # noqa: ASYNC110 - a kill of idle workers has no use
                    await anyio.sleep(0.02)
            await anyio.sleep(chance.uniform(0, self.pause))
            workers.kill_some(chance)
            if self.server is not None and any(at <= workers.killed for at in server_at):
                server_at = {at for at in server_at if at > workers.killed}
                await anyio.to_thread.run_sync(self.server.kill)
            if self.prints and workers.killed % 25 == 0:
                ended = {name: len(played) for name, played in self.played.items()}
                print(f"{time.monotonic() - began:6.0f} s  {workers.killed} kills  {ended}", flush=True)

    def _written(self) -> int:
        return sum(path.stat().st_size for path in self.folder.iterdir() if path.name != "errors")

    async def _feed(self, case: KillCase) -> None:
        client = await Client.connect(self.settings.address)
        calls = TaskClient(client, app_of(case.name, self.folder), self.settings)
        number, live = 0, anyio.Semaphore(self.live_max)
        async with anyio.create_task_group() as group:
            while not self._ends_feeding:
                await live.acquire()
                number += 1
                group.start_soon(self._run, case, client, calls, number, live)
                await anyio.sleep(self.pace)

    async def _run(self, case: KillCase, client: Client, calls: TaskClient, number: int, live: anyio.Semaphore) -> None:
        key = f"{case.name}-{self._id}-{number}"
        payload = case.payload(number)
        id = await call_until_answered(lambda: calls.emit(case.workflow, payload, dedup_key=key, dedup_scope="ever"))
        answered: set[str] = set()
        async with anyio.create_task_group() as group:
            group.start_soon(self._answer_all, case, calls, number, id, answered)
            end = await call_until_answered(lambda: calls.result(id))
            group.cancel_scope.cancel()
        try:
            view = await call_until_answered(lambda: calls.view(id), ANSWER_SECONDS)
            crashes, entries = view.crashes, view.entries
        except WorkflowQueryFailedError as error:  # the history does not replay, which is a bug of the workflow
            crashes = entries = 0
            self.tallies[case.name].wrong.append(f"{id}: {error}")
            history = await client.get_workflow_handle(f"k:{key}").fetch_history()
            (self.folder.parent / f"{key}.json").write_text(history.to_json())
        self.played[case.name].append(PlayedTask(number=number, id=id, end=end, crashes=crashes, entries=entries))
        live.release()

    async def _answer_all(self, case: KillCase, calls: TaskClient, number: int, id: str, answered: set[str]) -> None:
        tally = self.tallies[case.name]
        await anyio.sleep(0.3 if case.asks else 1.5)
        while True:
            with (
                suppress(CraftcoreError, RPCError, WorkflowUpdateRPCTimeoutOrCancelledError),
                anyio.move_on_after(ANSWER_SECONDS),
            ):
                view = await calls.view(id)
                acts = {one.key: one for one in view.activities}
                for question in view.questions:
                    if question.id not in answered:
                        answered.add(question.id)
                        tally.questions += 1
                        tally.doubts += question.activity_key is not None
                    answer = case.answer(number, question, acts.get(question.activity_key or ""))
                    reference = "seen" if answer == "happened" else None
                    await calls.answer(id, question.id, answer, by="ada", reference=reference)
            await anyio.sleep(0.7)


async def call_until_answered(call: Callable[[], Awaitable[T]], seconds: float | None = None) -> T:
    """Repeat a call until it is answered, because the cluster or the workers may be down. `seconds`: per call."""
    while True:
        try:
            with anyio.fail_after(seconds):
                return await call()
        except (RPCError, TimeoutError):
            await anyio.sleep(0.2)


@contextmanager
def a_model(folder: Path) -> Iterator[str]:
    """Run the model stub of the examples as a process, and yield its address."""
    command = [sys.executable, "-u", str(ROOT / "examples" / "stub_model.py"), "0"]
    with (folder / "model").open("wb") as out:
        process = subprocess.Popen(command, stdout=out)
    try:
        while not (answer := lines(folder / "model")):
            time.sleep(0.02)
        yield answer[0]
    finally:
        process.kill()
        process.wait()


@contextmanager
def a_campaign(
    folder: Path,
    kinds: Sequence[Callable[[Path], KillCase]],
    *,
    kills: int,
    server_kills: int,
    seed: int,
    live_max: int = 8,
    timeout: float | None = None,
    prints: bool = False,
) -> Iterator[Campaign]:
    """Yield a campaign with its own server."""
    work = folder / "work"
    work.mkdir()
    server = DevServer(folder / "server.db" if server_kills else None)
    try:
        yield Campaign(
            settings=server.settings,
            folder=work,
            cases=[kind(work) for kind in kinds],
            kills=kills,
            seed=seed,
            live_max=live_max,
            timeout=timeout,
            server=server,
            server_kills=server_kills,
            prints=prints,
        )
    finally:
        server.close()


def main() -> int:
    """Run a campaign with its own server, and print its counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", help="examples, or witness, with commas between them; or all")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--server-kills", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--live", type=int, default=8)
    parser.add_argument("--timeout", type=float)
    args = parser.parse_args()
    chosen = [case for case in CASES if args.names == "all" or case.name in args.names.split(",")]
    if len(chosen) != (len(CASES) if args.names == "all" else len(args.names.split(","))):
        parser.error(f"NAMES are of {', '.join(case.name for case in CASES)}, or all; not {args.names}")
    folder = Path(tempfile.mkdtemp(prefix="craftcore-kills-"))
    began = time.monotonic()
    with a_campaign(
        folder,
        chosen,
        kills=args.kills,
        server_kills=args.server_kills,
        seed=args.seed,
        live_max=args.live,
        timeout=args.timeout,
        prints=True,
    ) as campaign:
        try:
            tallies = anyio.run(campaign.play, campaign.allowed_seconds)
        finally:
            print(
                f"{folder}: {campaign.killed} kills, exits {campaign.exits}, {args.server_kills} of the server",
                flush=True,
            )
    for name, tally in tallies.items():
        print(name, {key: value for key, value in asdict(tally).items() if key != "wrong"})
        for wrong, count in Counter(tally.wrong).most_common(20):
            print(f"WRONG ({count}): {wrong}")
    print(f"{time.monotonic() - began:.0f} s")
    return 1 if any(tally.wrong or tally.doubled or tally.missing for tally in tallies.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
