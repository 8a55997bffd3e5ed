"""`git diff --name-only REVISION | python -m tests.touched`: the marked tests that a change can break.

The default run leaves out the tests that repeat a promise on a real cluster, in a browser, or in more cells of a
matrix. Only changes in some folders can break them. The table names these folders, so that `.ci/run` runs the affected
tests, and `python -m tests.everything` runs the rest at night.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
ALL = ("tests",)

PAGES = ("tests/test_code_blocks.py", "tests/test_handlers_page.py", "tests/test_concepts_page.py")
CRASHES = ("tests/crash", "tests/testing", "tests/acceptance")

TOUCHED: dict[str, tuple[str, ...]] = {
    "craftcore/actions": ("tests/actions", "tests/acceptance", "tests/temporal"),
    "craftcore/activities": ("tests/activities", "tests/temporal", *CRASHES),
    "craftcore/audit": ("tests/cli", "tests/storage", "tests/web"),
    "craftcore/cli": ("tests/cli", "tests/acceptance", "tests/temporal", "tests/security", *PAGES),
    "craftcore/client": ("tests/backends", "tests/results", "tests/temporal"),
    "craftcore/config": ("tests/cli", "tests/daemon", "tests/web"),
    "craftcore/daemon": ("tests/daemon", "tests/security", "tests/cli", *CRASHES),
    "craftcore/diagnostics": ("tests/diagnostics", "tests/cli", "tests/web"),
    "craftcore/engine": ("tests/engine", "tests/simulation", "tests/temporal", "tests/daemon", *CRASHES),
    "craftcore/executions": ("tests/executions", "tests/temporal", *CRASHES),
    "craftcore/notifications": ("tests/notifications", "tests/daemon", "tests/acceptance"),
    "craftcore/operations": ("tests/operations", "tests/cli", "tests/web"),
    "craftcore/registry": ("tests/engine", "tests/temporal", "tests/testing", *PAGES),
    "craftcore/results": ("tests/results", "tests/temporal"),
    "craftcore/retention": ("tests/retention", "tests/simulation"),
    "craftcore/schedules": ("tests/schedules", "tests/simulation", "tests/temporal", *CRASHES),
    "craftcore/serialization": ("tests/security", "tests/temporal", "tests/cli"),
    "craftcore/storage": ("tests/storage", "tests/cli", "tests/daemon", *CRASHES),
    "craftcore/tasks": ("tests/tasks", "tests/temporal", *CRASHES),
    "craftcore/temporal": ("tests/temporal", "tests/backends"),
    "craftcore/testing": ("tests/testing", *PAGES),
    "craftcore/triggers": ("tests/triggers", "tests/temporal", *CRASHES),
    "craftcore/web": ("tests/web", "tests/security", "tests/test_phone_page.py"),
    "benchmarks": ("tests/test_benchmarks.py", "tests/test_benchmark_peers.py"),
    "config": ("tests/cli",),
    "docs": (*PAGES, "tests/test_phone_page.py", "tests/acceptance"),
    "examples": ("tests/testing", "tests/acceptance", "tests/temporal", "tests/test_examples.py"),
    "systemd": ("tests/acceptance",),
    "tests/support": ALL,
}
"""The tests that a change in a folder can break. A folder of tests touches itself.

A file outside of these folders, such as `migrations` or `pyproject.toml`, touches all tests.
"""

TOUCHES_NOTHING = (".md", ".txt", ".gitignore", "LICENSE", ".pre-commit-config.yaml")
"""Ends of the names of files at the top and in `tests/` that no marked test reads."""


def touched_tests(changed: Iterable[str]) -> list[str]:
    """Return the files and folders of tests that the changed files touch, sorted."""
    found: set[str] = set()
    for name in changed:
        folder = "/".join(name.split("/")[:2]) if name.startswith(("craftcore/", "tests/")) else name.split("/")[0]
        if folder in TOUCHED:
            found.update(TOUCHED[folder])
        elif folder.startswith("tests/"):
            alone = (ROOT / folder).is_dir() or folder.startswith("tests/test_")
            found.update([folder] if alone else () if folder.endswith(TOUCHES_NOTHING) else ALL)
        elif "/" in name or not name.endswith(TOUCHES_NOTHING):
            found.update(ALL)
    if ALL[0] in found:
        return list(ALL)
    return sorted(name for name in found if (ROOT / name).exists())


def main() -> int:
    """Read names of files from standard input, and print the touched tests, one in each line."""
    print("\n".join(touched_tests(sys.stdin.read().splitlines())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
