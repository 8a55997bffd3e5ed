"""A database, WAL or shared memory file deleted or replaced under an engine: the engine ends, and emits are refused."""

from __future__ import annotations

import shutil
import signal
from functools import partial
from pathlib import Path

import pytest

from tests.support.command_calls import call_command
from tests.support.processes import APP, DaemonProcess, Result, a_daemon, until

NAMES = {"database": "agent.db", "WAL": "agent.db-wal", "shared memory": "agent.db-shm"}
CODES = {"database": 65, "WAL": 74, "shared memory": 74}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "app.py").write_text(APP)
    return home


def delete(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    """Replace the file by a copy, as an editor or rsync does."""
    copy = path.with_name("copy")
    shutil.copy(path, copy)
    copy.rename(path)


def move(path: Path) -> None:
    path.rename(path.with_name("moved"))


def emit(folder: Path, number: int) -> Result:
    return call_command(folder, "--json", "emit", "greet", "--payload", f'{{"name": "number {number}"}}')


def greeted(folder: Path) -> list[str]:
    trace = folder / "trace"
    return trace.read_text().splitlines() if trace.exists() else []


def accepted_ids(results: list[Result]) -> list[str]:
    return [result.json["id"] for result in results if result.code == 0]


def is_done(folder: Path, id: str) -> bool:
    return bool(call_command(folder, "--json", "trigger", "show", id).json["status"] == "DONE")


def start_busy(daemon: DaemonProcess, folder: Path) -> list[Result]:
    """Fill the WAL of a daemon and return the results of its emits."""
    daemon.ready()
    results = [emit(folder, number) for number in range(3)]
    until(lambda: len(greeted(folder)) == 3, "three to run")
    return results


@pytest.mark.parametrize(
    ("file", "change"),
    [
        pytest.param("database", delete, marks=pytest.mark.acceptance),
        ("database", replace),
        pytest.param("database", move, marks=pytest.mark.acceptance),
        ("WAL", replace),
        ("shared memory", delete),
    ],
)
def test_daemon_whose_file_was_replaced_ends_and_producers_are_refused(folder, file, change):
    name = folder / NAMES[file]
    with a_daemon(folder, "app:app") as daemon:
        # A commit in progress would report the replacement with another message.
        for id in accepted_ids(start_busy(daemon, folder)):
            until(partial(is_done, folder, id))
        daemon.signal(signal.SIGSTOP)  # so that the other processes act first
        change(name)

        refused = emit(folder, 3)
        status = call_command(folder, "--json", "status")
        daemon.signal(signal.SIGCONT)

        assert daemon.wait() == refused.code == CODES[file]
        sentence = f"{name} was deleted or replaced under the running"
        assert sentence in daemon.log
        assert sentence in refused.err
        assert "Nothing was written" in refused.err
        if status.code == 0:
            assert (status.json["health"], status.json["reasons"][0]["code"]) == ("degraded", "replaced")
            assert sentence in status.json["verdict"]
        else:  # a database without its WAL may not be readable
            assert (status.code, sentence in status.err) == (CODES[file], True)


@pytest.mark.parametrize(
    "change", [delete, *(pytest.param(change, marks=pytest.mark.acceptance) for change in (replace, move))]
)
def test_lost_shared_memory_file_loses_no_accepted_trigger(folder, change):
    with a_daemon(folder, "app:app") as daemon:
        results = start_busy(daemon, folder)
        daemon.signal(signal.SIGSTOP)
        change(folder / NAMES["shared memory"])
        results += [emit(folder, number) for number in range(3, 6)]
        daemon.signal(signal.SIGCONT)
        daemon.signal(signal.SIGTERM)
        assert daemon.wait() in (0, 74)

    with a_daemon(folder, "app:app") as daemon:
        daemon.ready()
        results.append(emit(folder, 6))
        for id in accepted_ids(results):
            until(partial(is_done, folder, id))
    assert results[-1].code == 0
    assert call_command(folder, "db", "check").code == 0


@pytest.mark.parametrize("change", ["deleted", "replaced"])
def test_daemon_whose_directory_was_replaced_ends_and_reports_the_cause(folder, change):
    with a_daemon(folder, "app:app", CRAFTCORE_DB=str(folder / "agent.db")) as daemon:
        for id in accepted_ids(start_busy(daemon, folder)):
            until(partial(is_done, folder, id))
        before = folder.with_name("before")
        folder.rename(before)
        if change == "replaced":
            shutil.copytree(before, folder, ignore=shutil.ignore_patterns("*.bell"))
        else:
            shutil.rmtree(before, ignore_errors=True)

        assert daemon.wait() == 65
    if change == "replaced":
        assert "agent.db was deleted or replaced under the running engine" in (before / "daemon.log").read_text()


PEEKING_APP = """
import anyio
import sqlite3
from craftcore import App
app = App("peeks")

@app.workflow("peek")
async def peek() -> int:
    while not await anyio.Path("others-are-gone").exists():
        await anyio.sleep(0.01)
    connection = sqlite3.connect("agent.db")
    found = connection.execute("SELECT count(*) FROM triggers").fetchone()[0]
    connection.close()
    return found

@app.workflow("greet")
async def greet(name: str = "you") -> None:
    with open("trace", "a") as file:
        file.write(name + "\\n")
"""


def test_foreign_sqlite3_in_the_engine_process_is_noticed(folder):
    """The closing connection believes it is the last, moves the WAL into the file and deletes the WAL."""
    (folder / "app.py").write_text(PEEKING_APP)
    with a_daemon(folder, "app:app") as daemon:
        daemon.ready()
        results = [emit(folder, 1), call_command(folder, "--json", "emit", "peek")]
        (folder / "others-are-gone").touch()  # a command with the file open would keep the WAL

        assert daemon.wait(timeout=60.0) == 74

        assert "agent.db-wal was deleted or replaced" in daemon.log
    rows = call_command(folder, "--json", "trigger", "list").json
    assert set(accepted_ids(results)) <= {row["id"] for row in rows}
    assert call_command(folder, "db", "check").code == 0
