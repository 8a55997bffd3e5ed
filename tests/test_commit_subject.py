"""The hook that checks the subject of a commit, run as git runs it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HOOK = ROOT / ".ci" / "commit_subject"


def check(message: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = folder / "COMMIT_EDITMSG"
    path.write_text(message)
    return subprocess.run([sys.executable, str(HOOK), str(path)], capture_output=True, text=True)


@pytest.mark.parametrize(
    "message",
    [
        "storage: merge whole_file into files",
        "cli, daemon: drop the old names\n\nBecause nobody uses them any more. " + "x" * 200,
        "docs/reference: name the moved modules",
        "engine: embed the clock",
        "# a comment of git\n\ntests: wait for the signal\n",
        "Merge branch 'main' of somewhere with a name that is longer than sixty characters",
        'Revert "storage: merge whole_file into files"',
        "fixup! storage: merge whole_file into files",
        "storage: " + "x" * 51,
    ],
)
def test_good_subject_is_accepted(message, tmp_path):
    checked = check(message, tmp_path)

    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ("Drop whole_file", "area: imperative"),
        ("merge whole_file into files", "area: imperative"),
        ("Storage: merge whole_file into files", "area: imperative"),
        ("storage: Merge whole_file into files", "area: imperative"),
        ("storage: merge whole_file into files.", "area: imperative"),
        ("storage: merged whole_file into files", "'merged', which is not an imperative"),
        ("storage: merges whole_file into files", "'merges', which is not an imperative"),
        ("storage: merging whole_file into files", "'merging', which is not an imperative"),
        ("storage: " + "x" * 52, "has 61 characters, the limit is 60"),
        ("storage:merge", "area: imperative"),
        ("", "area: imperative"),
        ("# only a comment\n", "area: imperative"),
    ],
)
def test_bad_subject_is_refused_with_its_reason(message, why, tmp_path):
    checked = check(message, tmp_path)

    assert checked.returncode == 1
    assert why in checked.stderr


def test_pre_commit_has_the_checks_of_ci_and_fetches_nothing():
    config = (ROOT / ".pre-commit-config.yaml").read_text()
    checks = (ROOT / ".ci" / "run").read_text()

    entries = re.findall(r"^ +entry: (.+)$", config, re.MULTILINE)
    assert entries == ["ruff check", "ruff format --check", "mypy --strict", ".ci/commit_subject"]
    assert [entry for entry in entries[:3] if entry.split()[0] not in checks] == []
    assert re.findall(r"repo: (.+)", config) == ["local"]
    assert re.findall(r"language: (.+)", config) == ["system"] * 4
    assert HOOK.stat().st_mode & 0o111
