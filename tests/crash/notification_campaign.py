"""The kill campaign of a daemon that notifies: each question, doubt and dead letter is one accepted trigger.

python -m tests.crash.notification_campaign --kills 500 --seed 1
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from craftcore import Config, Producer
from craftcore.services import Services
from tests.crash.task_never import broken_invariants
from tests.support.processes import a_daemon, until

APP = """
from craftcore import App, TaskContext
from craftcore.daemon import notification_loop

notification_loop.LOOK_SECONDS = notification_loop.REST_SECONDS = 0.01
app = App("campaign")

@app.action("post", irreversible=True)
async def post(call) -> str:
    raise RuntimeError("the answer is lost")

@app.workflow("asks")
async def asks(ctx: TaskContext) -> str:
    return await ctx.ask("Send it?", options=["send", "hold"])

@app.workflow("doubts")
async def doubts(ctx: TaskContext) -> None:
    await ctx.act(post)

@app.workflow("breaks")
async def breaks() -> None:
    raise RuntimeError("it broke")

@app.on_failure
async def record(notification: dict) -> None: ...
"""

SETTINGS = """
[retry]
max_attempts = 1
base_seconds = 0

[[notify]]
on = ["question", "in_doubt", "dead", "failed"]
command = ["true"]
digest = 100

[[notify]]
on = ["question", "dead"]
command = ["false"]
digest = 2
"""

EVENTS = """
SELECT questions.id FROM questions
 UNION ALL
SELECT id FROM triggers WHERE status IN ('DEAD', 'FAILED') AND coalesce(dedup_key, '') NOT GLOB 'notify:*'
"""
UNSETTLED = """
SELECT count(*) FROM triggers
 WHERE status IN ('PENDING', 'CLAIMED') OR EXISTS (SELECT 1 FROM tasks WHERE status = 'RUNNING')
"""
SENT = "SELECT payload_json FROM triggers WHERE dedup_key GLOB 'notify:1:*'"
CALLED = "SELECT payload_json FROM triggers WHERE dedup_key GLOB 'notify:on_failure.record:*'"


class Verdict(NamedTuple):
    """The result of a campaign. Each event must have exactly one notification."""

    kills: int
    events: int
    triggers: int
    lost: list[str]
    doubled: list[str]
    failures_called: int
    failures: int
    wrong: Sequence[str] = ()

    @property
    def holds(self) -> bool:
        is_wrong = self.lost or self.doubled or self.wrong
        return not is_wrong and self.failures_called == self.failures and self.events > 0


def run(folder: Path, kills: int, seed: int) -> Verdict:
    """Kill a daemon `kills` times, let the last one finish all work, and count the notifications."""
    chance = random.Random(seed)
    (folder / "app.py").write_text(APP)
    (folder / "craftcore.toml").write_text(SETTINGS)
    with Producer(folder / "agent.db") as producer:
        for _ in range(kills):
            for workflow in ("asks", "doubts", "breaks"):
                producer.emit(workflow)
            with a_daemon(folder, "--config", "craftcore.toml", "app:app") as daemon:
                daemon.ready()
                time.sleep(chance.uniform(0, 0.15))
                daemon.kill()
        with a_daemon(folder, "--config", "craftcore.toml", "app:app") as daemon:
            daemon.ready()
            until(lambda: _is_settled(folder), "all work to be settled")
    with Services(folder / "agent.db", Config()).reading() as reader:
        return judge(folder, kills)._replace(wrong=broken_invariants(reader))


def _is_settled(folder: Path) -> bool:
    with Services(folder / "agent.db", Config()).reading() as reader:
        return reader.fetch_value(UNSETTLED) == 0 and not judge(folder, 0).lost


def judge(folder: Path, kills: int) -> Verdict:
    """Compare the events with their notifications."""
    with Services(folder / "agent.db", Config()).reading() as reader:
        events = [row["id"] for row in reader.fetch_all(EVENTS)]
        payloads = [json.loads(row["payload_json"]) for row in reader.fetch_all(SENT)]
        called = [json.loads(row["payload_json"])["notification"]["id"] for row in reader.fetch_all(CALLED)]
        failures = [row["id"] for row in reader.fetch_all(EVENTS.partition("UNION ALL")[2])]
    sent = Counter(one["id"] for payload in payloads for one in json.loads(payload["stdin"])["notifications"])
    return Verdict(
        kills=kills,
        events=len(events),
        triggers=len(payloads),
        lost=[id for id in events if sent[id] == 0],
        doubled=[id for id, times in sent.items() if times > 1],
        failures_called=len(set(called)) if len(set(called)) == len(called) else -1,
        failures=len(failures),
    )


def main() -> None:
    """Run a campaign, and print its verdict."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="craftcore-notifications-", dir="/dev/shm") as folder:
        verdict = run(Path(folder), args.kills, args.seed)
    print(
        f"{verdict.kills} kills, {verdict.events} events, {verdict.triggers} triggers: {len(verdict.lost)} lost, "
        f"{len(verdict.doubled)} doubled; {verdict.failures_called} of {verdict.failures} failures called the code"
    )
    raise SystemExit(0 if verdict.holds else 1)


if __name__ == "__main__":
    main()
