"""The house holds: which module may import which, and who may touch the database, the loop, the environment, time.

Only import lines and names are read, so a rule costs nothing at run time and cannot be turned off by accident.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).parents[1]

FLOORS = [
    {
        "arguments",
        "as_json",
        "clock",
        "error_codes",
        "errors",
        "plurals",
        "canonical",
        "cutpoints",
        "forks",
        "regular_file",
        "spelling",
        "typed",
        "words",
    },
    {"config", "config_reading", "http_targets"},
    {"storage"},
    {"triggers", "activities", "executions"},
    {"schedules", "tasks", "retention"},
    {"app", "workflow", "action"},
    {"engine"},
    {"core", "producer", "replay_engine", "daemon", "actions", "testing"},
    {"cli", "__init__", "__main__"},
]
"""From the ground up. A module imports its own floor or one below."""

FLOOR = {name: number for number, names in enumerate(FLOORS) for name in names}

STORES = "*/*store.py"
HOMES = {
    "apsw": ["storage/*", STORES, "testing/*"],
    "anyio": ["storage/writer.py", "storage/waiters.py", "engine/*", "daemon/*", "actions/*", "testing/*"],
    "httpx2": ["actions/*"],
}
"""Libraries that only these modules import, function bodies included."""

ENVIRONMENT = {"os.environ", "os.environb", "os.getenv", "os.getenvb"}
TIME_AND_CHANCE = {
    *(f"time.{name}" for name in ("time", "time_ns")),
    *(f"datetime.datetime.{name}" for name in ("now", "utcnow", "today")),
    "datetime.date.today",
    *(f"uuid.uuid{version}" for version in (1, 4, 6, 7)),
}
NAMES = [
    (ENVIRONMENT, ["clock.py", "config.py", "storage/*", "daemon/*", "cli/*"]),
    (TIME_AND_CHANCE, ["clock.py"]),
]
"""Names that only these modules use. A reference is enough: `default_factory=uuid4` calls it too."""

WITHIN_A_NOUN = ["model", "store", "service"]
"""A noun's service may import its store and model, its store the model, its model neither."""


def violations(path: PurePosixPath, source: str) -> list[str]:
    """What the module at `path`, relative to the package, does that its place in the house forbids."""
    tree = ast.parse(source)
    house = [name for name in imports(path, tree, wired_later=path.name == "app.py") if name[0] == "craftcore"]
    everything = list(imports(path, tree))
    return [
        *floor_violations(path, house),
        *noun_violations(path, everything),
        *home_violations(path, {name[0] for name in everything}),
        *name_violations(path, tree),
    ]


def floor_violations(path: PurePosixPath, imported: list[tuple[str, ...]]) -> Iterator[str]:
    here = path.parts[0].removesuffix(".py")
    if here not in FLOOR:
        yield f"{here} stands on no floor: give it one in FLOORS"
        return
    for name in imported:
        # `from craftcore import emit` is the public surface, which stands on top of everything.
        there = name[1] if len(name) > 1 and name[1] in FLOOR else "__init__"
        if FLOOR[there] > FLOOR[here]:
            yield f"imports {'.'.join(name)}, which is above it"


def noun_violations(path: PurePosixPath, imported: list[tuple[str, ...]]) -> Iterator[str]:
    if path.stem not in WITHIN_A_NOUN or len(path.parts) != 2:
        return
    above = WITHIN_A_NOUN[WITHIN_A_NOUN.index(path.stem) + 1 :]
    for name in imported:
        if name[:2] == ("craftcore", path.parts[0]) and set(name[2:3]) & set(above):
            yield f"imports {'.'.join(name)}: model <- store <- service"
        if path.stem == "model" and name[0] not in {"craftcore", *sys.stdlib_module_names}:
            yield f"imports {name[0]}: a model is standard library only"


def home_violations(path: PurePosixPath, libraries: set[str]) -> Iterator[str]:
    for library in sorted(libraries & HOMES.keys()):
        if not lives_in(path, HOMES[library]):
            yield f"imports {library}, whose home is {', '.join(HOMES[library])}"


def name_violations(path: PurePosixPath, tree: ast.Module) -> Iterator[str]:
    origins = {alias: origin for node in ast.walk(tree) for alias, origin in bindings(node)}
    for node in ast.walk(tree):
        name = dotted(node, origins)
        for names, homes in NAMES:
            if name in names and not lives_in(path, homes):
                yield f"uses {name}, whose home is {', '.join(homes)}"


