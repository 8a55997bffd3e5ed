"""Processes of the warm parent: they start and end like processes of a new interpreter."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import until
from tests.support.warm_parent import start

REPORT = """
import os, sys
print(sys.argv, sys.path[0], os.getcwd(), sorted(os.listdir("/proc/self/fd")), __name__, os.environ.get("MARK"))
print(sys.stdin.read(), sys.stdout.line_buffering, sys.stdout.encoding, sys.stdout.errors, file=sys.stderr)
sys.exit(3)
"""


@pytest.mark.parametrize("kind", ["-c", "-m", "file"])
def test_process_sees_the_same_as_in_a_new_interpreter(tmp_path, kind):
    (tmp_path / "report.py").write_text(REPORT)
    program = {"-c": ["-c", REPORT], "-m": ["-m", "report"], "file": [str(tmp_path / "report.py")]}[kind]
    seen = []
    for command, run in (([sys.executable, *program], subprocess.Popen), (program, start)):
        with (
            (tmp_path / "out").open("w+b") as out,
            (tmp_path / "err").open("w+b") as err,
            (tmp_path / "in").open("w+b") as input_file,
        ):
            input_file.write("é".encode())
            input_file.seek(0)
            environment = {**os.environ, "MARK": "yes"}
            with run(
                [*command, "one", "two"], cwd=tmp_path, env=environment, stdin=input_file, stdout=out, stderr=err
            ) as process:
                code = process.wait()
            out.seek(0)
            err.seek(0)
            seen.append((code, out.read(), err.read()))
    assert seen[1] == seen[0]
    assert seen[0][0] == 3


ENDS = """
import atexit, sys, threading, time

class Announced:
    def __del__(self):
        print(self.name, "is destroyed")

for name in ("a global", "a cycle"):
    item = Announced()
    item.name = name
    item.itself = item if name == "a cycle" else None
    if name == "a global":
        kept = item
del item

def late():
    threading.main_thread().join()
    print("a thread ends")

threading.Thread(target=late).start()
atexit.register(print, "atexit")
left_open = open("left", "w")
left_open.write("flushed at the end")
print("no line break", end=" ")
"""


@pytest.mark.parametrize("end", ["", "sys.exit()", "sys.exit(True)", "sys.exit('a text')"])
def test_process_ends_as_a_new_interpreter_does(tmp_path, end):
    seen = []
    for command, run in (([sys.executable], subprocess.Popen), ([], start)):
        with (tmp_path / "out").open("w+b") as out, (tmp_path / "err").open("w+b") as err:
            with run([*command, "-c", ENDS + end], cwd=tmp_path, stdout=out, stderr=err) as process:
                code = process.wait()
            out.seek(0)
            err.seek(0)
            lines = (
                out.read().splitlines()
            )  # the thread ends before the functions of atexit; the order of the objects varies
            seen.append((code, lines[:2] + sorted(lines[2:]), err.read(), (tmp_path / "left").read_text()))
        (tmp_path / "left").unlink()
    assert seen[1] == seen[0]
    assert seen[0][3] == "flushed at the end"


def test_process_dies_of_a_signal_and_has_its_number():
    with start(["-c", "import time; print('up', flush=True); time.sleep(3600)"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0)
        process.kill()
        assert process.wait() == -signal.SIGKILL
    process.kill()  # the process has ended, and no other process receives the signal


def test_process_of_a_block_that_fails_is_killed():
    with pytest.raises(ZeroDivisionError), start(["-c", "import time; time.sleep(3600)"]) as process:
        1 / 0  # noqa: B018
    assert process.returncode == -signal.SIGKILL
    until(lambda: not Path(f"/proc/{process.pid}").exists(), "the end of the process")


def test_error_of_a_program_is_a_traceback_and_exit_code_1():
    with start(["-c", "1 / 0"], stderr=subprocess.PIPE) as process:
        _, error = process.communicate()
    assert process.returncode == 1
    assert error.endswith(b"ZeroDivisionError: division by zero\n")


def test_environment_that_an_interpreter_reads_at_its_start_is_refused():
    with pytest.raises(ValueError, match="LC_ALL acts on an interpreter that starts"):
        start(["-c", "pass"], env={**os.environ, "LC_ALL": "de_DE.ISO-8859-1"})
