"""Folders depend on each other in one direction, SQL stays in stores, and no module or folder grows without limit."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import imports, prose, ratchet

GROUND = {"errors", "error_codes", "clock", "files", "failpoints", "serialization", "forks"}
"""What everything may import, and what imports nothing else."""

ALLOWED = {
    "config": "",
    "storage": "",
    "audit": "storage",
    "triggers": "storage",
    "activities": "storage",
    "retention": "storage config",
    "schedules": "storage triggers",
    "executions": "storage triggers audit",
    "tasks": "storage triggers executions activities",
    "registry": "triggers schedules executions activities",
    "services": "storage triggers schedules activities tasks config",
    "engine": "storage triggers schedules executions activities tasks registry config",
    "actions": "triggers activities tasks registry engine config",
    "daemon": (
        "storage triggers schedules executions activities tasks registry engine actions services retention config"
    ),
    "diagnostics": "storage triggers schedules activities tasks retention engine daemon",
    "operations": "storage audit triggers schedules activities executions tasks services",
    "producer": "storage triggers services config",
    "replay_engine": "storage executions services config",
    "app": "tasks registry engine daemon config",
    "testing": "storage config",
}
"""A folder, and the folders that it may import besides the ground. `cli` may import all but `app`; `__init__` all."""

SQL = re.compile(r"\b(SELECT\b.*\bFROM|INSERT\s+(OR\s+\w+\s+)?INTO|UPDATE\b.*\bSET|DELETE\s+FROM)\b", re.DOTALL)

FILES_MAX = 30
LINES_MIN, LINES_MAX = 10, 300


def edges() -> set[str]:
    """Return the imports between folders that the table does not allow."""
    return set(forbidden(imports.by_folder(imports.by_file())))


def forbidden(folders: imports.Graph) -> Iterator[str]:
    """Yield each edge of a graph over folders that the table does not allow."""
    for here, imported in folders.items():
        for there in imported:
            if here in ("__init__", "__main__") or (here == "cli" and there != "app"):
                continue
            if here in GROUND and there in GROUND:
                continue
            if there not in GROUND and there not in ALLOWED.get(here, "").split():
                yield f"{here} imports {there}"


def circles() -> set[str]:
    """Return the modules and folders that import themselves by way of others."""
    files = imports.by_file()
    return {
        *(f"file {path}" for circle in imports.circles(files) for path in circle),
        *(f"folder {name}" for circle in imports.circles(imports.by_folder(files)) for name in circle),
    }


def sql() -> set[str]:
    """Return the modules that hold SQL and are no store."""
    return {
        path.relative_to(prose.PACKAGE).as_posix()
        for path, tree in prose.modules()
        if not path.stem.endswith("store")
        and path.relative_to(prose.PACKAGE).parts[0] not in ("storage", "diagnostics", "testing")
        and holds_sql(tree)
    }


def holds_sql(tree: ast.Module) -> bool:
    """Return whether a string of the module is a statement."""
    return any(
        isinstance(node, ast.Constant) and isinstance(node.value, str) and SQL.search(node.value)
        for node in ast.walk(tree)
    )


def sizes() -> set[str]:
    """Return the modules that are too short or too long, and the folders with too many of them."""
    paths = [path for path, _ in prose.modules()]
    files = Counter(path.parent for path in paths)
    lines = {path: path.read_text(encoding="utf-8").count("\n") for path in paths if path.name != "__init__.py"}
    return {
        *(f"{_name(one)}: more than {FILES_MAX} files" for one in files if files[one] > FILES_MAX),
        *(f"{_name(one)}: more than {LINES_MAX} lines" for one in lines if lines[one] > LINES_MAX),
        *(f"{_name(one)}: fewer than {LINES_MIN} lines" for one in lines if lines[one] < LINES_MIN),
    }


def _name(path: Path) -> str:
    return path.relative_to(prose.ROOT).as_posix()


@pytest.mark.parametrize("rule", [edges, circles, sql, sizes])
def test_layout_follows_the_rules(rule):
    ratchet.check(rule.__name__, rule())


@pytest.mark.parametrize(
    ("graph", "found"),
    [
        ({"storage": {"triggers"}}, ["storage imports triggers"]),
        ({"errors": {"storage"}}, ["errors imports storage"]),
        ({"cli": {"app"}}, ["cli imports app"]),
        ({"novelty": {"storage"}}, ["novelty imports storage"]),
        ({"storage": {"errors"}, "cli": {"engine"}, "__init__": {"app"}}, []),
    ],
)
def test_forbidden_edge_is_found(graph, found):
    assert list(forbidden(graph)) == found


@pytest.mark.parametrize(
    ("graph", "found"),
    [
        ({"a": {"b"}, "b": {"a"}, "c": {"a"}}, [{"a", "b"}]),
        ({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"e"}, "e": {"d"}}, [{"a", "b", "c"}, {"d", "e"}]),
        ({"a": {"b", "c"}, "b": {"c"}, "c": set()}, []),
    ],
)
def test_circle_is_found(graph, found):
    assert list(imports.circles(graph)) == found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('x = "SELECT a FROM b"', True),
        ('x = """UPDATE b\\n   SET a = 1"""', True),
        ('x = f"DELETE FROM {t}"', True),
        ('x = "select a date from the calendar"', False),
        ('x = "UPDATE is a verb"', False),
    ],
)
def test_sql_is_found(source, found):
    assert holds_sql(ast.parse(source)) is found
