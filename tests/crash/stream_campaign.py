"""The kill campaign of streams: daemons and readers are killed, and each reader has the text that the turns wrote.

python -m tests.crash.stream_campaign --kills 1000 --seed 1
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from craftcore import Config, Producer, StreamChunk
from craftcore.failpoints import Failpoint
from craftcore.services import Services
from tests.crash.task_never import broken_invariants
from tests.support.processes import PATIENCE, DaemonProcess, a_daemon, a_python, until
from tests.support.warm_parent import WarmProcess

APP = """
import asyncio, os, time
from craftcore import App, Continue, TaskContext
from craftcore.engine import stream_commits
from craftcore.engine.turn.turn_streams import TurnStreams
from craftcore.failpoints import Failpoint, arm, kill_process

stream_commits.GROUP_SECONDS = 0.01  # several commits a step
app = App("campaign")
point, _, at_pass = os.environ.get("KILL", "").partition(" ")
if point:
    arm(Failpoint(point), kill_process, at_pass=int(at_pass))

async def end_unsaved(streams, part):
    pass

def begin_uncut(streams, name, stream, part):
    part.begun.add(name)

match os.environ.get("FAULT"):
    case "unsaved":
        TurnStreams.end_part = end_unsaved
    case "uncut":
        TurnStreams._begin = begin_uncut

def texts():
    salt = os.urandom(4).hex()
    return [f"{salt}.{number} " for number in range(12)]

@app.workflow("says")
async def says(ctx: TaskContext):
    stream = ctx.stream("answer")

    async def model():
        written = ""
        for text in texts():
            await stream.write(text)
            written += text
            await asyncio.sleep(0.005)
        return written

    def plain():
        written = ""
        for text in texts():
            stream.write_blocking(text)
            written += text
            time.sleep(0.005)
        return written

    whole = ctx.state or ""
    for text in (f"turn {ctx.turn}", ": "):
        await stream.write(text)
        whole += text
    whole += await ctx.step("model", model)
    await ctx.sleep(0.01)
    await stream.write("; ")
    whole += "; " + await ctx.step("plain", plain)
    await stream.write(".")
    whole += "."
    return Continue(whole) if ctx.turn < 2 else whole
"""

READER = """
import json, os, random
from craftcore import Producer

file = os.open("chunks", os.O_RDWR | os.O_CREAT | os.O_APPEND)
lines = open("chunks", "rb").read()
os.ftruncate(file, lines.rfind(b"\\n") + 1)  # of a line that a kill has cut off
last = {}
for line in lines[: lines.rfind(b"\\n") + 1].splitlines():
    id, number, *_ = json.loads(line)
    last[id] = number
print("reads", flush=True)
with Producer("agent.db") as producer:
    for id in open("ids").read().split():
        stream, is_over = producer.handle(id).stream("answer", after=last.get(id, 0)), False
        while not is_over:
            is_over, left = True, random.randint(1, 20)
            for chunk in stream:
                cut = [[numbers.start, numbers.stop] for numbers in chunk.cut]
                os.write(file, json.dumps([id, chunk.number, chunk.text, cut]).encode() + b"\\n")
                last[id] = chunk.number
                left -= 1
                if not left:  # it loses its connection
                    stream.close()
                    stream, is_over = producer.handle(id).stream("answer", after=last[id]), False
                    break
