"""docs/reference/schema.md: its tables, views and columns are those of the database, and its queries run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from craftcore.storage.migrations import LEDGER, list_migrations
from tests.support.code_blocks import PAGES
from tests.support.populated_database import World, a_world

PAGE = PAGES["docs/reference/schema.md"]
SECTIONS = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))
QUERIES = [
    query.strip()
    for block in re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
    for query in block.split(";")
    if query.strip()
] + re.findall(r"^sqlite3 -readonly \S+ '(SELECT .*)'$", PAGE, re.MULTILINE)

PLAIN = """
import json, sqlite3, sys
connection = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)
named = json.loads(sys.argv[3])
plan = [row[3] for row in connection.execute("EXPLAIN QUERY PLAN " + sys.argv[2], named)]
print(json.dumps([connection.execute(sys.argv[2], named).fetchall(), plan]))
"""


def columns(section: str) -> list[str]:
    """Return the columns that a section lists as promised or internal."""
    listed = re.findall(r"^(?:promised|internal): (.*?)(?:\n\n|\Z)", section, re.MULTILINE | re.DOTALL)
    return [name for part in listed for name in re.findall(r"`(\w+)`", part)]


@pytest.fixture(scope="module")
def schema() -> dict[str, list[str]]:
    connection = apsw.Connection(":memory:")
    for sql in (LEDGER, *(migration.sql for migration in list_migrations())):
        connection.execute(sql)
    names = connection.execute("SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND sql IS NOT NULL")
    info = "SELECT name FROM pragma_table_info(?)"
    found = {
        str(name): [str(column) for (column,) in connection.execute(info, (name,))] for (name,) in names.fetchall()
    }
    connection.close()
    return found


def test_table_and_view_has_its_section(schema):
    assert set(SECTIONS) == set(schema)


@pytest.mark.parametrize("name", SECTIONS)
def test_column_is_public_or_internal(schema, name):
    listed = columns(SECTIONS[name])

    assert len(listed) == len(set(listed))
    assert set(listed) == set(schema[name])


def test_views_have_no_internal_column():
    for name, section in SECTIONS.items():
        if name.startswith("v_"):
            assert "internal:" not in section


@pytest.fixture(scope="module")
def world_and_path(tmp_path_factory: pytest.TempPathFactory) -> tuple[World, Path]:
    path = tmp_path_factory.mktemp("world") / "agent.db"
    return a_world(path), path


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.partition("FROM ")[2].split()[0])
def test_documented_query_runs_in_plain_sqlite_without_a_table_scan(world_and_path, query):
    world, path = world_and_path
    named = {"task": world.nap, "trigger": world.dead, "subject": world.dead, "schedule": "ahead"}
    used = {name: value for name, value in named.items() if f":{name}" in query}
    program = [sys.executable, "-c", PLAIN, str(path), query, json.dumps(used)]

    child = subprocess.run(program, capture_output=True, text=True)

    assert child.returncode == 0, child.stderr
    rows, plan = json.loads(child.stdout)
    assert rows or "v_overdue" in query or "v_running" in query or "audit_log" in query
    scans = [line for line in plan if re.match(r"SCAN (?!v_|\d|CONSTANT)", line) and " INDEX " not in line]
    assert scans == [], plan


def test_page_has_a_query_for_each_view():
    assert len(QUERIES) > 10
    assert {name for name in SECTIONS if name.startswith("v_")} <= set(re.findall(r"v_\w+", " ".join(QUERIES)))
