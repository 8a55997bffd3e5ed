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


def fail_once(folder: Path, failing: set[int], names: list[str]) -> None:
    (folder / "test_flaky.py").write_text(FLAKY.format(names=names, failing=failing))
    assert subprocess.run(["pytest", "-q"], cwd=folder, env=ENVIRON, capture_output=True).returncode == 1


def try_alone(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SCRIPT], cwd=folder, env=ENVIRON, capture_output=True, text=True)


def test_test_that_passes_three_times_alone_is_named(tmp_path):
    fail_once(tmp_path, {1}, ["a", "b c"])
    tried = try_alone(tmp_path)
    assert tried.returncode == 0, tried.stderr
    assert tried.stdout.splitlines()[-2:] == [
        "test_flaky.py::test_run_of_the_file_may_pass[a]",
        "test_flaky.py::test_run_of_the_file_may_pass[b c]",
    ]
    assert "FAILED beside others, PASSED three times alone" in tried.stdout
    assert [(tmp_path / name).read_text() for name in ("a", "b c", "others")] == ["4", "4", "x"]


@pytest.mark.parametrize("again", [2, 3, 4])
def test_test_that_fails_once_more_alone_is_refused(tmp_path, again):
    fail_once(tmp_path, {1, again}, ["a"])
    tried = try_alone(tmp_path)
    assert tried.returncode == 1
    assert "PASSED three times" not in tried.stdout


def test_more_than_three_failed_tests_are_not_tried(tmp_path):
    fail_once(tmp_path, {1}, ["a", "b", "c", "d"])
    tried = try_alone(tmp_path)
    assert (tried.returncode, tried.stderr) == (1, "4 tests failed; at most 3 are tried alone\n")
    assert (tmp_path / "a").read_text() == "1"


def test_command_that_failed_before_the_tests_is_refused(tmp_path):
    tried = try_alone(tmp_path)
    assert (tried.returncode, tried.stderr) == (1, "no test failed: the command before the tests did\n")