print("has read all", flush=True)
"""

POINTS = (
    *(Failpoint.STREAM_COMMITTED, Failpoint.STREAM_COMMITTED, Failpoint.STEP_RAN, Failpoint.STEP_COMMITTED),
    *(Failpoint.WRITER_FLUSHING, Failpoint.WRITER_FLUSHED, Failpoint.TURN_ENTERED, Failpoint.TURN_SUSPENDED),
    *(Failpoint.HANDLER_RETURNED, Failpoint.SETTLE_BEGUN, Failpoint.SETTLE_COMMITTED),
)
TASKS_LIVE = 4
"""Tasks at once: of several that run in a crash, none is to blame for it."""

LIVE = "SELECT count(*) FROM triggers WHERE status IN ('PENDING', 'CLAIMED')"


class Verdict(NamedTuple):
    """The result of a campaign: the tasks whose text a reader does not have, and where its numbers do not grow."""

    kills: int
    tasks: int
    chunks: int
    cuts: int
    torn: list[str]
    torn_for_new_readers: list[str]
    doubled: list[str]
    wrong: list[str]

    @property
    def holds(self) -> bool:
        return self.tasks > 0 and not (self.torn or self.torn_for_new_readers or self.doubled or self.wrong)


def text_of(chunks: list[StreamChunk]) -> str:
    """Return the text that a reader shows after these chunks."""
    shown: dict[int, str] = {}
    for chunk in chunks:
        for number in (number for numbers in chunk.cut for number in numbers):
            shown.pop(number, None)
        shown[chunk.number] = chunk.text
    return "".join(shown.values())


def run(folder: Path, kills: int, seed: int, fault: str = "") -> Verdict:
    """Kill daemons and readers, let the last ones finish, and compare each text with the result of its task."""
    chance = random.Random(seed)
    (folder / "app.py").write_text(APP)
    ids: list[str] = []
    with Producer(folder / "agent.db") as producer:
        for _ in range(kills):
            while _count_live(folder) < TASKS_LIVE:
                ids.append(producer.emit("says").id)
            place = f"{chance.choice(POINTS)} {chance.randint(1, 20)}"
            with _reader(folder, ids) as reader, a_daemon(folder, "app:app", KILL=place, FAULT=fault) as daemon:
                if chance.random() < 0.3:  # the daemon goes on meanwhile
                    until(partial(_is_killed_or_read, daemon), "a chunk")
                    reader.kill()
                until(partial(_is_killed_or_idle, daemon), "a kill")
        for poisoned in producer.tasks(status="FAILED", limit=10_000):
            producer.retry_task(poisoned.id)
        with _reader(folder, ids) as reader, a_daemon(folder, "app:app", FAULT=fault) as daemon:
            daemon.ready()
            assert reader.stdout is not None
            assert reader.wait(PATIENCE) == 0, daemon.log
        return judge(folder, producer, ids, kills)


@contextmanager
def _reader(folder: Path, ids: list[str]) -> Iterator[WarmProcess]:
    (folder / "ids").write_text("\n".join(ids))
    with a_python(["-c", READER], folder) as reader:
        yield reader


def _count_live(folder: Path) -> int:
    with Services(folder / "agent.db", Config()).reading() as reader:
        return int(reader.fetch_value(LIVE))


def _is_killed_or_read(daemon: DaemonProcess) -> bool:
    return daemon.process.poll() is not None or (daemon.folder / "chunks").exists()


def _is_killed_or_idle(daemon: DaemonProcess) -> bool:
    return daemon.process.poll() is not None or not _count_live(daemon.folder)


def judge(folder: Path, producer: Producer, ids: list[str], kills: int) -> Verdict:
    """Compare what was read with what the tasks returned."""
    read: dict[str, list[StreamChunk]] = {id: [] for id in ids}
    for line in (folder / "chunks").read_text().splitlines():
        id, number, text, cut = json.loads(line)
        read[id].append(StreamChunk(number, text, 0, tuple(range(start, stop) for start, stop in cut)))
    results: dict[str, Any] = {id: producer.handle(id).result(timeout=0) for id in ids}
    with Services(folder / "agent.db", Config()).reading() as reader:
        wrong = list(broken_invariants(reader))
    return Verdict(
        kills=kills,
        tasks=len(ids),
        chunks=sum(map(len, read.values())),
        cuts=sum(bool(chunk.cut) for chunks in read.values() for chunk in chunks),
        torn=[id for id in ids if text_of(read[id]) != results[id]],
        torn_for_new_readers=[id for id in ids if text_of(list(producer.handle(id).stream())) != results[id]],
        doubled=[id for id in ids if (numbers := [one.number for one in read[id]]) != sorted(set(numbers))],
        wrong=wrong,
    )


def main() -> None:
    """Run a campaign, and print its verdict."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fault", default="", choices=("", "unsaved", "uncut"))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="craftcore-streams-", dir="/dev/shm") as folder:
        verdict = run(Path(folder), args.kills, args.seed, args.fault)
    print(
        f"{verdict.kills} kills, {verdict.tasks} tasks, {verdict.chunks} chunks, {verdict.cuts} cuts: "
        f"{len(verdict.torn)} torn, {len(verdict.torn_for_new_readers)} torn for new readers, "
        f"{len(verdict.doubled)} doubled, {len(verdict.wrong)} wrong"
    )
    raise SystemExit(0 if verdict.holds else 1)


if __name__ == "__main__":
    main()
