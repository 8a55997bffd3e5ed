"""The functions of `craftcore.operations` that other code uses, read from syntax trees."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tests.support import prose

OPERATIONS = prose.PACKAGE / "operations"
PARTS_OF_ALL = {"audit_scope", "form_request", "seen"}
"""Modules without actions, which all operations share."""

MODULES = {path.stem for path in OPERATIONS.glob("*.py")} - {"__init__"} - PARTS_OF_ALL
WRITING = ("AuditScope", "Services")
"""An operation with a parameter of one of these types may change the database."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def functions(path: Path) -> dict[str, Function]:
    """Return the functions of a module, by name."""
    body = dict(prose.modules())[path].body
    return {node.name: node for node in body if isinstance(node, Function)}


@cache
def actions() -> frozenset[str]:
    """Return the public functions that may change the database: `tasks.cancel`."""
    return frozenset(
        f"{module}.{name}"
        for module in MODULES
        for name, node in functions(OPERATIONS / f"{module}.py").items()
        if not name.startswith("_") and any(_type_name(one) in WRITING for one in _parameters(node))
    )


def used_by(function: Callable[..., Any]) -> list[str]:
    """Return the actions that a function names, directly or through functions of its module, with repetitions."""
    plain = inspect.unwrap(function)
    return sorted(_used_in(Path(inspect.getfile(plain)), plain.__name__, set()))


def used_in(folder: str) -> dict[str, list[str]]:
    """Return the actions that each module of a folder names, by its path in the package."""
    return {
        path.relative_to(prose.PACKAGE).as_posix(): found
        for path, tree in prose.modules()
        if path.is_relative_to(prose.PACKAGE / folder) and (found := sorted(_named(tree, _imported(tree))))
    }


def imported_into(folder: str) -> set[str]:
    """Return the imports of a folder's modules from `craftcore.operations`, such as `tasks` and `seen.state_text`."""
    return {
        one
        for path, tree in prose.modules()
        if path.is_relative_to(prose.PACKAGE / folder)
        for one in _imported(tree).values()
    }


def _used_in(path: Path, name: str, seen: set[str]) -> Iterator[str]:
    seen.add(name)
    node = functions(path)[name]
    yield from _named(node, _imported(dict(prose.modules())[path]))
    for one in ast.walk(node):
        if isinstance(one, ast.Name) and one.id in functions(path) and one.id not in seen:
            yield from _used_in(path, one.id, seen)


@cache
def _imported(tree: ast.Module) -> dict[str, str]:
    """Return the names that a module gives to parts of `craftcore.operations`, in functions, too."""
    found: dict[str, str] = {}
    for node in prose.nodes(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=names) if f"{module}.".startswith("craftcore.operations."):
                inner = f"{module}.".removeprefix("craftcore.operations.")
                found |= {alias.asname or alias.name: f"{inner}{alias.name}" for alias in names}
            case ast.Import(names=names):
                assert not any(alias.name.startswith("craftcore.operations") for alias in names), ast.unparse(node)
    return found


def _named(tree: ast.AST, imported: dict[str, str]) -> Iterator[str]:
    """Yield each action that a tree names, as `module.function`."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=module), attr=name) if module in imported:
                if f"{imported[module]}.{name}" in actions():
                    yield f"{imported[module]}.{name}"


def _parameters(node: Function) -> list[ast.arg]:
    return [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]


def _type_name(parameter: ast.arg) -> str:
    return ast.unparse(parameter.annotation) if parameter.annotation is not None else ""
