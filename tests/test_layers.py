"""The layers of the package: folders import in one direction, and SQL and libraries have their places.

The rules read only imports and names, so they cost nothing at run time.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import PurePosixPath

import pytest

from tests.support import import_graph, prose

BASE = {
    "errors",
    "error_codes",
    "clock",
    "files",
    "failpoints",
    "serialization",
    "forks",
    "machine_zone",
    "outcome_exceptions",
    "blocking_calls",
    "version",
    "log",
    "log_format",
}
"""The modules that all others may import, and that import only each other."""

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
    "notifications": "storage triggers",
    "registry": "triggers schedules executions activities tasks notifications",
    "services": "storage triggers schedules activities tasks config",
    "results": "storage triggers tasks services",
    "client": "storage triggers schedules activities tasks services results config",
    "engine": "storage triggers schedules executions activities tasks registry services results client config",
    "actions": "triggers activities tasks registry engine config",
    "daemon": (
        "storage triggers schedules executions activities tasks registry engine actions services retention config "
        "notifications"
    ),
    "diagnostics": (
        "storage audit triggers schedules executions activities tasks retention services config engine daemon"
    ),
    "operations": "storage audit triggers schedules activities executions tasks services retention engine",
    "web": (
        "storage audit triggers schedules executions activities tasks registry retention services config engine "
        "daemon diagnostics operations"
    ),
    "producer": "client config",
    "async_producer": "client config",
    "replay_engine": "storage executions services config",
    "app": "triggers results registry client engine daemon config notifications temporal",
    "temporal": "storage triggers schedules executions activities tasks registry engine config results client daemon",
    "testing": (
        "storage config triggers activities tasks registry engine actions services results daemon diagnostics app"
    ),
}
"""The folders that each folder may import besides the base. `cli` may import all but `app`, and `__init__` all."""

SQL = re.compile(r"\b(SELECT\b.*\bFROM|INSERT\s+(OR\s+\w+\s+)?INTO|UPDATE\b.*\bSET|DELETE\s+FROM)\b", re.DOTALL)


def edges() -> set[str]:
    """Return the imports between folders that the table does not allow."""
    return set(forbidden(import_graph.by_folder(import_graph.by_file())))


def forbidden(folders: import_graph.Graph) -> Iterator[str]:
    """Yield each edge of a graph over folders that the table does not allow."""
    for importer, imported in folders.items():
        for target in imported:
            if importer in ("__init__", "__main__") or (importer == "cli" and target != "app"):
                continue
            if importer in BASE and target in BASE:
                continue
            if target not in BASE and target not in ALLOWED.get(importer, "").split():
                yield f"{importer} imports {target}"


def circles() -> set[str]:
    """Return the modules and folders in circles of imports."""
    files = import_graph.by_file()
    return {
        *(f"file {path}" for circle in import_graph.circles(files) for path in circle),
        *(f"folder {name}" for circle in import_graph.circles(import_graph.by_folder(files)) for name in circle),
    }


def sql() -> set[str]:
    """Return the modules with SQL that are not stores."""
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
        for node in prose.nodes(tree)
    )


STORES = "*/*store.py"
HOMES = {
    "apsw": ["storage/*", STORES, "testing/*"],
    "anyio": [
        *(
            "storage/writer.py",
            "storage/event_loop.py",
            "results/engine_waits.py",
            "async_producer.py",
            "client/async_producer_backend.py",
            "clock.py",
        ),
        *(
            "engine/*",
            "daemon/*",
            "actions/*",
            "testing/*",
            "temporal/worker.py",
            "temporal/entries/update_sender.py",
            "web/*",
        ),
    ],
    "httpx2": ["actions/*"],
    "temporalio": ["temporal/*"],
    "starlette": ["web/*"],
    "uvicorn": ["web/*"],
    "jinja2": ["web/*"],
    "markupsafe": ["web/*"],
}
"""Libraries that only these modules import, function bodies included."""

ENVIRONMENT = {"os.environ", "os.environb", "os.getenv", "os.getenvb"}
TIME_AND_RANDOMNESS = {
    *(f"time.{name}" for name in ("time", "time_ns")),
    *(f"datetime.datetime.{name}" for name in ("now", "utcnow", "today")),
    "datetime.date.today",
    *(f"uuid.uuid{version}" for version in (1, 4, 6, 7)),
}
NAMES = [
    (ENVIRONMENT, ["clock.py", "config/*", "storage/*", "daemon/*", "cli/*"]),
    (TIME_AND_RANDOMNESS, ["clock.py"]),
]
"""Names that only these modules use. A reference is enough: `default_factory=uuid4` calls it too."""

ROLES = ["model", "store", "service"]
"""The roles of the modules of a noun. A service may import the store and the model, and a store the model."""


def violations(path: PurePosixPath, tree: ast.Module) -> list[str]:
    """Return the forbidden imports and names of the module at `path`, which is relative to the package."""
    imported = list(import_graph.imports(path, tree))
    return [
        *noun_violations(path, imported),
        *home_violations(path, {name[0] for name in imported}),
        *name_violations(path, tree),
    ]


def noun_violations(path: PurePosixPath, imported: list[tuple[str, ...]]) -> Iterator[str]:
    if path.stem not in ROLES or len(path.parts) != 2:
        return
    above = ROLES[ROLES.index(path.stem) + 1 :]
    for name in imported:
        if name[:2] == ("craftcore", path.parts[0]) and set(name[2:3]) & set(above):
            yield f"imports {'.'.join(name)}: model <- store <- service"
        if path.stem == "model" and name[0] not in {"craftcore", *sys.stdlib_module_names}:
            yield f"imports {name[0]}: a model is standard library only"


def home_violations(path: PurePosixPath, libraries: set[str]) -> Iterator[str]:
    for library in sorted(libraries & HOMES.keys()):
        if not is_in(path, HOMES[library]):
            yield f"imports {library}, whose home is {', '.join(HOMES[library])}"


def name_violations(path: PurePosixPath, tree: ast.Module) -> Iterator[str]:
    origins = {alias: origin for node in prose.nodes(tree) for alias, origin in bindings(node)}
    for node in prose.nodes(tree):
        name = full_name(node, origins)
        for names, homes in NAMES:
            if name in names and not is_in(path, homes):
                yield f"uses {name}, whose home is {', '.join(homes)}"


def bindings(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the local names of an import with their full names."""
    match node:
        case ast.Import(names=names):
            for alias in names:
                root = alias.name.partition(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (root, root)
        case ast.ImportFrom(module=str(module), names=names, level=0):
            for alias in names:
                yield alias.asname or alias.name, f"{module}.{alias.name}"


def full_name(node: ast.AST, origins: dict[str, str]) -> str | None:
    """Return the full name of an expression, or None when it does not start at an import."""
    match node:
        case ast.Name(id=name):
            return origins.get(name)
        case ast.Attribute(value=value, attr=attr):
            base = full_name(value, origins)
            return f"{base}.{attr}" if base else None
    return None


def is_in(path: PurePosixPath, homes: list[str]) -> bool:
    return any(path.match(home) or path.is_relative_to(home.removesuffix("/*")) for home in homes)


def test_module_imports_only_allowed_folders():
    found = {
        path.relative_to(prose.ROOT).as_posix(): violations(PurePosixPath(path.relative_to(prose.PACKAGE)), tree)
        for path, tree in prose.modules()
    }

    assert len(found) > 100
    assert {name: faults for name, faults in found.items() if faults} == {}


@pytest.mark.parametrize(
    ("path", "source", "refusal"),
    [
        ("triggers/model.py", "from craftcore.triggers.store import TriggerStore", "model <- store <- service"),
        ("triggers/model.py", "from . import store", "model <- store <- service"),
        ("triggers/store.py", "from craftcore.triggers import service", "model <- store <- service"),
        ("triggers/model.py", "import msgspec", "standard library only"),
        ("triggers/service.py", "import apsw", "imports apsw"),
        ("cli/status/status.py", "def f():\n    import apsw.ext", "imports apsw"),
        ("storage/database.py", "import anyio", "imports anyio"),
        ("app.py", "def f():\n    from anyio import sleep", "imports anyio"),
        ("engine/routing.py", "import httpx2", "imports httpx2"),
        ("engine/runner.py", "import os\nos.environ['HOME']", "uses os.environ"),
        ("app.py", "from os import getenv as look\nlook('HOME')", "uses os.getenv"),
        ("engine/feeder.py", "import time\ntime.time()", "uses time.time"),
        ("engine/feeder.py", "from time import time as now\nnow()", "uses time.time"),
        ("engine/feeder.py", "import datetime as dt\ndt.datetime.now(dt.UTC)", "uses datetime.datetime.now"),
        ("cli/output.py", "from datetime import datetime\ndatetime.now()", "uses datetime.datetime.now"),
        ("triggers/model.py", "from uuid import uuid4\nmake = uuid4", "uses uuid.uuid4"),
    ],
)
def test_forbidden_import_is_refused(path, source, refusal):
    [found] = violations(PurePosixPath(path), ast.parse(source))

    assert refusal in found


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("triggers/service.py", "from craftcore.executions import recorder"),
        ("triggers/service.py", "from craftcore.triggers import model, store"),
        ("tasks/store.py", "import apsw\nfrom craftcore.triggers.service import TriggerService"),
        ("storage/writer.py", "import anyio\nfrom craftcore.clock import Clock"),
        ("testing/disk.py", "import apsw\nfrom craftcore.services import Core"),
        ("cli/main.py", "import os\nos.environ.get('CRAFTCORE_DB')\nfrom craftcore import App"),
        ("clock.py", "import time\ntime.time()"),
        ("engine/leases.py", "import time\ntime.monotonic()"),
        ("__init__.py", "from craftcore.app import App"),
    ],
)
def test_allowed_import_is_accepted(path, source):
    assert violations(PurePosixPath(path), ast.parse(source)) == []


