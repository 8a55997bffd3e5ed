"""The commands `worker`, `emit` and `check` as processes, on a real server."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from craftcore.temporal.settings import TemporalSettings
from tests.support.processes import PATIENCE, Result
from tests.support.warm_parent import WarmProcess
from tests.temporal.worker_processes import run_on_cluster, start_on_cluster

APP = """
from craftcore import App, Fail, TaskContext

app = App("commanded")

@app.workflow("order")
async def order(ctx: TaskContext, what: str) -> str:
    return await ctx.step("price", lambda: f"{what}: 40")

@app.workflow("fails")
async def fails(ctx: TaskContext) -> None:
    raise Fail("AGENT_ERROR", "no more")

@app.workflow("writes")
async def writes(ctx: TaskContext) -> None:
    await ctx.transaction("write", lambda tx: None)
"""

PRINTS_ITS_END = """
import os

class EndNote:
    def __del__(self, write=os.write):
        write(1, b"destroyed at the end of Python")

end_note = EndNote()
"""

Craftcore = Callable[..., Result]


@pytest.fixture
def environment(cluster: TemporalSettings, tmp_path: Path) -> dict[str, str]:
    (tmp_path / "shop.py").write_text(APP)
    return os.environ | {"CRAFTCORE_TEMPORAL_ADDRESS": cluster.address}


@pytest.fixture
def craftcore(environment: dict[str, str], tmp_path: Path) -> Craftcore:
    def run(*words: str) -> Result:
        return run_on_cluster(["-m", "craftcore", "temporal", *words], cwd=tmp_path, env=environment)

    return run


@pytest.fixture
def worker(environment: dict[str, str], tmp_path: Path) -> Iterator[WarmProcess]:
    command = ["-m", "craftcore", "temporal", "worker", "shop:app", "--sticky-timeout", "1s"]
    process = start_on_cluster(command, cwd=tmp_path, env=environment)
    yield process
    process.kill()
    process.wait(PATIENCE)


def test_worker_runs_emitted_tasks_and_drains_at_sigterm(craftcore, worker):
    once = ["--dedup-key", "lamp", "--dedup-scope", "ever"]
    emit = ["emit", "order", "--task-queue", "commanded", "--payload", '{"what": "lamp"}', *once]
    done = craftcore(*emit, "--wait", "60s")
    assert (done.code, done.out) == (0, '"lamp: 40"\n'), done.err

    again = json.loads(craftcore(*emit, "--json").out)
    assert "no new trigger" in craftcore(*emit).err
    assert (again["created"], again["held"], again["dedup_scope"]) == (False, "dedup_key", "ever")
    assert craftcore(*emit, "--on-duplicate", "error").code == 64

    failed = craftcore("emit", "fails", "--task-queue", "commanded", "--wait", "60s")
    assert failed.code == 4
    assert "no more" in failed.err

    worker.send_signal(signal.SIGTERM)
    assert worker.wait(PATIENCE) == 0


def test_emit_waits_at_most_the_given_time(craftcore):
    done = craftcore("emit", "order", "--task-queue", "nobody", "--wait", "0.1")
    assert done.code == 75
    assert "has not ended in time" in done.err


def test_emit_without_an_app_is_refused(craftcore):
    done = craftcore("emit", "order")
    assert done.code == 64
    assert "--task-queue" in done.err


def test_check_warns_of_calls_that_a_cluster_refuses_and_of_a_short_retention(craftcore):
    done = craftcore("check", "shop:app", "--json")
    checked = json.loads(done.out)
    assert (done.code, checked["problems"]) == (0, [])
    [transaction, retention] = checked["warnings"]
    assert transaction.startswith("workflow writes has a call of ctx.transaction")
    assert "retention.keys" in retention


def test_process_of_a_command_ends_without_the_end_of_python(craftcore, tmp_path):
    """Threads of the library may call Python during its end, where commands sometimes hung or aborted."""
    (tmp_path / "shop.py").write_text(APP + PRINTS_ITS_END)
    done = craftcore("check", "shop:app", "--json")
    assert "destroyed" not in done.out
    assert (done.code, json.loads(done.out)["problems"]) == (0, [])


def test_check_names_every_problem(craftcore):
    done = craftcore("check", "nowhere:app", "--address", "127.0.0.1:1")
    assert done.code == 78
    assert [line[:4] for line in done.out.splitlines()] == ["FAIL", "FAIL"]


def test_worker_of_an_app_that_is_missing_is_refused(craftcore):
    done = craftcore("worker", "nowhere:app")
    assert done.code == 78
    assert len(done.err.splitlines()) == 1
