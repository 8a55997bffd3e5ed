"""`.ci/try_alone` passes a test that failed once beside others, and nothing that fails again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / ".ci" / "try_alone"
ENVIRON = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
FLAKY = """
from pathlib import Path
import pytest

@pytest.mark.parametrize("name", {names})
def test_run_of_the_file_may_pass(name):
    runs = Path(name)
    runs.write_text(str(int(runs.read_text() or 0) + 1) if runs.exists() else "1")
    assert int(runs.read_text()) not in {failing}

def test_second_case_always_passes():
    Path("others").open("a").write("x")
"""


CRASHING = """
import os
from pathlib import Path

def test_first_run_crashes():
    if not Path("begun").exists():
        Path("begun").touch()
        os._exit(1)
"""


def fail_once(folder: Path, failing: set[int], names: list[str]) -> None:
    (folder / "test_flaky.py").write_text(FLAKY.format(names=names, failing=failing))
    run_tests(folder)


def run_tests(folder: Path, *words: str) -> None:
    with (folder / "log").open("w") as log:
        assert subprocess.run(["pytest", "-q", *words], cwd=folder, env=ENVIRON, stdout=log).returncode == 1


def try_alone(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SCRIPT, "log"], cwd=folder, env=ENVIRON, capture_output=True, text=True)


def test_test_that_passes_three_times_alone_is_named(tmp_path):
    fail_once(tmp_path, {1}, ["a", "b c"])
    tried = try_alone(tmp_path)
    assert tried.returncode == 0, tried.stderr
    assert tried.stdout.splitlines()[-2:] == [
        "test_flaky.py::test_run_of_the_file_may_pass[a]",
        "test_flaky.py::test_run_of_the_file_may_pass[b c]",
    ]
    assert "FAILED beside others, PASSED 3 times alone" in tried.stdout
    assert [(tmp_path / name).read_text() for name in ("a", "b c", "others")] == ["4", "4", "x"]


@pytest.mark.parametrize("again", [2, 3, 4])
def test_test_that_fails_once_more_alone_is_refused(tmp_path, again):
    fail_once(tmp_path, {1, again}, ["a"])
    tried = try_alone(tmp_path)
    assert tried.returncode == 1
    assert tried.stderr.splitlines()[-1] == "failed again: test_flaky.py::test_run_of_the_file_may_pass[a]"


def test_more_than_three_failed_tests_are_not_tried(tmp_path):
    fail_once(tmp_path, {1}, ["a", "b", "c", "d"])
    tried = try_alone(tmp_path)
    assert (tried.returncode, tried.stderr) == (1, "4 tests failed; at most 3 are tried alone\n")
    assert (tmp_path / "a").read_text() == "1"


def test_crash_of_a_process_of_the_tests_is_refused(tmp_path):
    """It is run again, passes, and would be forgotten."""
    (tmp_path / "test_flaky.py").write_text(CRASHING)
    run_tests(tmp_path, "-n", "1")
    tried = try_alone(tmp_path)
    assert (tried.returncode, tried.stderr) == (1, "a process of the tests crashed\n")


def test_command_that_failed_before_the_tests_is_refused(tmp_path):
    (tmp_path / "log").touch()
    tried = try_alone(tmp_path)
    assert (tried.returncode, tried.stderr) == (1, "no test failed: the command before the tests did\n")
