"""One insert path for triggers, checked in the syntax trees of the sources."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "craftcore"
MODULES = {str(path.relative_to(PACKAGE)): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}

INSERTS = re.compile(r"\b(INSERT(\s+OR\s+\w+)?|REPLACE)\s+INTO\s+[\"\[`]?triggers\b", re.IGNORECASE)


def inserts_triggers(source: str) -> bool:
    """Return whether the module inserts rows into `triggers`. A module without both words is not parsed."""
    if not {"into", "triggers"} <= set(re.findall(r"[a-z]+", source.lower())):
        return False
    texts = (node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant))
    return any(isinstance(text, str) and INSERTS.search(text) for text in texts)


def pushes_to_queue(source: str) -> bool:
    """Return whether the module pushes to a queue of triggers, of any name. A module without `push` is not parsed."""
    if "push" not in source:
        return False
    calls = (node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return any(isinstance(call, ast.Attribute) and call.attr in {"push", "heappush"} for call in calls)


def test_store_is_the_sole_module_that_inserts_triggers():
    assert [name for name, source in MODULES.items() if inserts_triggers(source)] == ["triggers/store.py"]


def test_emit_is_the_sole_caller_of_the_insert():
    callers = {name: source.count(".insert_all(") for name, source in MODULES.items() if ".insert_all(" in source}

    assert list(callers) == ["triggers/service.py"]
    emit_rows = MODULES["triggers/service.py"].split("def emit_rows", 1)[1].split("\n    def ", 1)[0]
    assert emit_rows.count(".insert_all(") == callers["triggers/service.py"]


def test_feeder_is_the_sole_module_that_pushes_to_the_queue():
    pushing = {name for name, source in MODULES.items() if pushes_to_queue(source)}

    assert pushing == {"engine/feeder.py", "engine/claim_window.py"}


@pytest.mark.parametrize(
    "source",
    [
        'SQL = "INSERT INTO triggers (id) VALUES (1)"',
        'SQL = """\n  insert or ignore\n  into triggers (id)"""',
        "SQL = 'REPLACE INTO \"triggers\" VALUES (1)'",
        'f"INSERT INTO triggers ({columns})"',
    ],
)
def test_second_insert_of_triggers_would_be_detected(source):
    assert inserts_triggers(source)


def test_second_push_to_the_queue_would_be_detected():
    assert pushes_to_queue("self._queue.push(claim)")
    assert pushes_to_queue("heapq.heappush(queue._heap, claim)")
    assert not pushes_to_queue("self._queue.pop()")
