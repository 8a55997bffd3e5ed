"""The runner: it applies each mutant to a copy of the code, and runs the tests that must detect it on the copy."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.mutant import ROOT, Mutant

LIMIT_SECONDS = 60.0
"""A mutant that no test detects within this time counts as a survivor."""

COPIED = ("craftcore", "migrations", "tests", "examples", "docs", "README.md", "pyproject.toml", "config", "systemd")
FAILED = 1
"""The exit code of pytest when a test has failed. Codes other than 0 and 1 mean that the tests did not run."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one mutant. `noticed_by`: the test that failed first; None: the mutant survived."""

    name: str
    breaks: str
    noticed_by: str | None
    seconds: float


class Unusable(Exception):
    """An error of a mutant: its edit does not apply, or its tests fail without it or do not run."""


def run(mutants: Sequence[Mutant], *, jobs: int = 2, progress: Callable[[Outcome], object] = print) -> list[Outcome]:
    """Run mutants, several at a time. Raises Unusable."""
    with ThreadPoolExecutor(jobs) as threads:
        outcomes = []
        for outcome in threads.map(run_one, mutants):
            progress(outcome)
            outcomes.append(outcome)
        return outcomes


def run_one(mutant: Mutant) -> Outcome:
    """Apply a mutant to a copy, and run its tests. Raises Unusable."""
    began = time.monotonic()
    with copy_of_code() as root:
        try:
            for edit in mutant.edits:
                edit.apply(root)
        except ValueError as error:
            raise Unusable(f"{mutant.name}: {error}") from error
        code, output = run_tests(root, mutant.tests)
    seconds = time.monotonic() - began
    if code in (0, None):
        return Outcome(mutant.name, mutant.breaks, None, seconds)
    if code != FAILED:
        raise Unusable(f"{mutant.name}: pytest exits with {code}\n{output[-2000:]}")
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
    return Outcome(mutant.name, mutant.breaks, found[1] if found else "", seconds)


def require_green(mutants: Sequence[Mutant]) -> None:
    """Run all tests once without a mutant. Raises Unusable if one fails, because it would fail for any mutant."""
    tests = sorted({test for mutant in mutants for test in mutant.tests})
    with copy_of_code() as root:
        code, output = run_tests(root, tests, limit=30 * LIMIT_SECONDS)
    if code != 0:
        raise Unusable(f"the tests fail without a mutant:\n{output[-4000:]}")


@contextmanager
def copy_of_code() -> Iterator[Path]:
    """Yield a folder with a copy of the code and its tests, with bytecode, because compilation takes a minute."""
    with tempfile.TemporaryDirectory(prefix="craftcore-mutant-", dir=_memory()) as folder:
        for name in COPIED:
            source, target = ROOT / name, Path(folder) / name
            if source.is_dir():
                shutil.copytree(source, target)
            else:
                shutil.copy(source, target)
        yield Path(folder)


def _memory() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def run_tests(root: Path, tests: Sequence[str], *, limit: float = LIMIT_SECONDS) -> tuple[int | None, str]:
    """Run tests against the copy until one fails. Return the exit code of pytest (None after the limit) and output."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-rfE", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    package = subprocess.check_output(
        [sys.executable, "-c", "import craftcore; print(craftcore.__file__)"], cwd=root, env=environment, text=True
    )
    if not Path(package.strip()).is_relative_to(root):
        raise Unusable(f"{package.strip()} would be tested, and not the copy")
    with subprocess.Popen(
        command,
        cwd=root,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.communicate()
            return None, ""
    return process.returncode, output
