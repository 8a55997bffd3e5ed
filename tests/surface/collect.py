"""The collector of the public surface: one text document for each kind of name that users rely on.

`python -m tests.surface` writes the documents; `test_golden_files.py` compares them with the code.
"""

from __future__ import annotations

import ast
import inspect
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any
from unittest import mock

import click

import craftcore
from craftcore import testing
from craftcore.blocking_calls import BlockingCalls
from craftcore.cli import exit_codes
from craftcore.cli.root import root
from craftcore.client.blocking_work_calls import BlockingWorkCalls
from craftcore.client.work_calls import WorkCalls
from craftcore.clock import SystemClock
from craftcore.config import Config
from craftcore.daemon.metrics.counters import Counters
from craftcore.daemon.metrics.prometheus import render
from craftcore.error_codes import ErrorCode
from craftcore.executions.model import EventType
from craftcore.registry.registry import Registry
from craftcore.services import Services
from craftcore.storage import migrate
from craftcore.storage.database import Database
from tests.support import prose

NOT_SHOWN = {object, Registry, BlockingCalls, BlockingWorkCalls, WorkCalls}
"""Base classes of which a reader sees the methods only."""

GOLDEN = Path(__file__).parent / "golden"

LOG_LEVELS = {"debug", "info", "warning", "error", "critical", "exception"}


def python_names() -> str:
    """Return every public name with its signature, public attributes and methods."""
    lines: list[str] = []
    for name in craftcore.__all__:
        lines += [*describe(name, getattr(craftcore, name)), ""]
    for name in testing.__all__:
        lines += [*describe(f"testing.{name}", getattr(testing, name)), ""]
    return "\n".join(lines)


def describe(name: str, value: Any) -> Iterator[str]:
    """Yield the lines that describe one public class, enumeration or function."""
    if not inspect.isclass(value):
        yield f"{name}{signature(value)}"
        return
    bases = ", ".join(base.__name__ for base in value.__bases__ if base not in NOT_SHOWN)
    yield f"class {name}({bases})"
    if issubclass(value, Enum):
        yield from (f"    {member.name} = {member.value!r}" for member in value)
        return
    yield f"    __init__{signature(value)}"
    if is_dataclass(value):
        yield from (f"    {field.name}: {field.type}" for field in fields(value))
    for attribute in sorted(public_attributes(value)):
        member = inspect.getattr_static(value, attribute)
        if isinstance(member, property):
            yield f"    @property {attribute}"
        elif isinstance(member, classmethod | staticmethod):
            yield f"    @{type(member).__name__} {attribute}{signature(member.__func__)}"
        elif callable(member):
            word = "async def" if inspect.iscoroutinefunction(member) else "def"
            yield f"    {word} {attribute}{signature(member)}"


def public_attributes(value: type) -> set[str]:
    """Return the public attributes that a class or one of its bases in craftcore defines."""
    bases = [base for base in value.__mro__ if base.__module__.startswith("craftcore")]
    return {name for base in bases for name in vars(base) if not name.startswith("_")}


def signature(function: Callable[..., Any]) -> str:
    """Return the parameters of a callable with their annotations as in the source."""
    try:
        return str(inspect.signature(function)).replace("'", "")
    except ValueError:
        return "(...)"


def commands() -> str:
    """Return the help page of every command and group, 80 columns wide."""
    with mock.patch.dict("os.environ", {"COLUMNS": "80"}):
        pages = [f"$ {path} --help\n{page}" for path, page in help_pages(root, "craftcore")]
    return "\n\n".join(pages) + "\n"


def help_pages(command: click.Command, path: str, parent: click.Context | None = None) -> Iterator[tuple[str, str]]:
    """Yield (command line, help page) of a command and of all its subcommands."""
    name, settings = path.rpartition(" ")[2], command.context_settings
    context = click.Context(command, info_name=name, parent=parent, terminal_width=80, **settings)
    yield path, command.get_help(context).rstrip()
    if isinstance(command, click.Group):
        for verb in command.list_commands(context):
            if (child := command.get_command(context, verb)) is not None:
                yield from help_pages(child, f"{path} {verb}", context)


def schema() -> str:
    """Return the SQL of every table, index, trigger and view of a new database."""
    with tempfile.TemporaryDirectory() as folder:
        database = Database(Path(folder) / "new.db", SystemClock())
        migrate.migrate(database, SystemClock())
        database.close()
        with database.reading() as reader:
            rows = reader.fetch_all(
                "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY type, name"
            )
    return "\n".join(f"-- {row['type']} {row['name']}\n{row['sql']};\n" for row in rows)


def codes() -> str:
    """Return the error codes, exit codes and event types."""
    exits = {name: value for name, value in vars(exit_codes).items() if name.isupper() and isinstance(value, int)}
    return "\n".join(
        [
            "# error codes",
            *sorted(str(code) for code in ErrorCode),
            "# event types",
            *sorted(str(kind) for kind in EventType),
            "# exit codes",
            *(f"{value} {name}" for name, value in sorted(exits.items(), key=lambda item: item[1])),
            "",
        ]
    )


def log_events() -> str:
    """Return the name of every log event, found in calls like `log.info("trigger.settled", …)`."""
    return "\n".join(sorted({name for _, tree in prose.modules() for name in find_events(tree)})) + "\n"


def find_events(tree: ast.Module) -> Iterator[str]:
    """Yield the string constants that are passed as the event of a logging call."""
    for node in prose.nodes(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LOG_LEVELS:
            for constant in ast.walk(node.args[0]) if node.args else ():
                if isinstance(constant, ast.Constant) and isinstance(constant.value, str) and "." in constant.value:
                    yield constant.value


def metrics() -> str:
    """Return the name, type, labels and bounds of every metric, as a new database and one attempt show them."""
    counters = Counters({"hello"}, SystemClock())
    counters.count("hello", "done", 0.0, 0.0)
    counters.count_scheduled("nightly", "done")
    with tempfile.TemporaryDirectory() as folder:
        core = Services(Path(folder) / "new.db", Config(), SystemClock())
        core.prepare()
        text = render(core, counters).decode()
        core.close()
    typed = [line for line in text.splitlines() if line.startswith("# TYPE")]
    labels = [line.rpartition(" ")[0] for line in text.splitlines() if "{" in line]
    return "\n".join([*typed, *(re.sub(r'(version|python)="[^"]*"', r"\1", line) for line in labels), ""])


DOCUMENTS: dict[str, Callable[[], str]] = {
    "python_names.txt": python_names,
    "commands.txt": commands,
    "schema.sql": schema,
    "codes.txt": codes,
    "log_events.txt": log_events,
    "metrics.txt": metrics,
}
