"""Stopped lives of a crash matrix: their files are copied exactly, and their child processes end with the matrix."""

from __future__ import annotations

import errno
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from craftcore import App, Call, NoEffect, RetryPolicy, TaskContext
from craftcore.errors import StorageFull
from craftcore.failpoints import Failpoint
from craftcore.testing import Lab, crash_cell, crash_matrix
from craftcore.testing.crash_point import EDGES
from craftcore.testing.folder_copy import copy_folder
from craftcore.testing.life_log import LifeBegan, LifeLog, Passed, Returned, read_log
from craftcore.testing.life_stop import StopPipe
from craftcore.testing.running_life import RunningLife
from tests.support.some_crashes import after_first_step, crash_some


def an_app(*functions: Callable[..., Any]) -> App:
    """Return an app whose workflow has these functions as steps, each with the result of the one before."""
    app = App("made")

    @app.workflow("work")
    async def work(ctx: TaskContext) -> Any:
        result = None
        for function in functions:
            result = await ctx.step(function.__name__, function, result)
        return result

    return app


async def play_work(lab: Lab) -> Any:
    return await lab.result(await lab.emit("work"))


def save(_: None) -> str:
    path = Path("saved.bell").absolute()
    path.write_text("saved")
    return str(path)


def save_and_leave_special_files(_: None) -> str:
    if not Path("pipe").exists():
        os.mkfifo("pipe")
    if not Path("socket").exists():
        socket.socket(socket.AF_UNIX).bind("socket")
    if not Path("link").is_symlink():
        Path("link").symlink_to("nowhere")
    return save(None)


def read_and_count_special_files(path: str) -> str:
    special = Path("pipe").is_fifo() + Path("socket").is_socket() + Path("link").is_symlink()
    return f"{Path(path).read_text()} {special}"


def test_pairs_find_files_pipes_sockets_and_links_at_the_paths_that_work_keeps():
    report = crash_some(
        an_app(save_and_leave_special_files, read_and_count_special_files),
        play_work,
        [lambda ending: ending.returned == "saved 3"],
        choose=after_first_step,
        pairs=True,
    )
    assert report.reached > 5


def test_copy_leaves_out_a_file_that_vanishes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "here" / "inner").mkdir(parents=True)
    (tmp_path / "here" / "inner" / "gone").touch()
    (tmp_path / "here" / "kept").touch()
    monkeypatch.setattr(
        "shutil.copy2", lambda source, target, **_: Path(target).touch() if "kept" in source else fail()
    )

    def fail() -> None:
        raise FileNotFoundError

    copy_folder(tmp_path / "here", tmp_path / "there")
    assert sorted(path.name for path in (tmp_path / "there").rglob("*")) == ["inner", "kept"]


def test_programs_that_a_life_starts_end_with_the_life(tmp_path: Path):
    def start_programs(_: None) -> None:
        for program in (["sleep", "600"], ["sh", "-c", "while :; do echo x > file; rm file; sleep 0.01; done"]):
            started = subprocess.Popen(program)
            with (tmp_path / "started").open("a") as file:
                file.write(f"{started.pid}\n")

    crash_some(an_app(start_programs), play_work, choose=after_first_step, pairs=True)
    started = [int(line) for line in (tmp_path / "started").read_text().split()]
    assert len(started) > 10
    for pid in started:
        wait_until_ended(pid)


def wait_until_ended(pid: int) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([descriptor], [], [], 10.0)[0], f"process {pid} still runs"
    finally:
        os.close(descriptor)


KILLED_MATRIX = """
import os, signal
from craftcore import App
from craftcore.testing import crash_matrix
from craftcore.testing.running_life import RunningLife

def kill_matrix(life):
    print(life._pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

app = App("nothing")
RunningLife.resume = kill_matrix

@app.workflow("work")
async def work(ctx):
    await ctx.step("count", len, "abc")

async def scenario(lab):
    await lab.result(await lab.emit("work"))

crash_matrix(app, scenario, pairs=True, jobs=1)
"""


def test_stopped_life_ends_with_a_matrix_that_is_killed(tmp_path: Path):
    ended = subprocess.run(
        [sys.executable, "-c", KILLED_MATRIX],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL
    wait_until_ended(int(ended.stdout))


def test_matrix_runs_beside_many_open_files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened: list[int] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2048)), hard))
        while len(opened) < 1100:
            opened.append(os.open(os.devnull, os.O_RDONLY))
        assert crash_matrix(an_app(save), play_work, at="step.ran:1").reached == 1
    finally:
        for descriptor in opened:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def a_life() -> RunningLife:
    """Return a process that executes another program, which closes its end of the pipe."""
    stops = StopPipe()
    pid = os.fork()
    if not pid:
        os.execvp("sleep", ["sleep", "600"])
    return RunningLife(pid, stops)


def test_life_that_becomes_another_program_stops_no_more():
    life = a_life()
    [ended, stops] = life.descriptors
    assert select.select([stops], [], [], 10.0)[0] == [stops]
    assert life.take_stop() is None
    assert life.descriptors == [ended], "a closed pipe is always readable"
    life.end(hung=True)


def test_time_of_a_stop_is_not_the_time_of_the_life():
    life = a_life()
    life.until = time.monotonic() - 1
    life.resume()
    assert life.until > time.monotonic() + 60
    life.end(hung=True)


def test_point_after_a_change_by_the_app_alone_is_distinct():
    def fail_once(_: None) -> None:
        if not Path("mark").exists():
            Path("mark").touch()
            raise OSError("down")

    app = App("made")

    @app.workflow("work")
    async def work(ctx: TaskContext) -> None:
        await ctx.step("fail", fail_once, None, retry=RetryPolicy(base=1))

    assert next_edge(app, Failpoint.STEP_ENTERED).is_distinct, "the file exists, and the failure is not stored"


def test_point_after_a_call_that_failed_is_distinct():
    app = App("made")

    @app.action("bank.charge", irreversible=True)
    async def charge(call: Call) -> None:
        raise NoEffect("down")

    @app.workflow("work")
    async def work(ctx: TaskContext) -> None:
        with suppress(NoEffect):
            await ctx.act(charge)

    answered = next_edge(app, Failpoint.CALL_MARKED)
    assert (answered.point, answered.is_distinct) == (Failpoint.PROVIDER_ANSWERED, True), (
        "the failed call may have had effects"
    )


def next_edge(app: App, point: Failpoint) -> Passed:
    """Return the edge after the first pass of this point, in a run without a crash."""
    records = crash_matrix(app, play_work, at=f"{point}:1").results[0].records
    edges = [record for record in records if isinstance(record, Passed) and record.point in EDGES]
    first = next(place for place, record in enumerate(edges) if record.point is point)
    return edges[first + 1]


@pytest.mark.parametrize("cut", [1, 3, 50])
def test_log_continues_after_a_truncated_record(tmp_path: Path, cut: int):
    path = tmp_path / "log"
    log = LifeLog(path)
    log.append(LifeBegan())
    log.append(Returned(1, "x" * 100, None))
    os.truncate(path, path.stat().st_size - cut)

    assert read_log(path) == [LifeBegan()]
    assert read_log(path, repair=True) == [LifeBegan()]
    LifeLog(path).append(Returned(2, None, None))
    assert read_log(path) == [LifeBegan(), Returned(2, None, None)]


def test_matrix_on_a_full_disk_raises_storage_full(monkeypatch: pytest.MonkeyPatch):
    def fail(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(crash_cell, "copy_folder", fail)
    with pytest.raises(StorageFull, match="the disk is full"):
        crash_matrix(an_app(save), play_work)
