"""A daemon whose writer thread dies: it exits with the reason and handles signals meanwhile."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from craftcore import Producer
from tests.support.command_calls import call_command
from tests.support.processes import a_daemon, craftcore, until
from tests.support.warm_parent import FINALIZES

APP = """
import os, threading
from craftcore import App
from craftcore.storage import checkpoints

app = App()

@app.workflow("stuck")
def stuck() -> None:
    if not os.path.exists("healed"):
        threading.Event().wait()

@app.workflow("breaks")
async def breaks() -> None:
    if not os.path.exists("healed"):
        checkpoints.IDLE_SECONDS = "no number"  # read between two commits
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


@pytest.mark.parametrize("is_asked", [False, True], ids=["by itself", "SIGTERM meanwhile"])
def test_daemon_whose_writer_fails_exits_70_and_the_next_continues(folder, is_asked):
    with a_daemon(folder, "app:app") as daemon:
        daemon.ready()
        with Producer(folder / "agent.db") as producer:
            producer.emit("stuck")
            producer.emit("breaks")
        if is_asked:
            until(lambda: "writer.died" in daemon.log, "the writer to die")
            if daemon.process.poll() is None:
                daemon.signal(signal.SIGTERM)
        code = daemon.wait()

    assert code == 70, daemon.log
    assert "the thread that writes was ended by TypeError" in daemon.log
    assert '"writer.died"' in daemon.log
    (folder / "healed").touch()
    assert craftcore(folder, "run", "app:app", "--until-idle").code == 0
    assert {row["status"] for row in call_command(folder, "--json", "trigger", "list").json} == {"DONE"}


LINGERING_APP = (
    APP
    + """
import atexit, time

@atexit.register
def linger() -> None:
    open("lingers", "w").close()
    while not os.path.exists("go"):
        time.sleep(0.01)
"""
)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signal_to_an_ended_daemon_does_not_change_its_exit_code(folder, number):
    """The process still exists while Python ends its threads and runs the exit handlers."""
    (folder / "app.py").write_text(LINGERING_APP)
    with a_daemon(folder, "app:app") as daemon:
        daemon.ready()
        with Producer(folder / "agent.db") as producer:
            producer.emit("breaks")
        until(lambda: (folder / "lingers").exists(), "the daemon to end")
        daemon.signal(number)
        (folder / "go").touch()

        assert daemon.wait() == 70, daemon.log


FINALIZING_APP = (
    APP
    + """
import time

class Late:
    def __del__(self, open=open, exists=os.path.exists, sleep=time.sleep):
        open("finalizing", "w").close()
        while not exists("go"):
            sleep(0.01)

late = Late()
"""
)


def test_signal_while_python_finalizes_does_not_change_the_exit_code_of_a_daemon(folder):
    """Python has restored the default signal actions by then."""
    (folder / "app.py").write_text(FINALIZING_APP)
    with a_daemon(folder, "app:app", **{FINALIZES: "yes"}) as daemon:
        daemon.ready()
        with Producer(folder / "agent.db") as producer:
            producer.emit("breaks")
        until(lambda: (folder / "finalizing").exists(), "Python to end")
        daemon.signal(signal.SIGTERM)
        (folder / "go").touch()

        assert daemon.wait() == 70, daemon.log


def test_second_signal_to_an_ended_daemon_ends_its_process(folder):
    (folder / "app.py").write_text(LINGERING_APP)
    with a_daemon(folder, "app:app") as daemon:
        daemon.ready()
        daemon.signal(signal.SIGTERM)
        until(lambda: (folder / "lingers").exists(), "the daemon to end")

        def ends() -> bool:
            daemon.signal(signal.SIGTERM)
            return daemon.process.poll() is not None

        until(ends, "the process to end")
        assert daemon.wait() == -signal.SIGTERM, daemon.log