def imports(path: PurePosixPath, tree: ast.Module, *, wired_later: bool = False) -> Iterator[tuple[str, ...]]:
    """Every imported name, in parts: `from craftcore.triggers import store` is (craftcore, triggers, store).

    `wired_later` leaves out what is imported when called, or for the type checker: what App runs is wired by core.
    """
    package = ("craftcore", *path.parts[:-1])
    for node in unconditional(tree) if wired_later else ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (tuple(alias.name.split(".")) for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                start = package[: len(package) - level + 1] if level else ()
                base = (*start, *(module.split(".") if module else ()))
                yield from ((*base, alias.name) for alias in names)


def unconditional(tree: ast.Module) -> Iterator[ast.AST]:
    waiting: list[ast.AST] = [tree]
    while waiting:
        match node := waiting.pop():
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.If(test=ast.Name(id="TYPE_CHECKING")):
                continue
        yield node
        waiting.extend(ast.iter_child_nodes(node))


def bindings(node: ast.AST) -> Iterator[tuple[str, str]]:
    """The local names an import makes, and what they stand for."""
    match node:
        case ast.Import(names=names):
            for alias in names:
                root = alias.name.partition(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (root, root)
        case ast.ImportFrom(module=str(module), names=names, level=0):
            for alias in names:
                yield alias.asname or alias.name, f"{module}.{alias.name}"


def dotted(node: ast.AST, origins: dict[str, str]) -> str | None:
    """The full name an expression refers to. None when it does not start at an import."""
    match node:
        case ast.Name(id=name):
            return origins.get(name)
        case ast.Attribute(value=value, attr=attr):
            base = dotted(value, origins)
            return f"{base}.{attr}" if base else None
    return None


def lives_in(path: PurePosixPath, homes: list[str]) -> bool:
    return any(path.match(home) or path.is_relative_to(home.removesuffix("/*")) for home in homes)


MODULES = sorted((ROOT / "craftcore").rglob("*.py"))


@pytest.mark.parametrize("module", MODULES, ids=[str(path.relative_to(ROOT)) for path in MODULES])
def test_every_module_keeps_to_its_place(module):
    assert violations(PurePosixPath(module.relative_to(ROOT / "craftcore")), module.read_text()) == []


@pytest.mark.parametrize(
    ("path", "source", "refusal"),
    [
        ("novelty.py", "", "stands on no floor"),
        ("errors.py", "import craftcore.storage", "above it"),
        ("storage/database.py", "from craftcore.triggers.model import Trigger", "above it"),
        ("storage/database.py", "from craftcore import triggers", "above it"),
        ("storage/database.py", "from ..triggers import model", "above it"),
        ("storage/database.py", "from craftcore import TriggerSpec", "craftcore.TriggerSpec, which is above it"),
        ("triggers/service.py", "def f():\n    from craftcore.tasks import service", "above it"),
        ("tasks/service.py", "from craftcore.engine import context", "above it"),
        ("app.py", "from craftcore.engine.runner import Runner", "above it"),
        ("engine/boot.py", "from craftcore.daemon import lock", "above it"),
        ("engine/boot.py", "from craftcore.core import Core", "above it"),
        ("engine/boot.py", "from craftcore.actions import command", "above it"),
        ("core.py", "from craftcore.cli import main", "above it"),
        ("triggers/model.py", "from craftcore.triggers.store import TriggerStore", "model <- store <- service"),
        ("triggers/model.py", "from . import store", "model <- store <- service"),
        ("triggers/store.py", "from craftcore.triggers import service", "model <- store <- service"),
        ("triggers/model.py", "import msgspec", "standard library only"),
        ("triggers/service.py", "import apsw", "imports apsw"),
        ("cli/status.py", "def f():\n    import apsw.ext", "imports apsw"),
        ("storage/database.py", "import anyio", "imports anyio"),
        ("app.py", "def f():\n    from anyio import sleep", "imports anyio"),
        ("engine/asking.py", "import httpx2", "imports httpx2"),
        ("engine/runner.py", "import os\nos.environ['HOME']", "uses os.environ"),
        ("app.py", "from os import getenv as look\nlook('HOME')", "uses os.getenv"),
        ("engine/feeder.py", "import time\ntime.time()", "uses time.time"),
        ("engine/feeder.py", "from time import time as now\nnow()", "uses time.time"),
        ("engine/feeder.py", "import datetime as dt\ndt.datetime.now(dt.UTC)", "uses datetime.datetime.now"),
        ("cli/output.py", "from datetime import datetime\ndatetime.now()", "uses datetime.datetime.now"),
        ("triggers/model.py", "from uuid import uuid4\nmake = uuid4", "uses uuid.uuid4"),
    ],
)
def test_a_module_out_of_its_place_is_refused(path, source, refusal):
    [found] = violations(PurePosixPath(path), source)

    assert refusal in found


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("triggers/service.py", "from craftcore.executions import recorder"),
        ("triggers/service.py", "from craftcore.triggers import model, store"),
        ("tasks/store.py", "import apsw\nfrom craftcore.triggers.service import TriggerService"),
        ("storage/writer.py", "import anyio\nfrom craftcore.clock import Clock"),
        ("app.py", "async def f():\n    from craftcore.core import Core"),
        ("app.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from craftcore.engine import context"),
        ("core.py", "from craftcore.daemon import lock\nfrom craftcore.actions import command"),
        ("testing/disk.py", "import apsw\nfrom craftcore.core import Core"),
        ("cli/main.py", "import os\nos.environ.get('CRAFTCORE_DB')\nfrom craftcore import App"),
        ("clock.py", "import time\ntime.time()"),
        ("engine/leases.py", "import time\ntime.monotonic()"),
        ("__init__.py", "from craftcore.app import App"),
    ],
)
def test_a_module_in_its_place_is_let_be(path, source):
    assert violations(PurePosixPath(path), source) == []