def write_transactions(path: PurePosixPath, tree: ast.Module) -> Iterator[str]:
    """Yield each direct use of a write transaction in a module of the command line."""
    for node in prose.nodes(tree):
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else None
        if name in {"transaction", "audited_transaction"}:
            yield f"uses {name}: a command changes something in Session.write"
        if name == "operator_transaction" and path != PurePosixPath("cli/session.py"):
            yield f"uses {name}, which only Session.write enters"


def test_command_line_session_alone_opens_a_write_transaction():
    trees = {PurePosixPath(path.relative_to(prose.PACKAGE)): tree for path, tree in prose.modules()}

    found = {path: list(write_transactions(path, tree)) for path, tree in trees.items() if path.parts[0] == "cli"}

    assert len(found) > 20
    assert {path: faults for path, faults in found.items() if faults} == {}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("with core.transaction() as tx:\n    pass", ["transaction"]),
        ("with core.database.transaction() as tx:\n    pass", ["transaction"]),
        ("begin = core.transaction", ["transaction"]),
        ("with audited_transaction(core, who, name):\n    pass", ["audited_transaction"]),
        ("with operator_transaction(core, who, name):\n    pass", ["operator_transaction"]),
        ("with session.write(core) as (tx, scope):\n    pass", []),
        ("from craftcore.storage.transaction import Transaction", []),
    ],
)
def test_write_transaction_of_a_command_is_refused(source, found):
    faults = list(write_transactions(PurePosixPath("cli/task/operate.py"), ast.parse(source)))

    assert [fault.split()[1].strip(",:") for fault in faults] == found


@pytest.mark.parametrize("rule", [edges, circles, sql])
def test_layout_follows_the_rules(rule):
    assert sorted(rule()) == []


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
    assert list(import_graph.circles(graph)) == found


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
