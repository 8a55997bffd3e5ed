"""The undumpable daemon: programs of `command.run` cannot read its environment, and its user can inspect it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.test_permissions import PROGRAM, is_reachable_by_others
from tests.support.other_users import NOBODY, a_shared_folder
from tests.support.processes import PATIENCE, Result, craftcore, environment, run_python, until

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0
    or not (is_reachable_by_others(Path(__file__)) and is_reachable_by_others(Path(sys.prefix) / "bin")),
    reason="only root can become nobody, who must come to this checkout",
)

CANARY = "correct-horse-battery"

MAKE_DUMPABLE = "import ctypes; ctypes.CDLL(None).prctl(4, 1)\n"
"""Code that makes the process dumpable again. A change of the user makes it undumpable."""

IMPORTS = """
import ctypes, termios
import craftcore.cli.status.doctor, craftcore.cli.service.reload, craftcore.cli.trigger.wait
"""
"""Imports that run before the change of the user, because the user `nobody` may be unable to read the modules."""

READS = """
import ctypes, os, subprocess
os.setresuid({id}, {id}, {id})
{before}
{close}
print(subprocess.run(["cat", f"/proc/{{os.getpid()}}/environ"], capture_output=True, text=True))
"""


def program(*arguments: str) -> list[str]:
    text = PROGRAM.format(id=NOBODY, arguments=["--db", "agent.db", *arguments])
    return ["-c", IMPORTS + text.replace("sys.exit(main", f"{MAKE_DUMPABLE}sys.exit(main")]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Create a folder of the user `nobody`."""
    with a_shared_folder() as place:
        os.chown(place, NOBODY, NOBODY)
        yield place


@contextmanager
def daemon_of_nobody(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a daemon in a new interpreter, because /proc shows the environment at the start of a process."""
    with (folder / "log").open("wb") as log:
        env = environment(SECRET=CANARY)
        with subprocess.Popen([sys.executable, *program("run")], cwd=folder, env=env, stdout=log, stderr=log) as daemon:
            try:
                until(
                    lambda: b"daemon.ready" in (folder / "log").read_bytes() or daemon.poll() is not None, "the daemon"
                )
                assert daemon.poll() is None, (folder / "log").read_text()
                yield daemon
            finally:
                daemon.kill()


def ask(folder: Path, *arguments: str) -> Result:
    return run_python(program(*arguments), folder)


@pytest.mark.parametrize("is_closed", [False, True])
def test_dumpable_process_exposes_its_environment_to_the_same_user(is_closed):
    """The other tests of this module rely on this behaviour."""
    close = "from craftcore.daemon.undumpable import close_to_programs; close_to_programs()" if is_closed else ""
    text = READS.format(id=NOBODY, before=MAKE_DUMPABLE, close=close)
    if is_closed:
        text = f"import craftcore.daemon.undumpable\n{text}"
    process = subprocess.run(
        [sys.executable, "-c", text], env=environment(SECRET=CANARY), capture_output=True, text=True, timeout=PATIENCE
    )

    assert (CANARY in process.stdout) != is_closed, process
    assert ("Permission denied" in process.stdout) == is_closed


def test_program_of_the_daemon_reads_nothing_of_the_daemon(folder):
    script = "for file in environ mem maps fd/0; do cat /proc/$PPID/$file; done; ls /proc/$PPID/fd; id -u"
    with daemon_of_nobody(folder):
        process = ask(
            folder, "--json", "emit", "command.run", "--payload", json.dumps({"argv": ["sh", "-c", script]}), "--wait"
        )

        assert process.code == 0, process
        assert CANARY not in process.out
        found = process.json["result"]
        assert found["stdout"].split() == [str(NOBODY)]
        assert found["stderr"].count("Permission denied") == 5, found


def test_undumpable_daemon_works_and_is_visible_to_its_user_and_root(folder):
    with daemon_of_nobody(folder) as daemon:
        status = ask(folder, "status")
        reload = ask(folder, "reload")
        doctor = ask(folder, "--json", "doctor")

        assert status.out.startswith("healthy"), status
        assert f"pid {daemon.pid}" in status.out
        assert reload.code == 0, reload
        assert doctor.json["failed"] == 0, doctor.out
        assert craftcore(folder, "reload").code == 0
        assert CANARY.encode() in Path(f"/proc/{daemon.pid}/environ").read_bytes(), "root can read the environment"

        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(PATIENCE) == 0
