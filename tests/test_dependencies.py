"""The imports of craftcore: each imported package is a declared dependency."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests.support import prose

ROOT = Path(__file__).parents[1]
TRANSITIVE = {"pytest", "httpcore2", "h11", "markupsafe"}
"""Packages that another dependency brings: pytest loads the plugin, httpx2 needs httpcore2, uvicorn h11, and jinja2
markupsafe."""


STATEMENTS = ("body", "orelse", "finalbody", "handlers", "cases")
"""The parts of a statement that contain statements, and so may contain imports."""


def imported(node: ast.AST) -> Iterator[str]:
    """Yield the top-level packages that code imports, also inside functions, except for the type checker."""
    if isinstance(node, ast.Import):
        yield from (alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
        yield node.module.partition(".")[0]
    elif not _is_for_checkers(node):
        for part in STATEMENTS:
            for child in getattr(node, part, ()):
                yield from imported(child)


def _is_for_checkers(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def declared() -> set[str]:
    """Return the packages of a plain install and of every extra for users."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    lists = [project["dependencies"], *(names for extra, names in extras.items() if extra != "test")]
    return {re.split(r"[^A-Za-z0-9_-]", name)[0].replace("-", "_") for names in lists for name in names}


def test_imports_are_declared_dependencies():
    known = {*sys.stdlib_module_names, *declared(), *TRANSITIVE, "craftcore"}
    undeclared = {
        f"{path.relative_to(ROOT)}: {name}"
        for path, tree in prose.modules()
        for name in imported(tree)
        if name not in known
    }
    assert sorted(undeclared) == []
