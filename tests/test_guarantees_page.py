"""The promises of docs/explanation/guarantees.md: each names tests that exist and run by default."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from benchmarks.__main__ import NAMES
from tests.support.code_blocks import PAGES
from tests.support.processes import PATIENCE
from tests.support.warm_parent import start

ROOT = Path(__file__).parents[1]
PAGE = PAGES["docs/explanation/guarantees.md"]
PERFORMANCE = PAGES["docs/explanation/performance.md"]
PROMISES = dict(re.findall(r"^### (.*?)\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))
TESTS = sorted(set(re.findall(r"`(tests/[^`]*)`", PAGE)))
MUST_COVER = {
    "accepted": "never lost",
    "settles": "exactly once",
    "engine": "dead",
    "crash": "poison",
    "occurrence": "accounted",
    "recorded call": "not repeated",
    "wait": "once",
    "silently repeated": "silently lost",
    "record": "committed",
    "backup": "restore",
    "Retention": "nothing live",
    "limit": "grows",
    "clock": "jumps",
    "Other users": "secrets",
}


def named_tests(text: str) -> list[str]:
    return re.findall(r"`(tests/[\w/]+\.py::test_\w+)`", text)


@cache
def functions(path: Path) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return the functions of a file by name."""
    found = ast.parse(path.read_text(encoding="utf-8")).body
    return {one.name: one for one in found if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))}


def asserts(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function that can fail the test: asserts, `pytest.raises` and calls of checks."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Assert):
            yield inner
        if isinstance(inner, ast.Call):
            called = ast.unparse(inner.func)
            if called == "pytest.raises" or called.startswith(("judge", "check", "assert", "stress", "chaos")):
                yield inner


def test_guarantee_has_its_evidence():
    assert len(PROMISES) > 25
    assert [promise for promise, text in PROMISES.items() if not named_tests(text)] == []


@pytest.mark.parametrize(("subject", "promise"), MUST_COVER.items())
def test_required_guarantee_is_stated(subject, promise):
    assert [title for title in PROMISES if subject in title and re.search(promise, title)], subject


@pytest.mark.parametrize("test", [name for name in TESTS if "::" in name])
def test_named_test_exists_runs_by_default_and_can_fail(test):
    path, name = test.split("::")
    assert (ROOT / path).is_file(), path
    found = functions(ROOT / path)
    assert name in found, f"{path} has no {name}"
    marks = [ast.unparse(mark) for mark in found[name].decorator_list]
    assert "pytest.mark.campaign" not in marks, "a plain run of pytest must include the test"
    assert next(asserts(found[name]), None), "the test cannot fail"


def test_named_file_exists():
    assert [name for name in TESTS if "::" not in name and not (ROOT / name).is_file()] == []


def test_named_command_exists():
    commands = set(re.findall(r"`((?:python -m|pytest) [^`]+)`", PAGE + PERFORMANCE))
    assert len(commands) > 15
    for command in commands:
        match command.split():
            case ["python", "-m", "benchmarks", name]:
                assert name in NAMES, command
            case ["python", "-m", campaign, "--kills", number]:
                with start(["-m", campaign, "--help"], cwd=ROOT, stdout=subprocess.PIPE) as process:
                    printed, _ = process.communicate(timeout=PATIENCE)
                assert b"--kills KILLS" in printed
                assert number.isdigit(), command
            case ["pytest", "-m", "campaign", place]:
                files = [ROOT / place] if place.endswith(".py") else [*(ROOT / place).rglob("test_*.py")]
                assert [file for file in files if "@pytest.mark.campaign" in file.read_text(encoding="utf-8")], command
            case ["pytest", "tests/…::test_…"]:
                pass
            case _:
                pytest.fail(f"no case checks `{command}`")


def test_benchmark_has_its_row_of_figures():
    [numbers] = re.findall(r"^## Numbers\n(.*)", PERFORMANCE, re.MULTILINE | re.DOTALL)
    assert set(re.findall(r"`python -m benchmarks (\w+)`", numbers)) == set(NAMES)


def test_page_makes_no_impossible_claim():
    assert not re.search(r"exactly.once delivery", PAGE, re.IGNORECASE)
