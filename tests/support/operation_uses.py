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


@cache
def methods(path: Path) -> dict[str, Function]:
    """Return the methods of the calls on a database file in a module, by name."""
    classes = [node for node in dict(prose.modules())[path].body if isinstance(node, ast.ClassDef)]
    bodies = [node.body for node in classes if node.name.startswith("File")]
    return {node.name: node for body in bodies for node in body if isinstance(node, Function)}


def used_by(function: Callable[..., Any]) -> list[str]:
    """Return the actions that a function names, directly, through functions of its module, or through the calls on a
    database file that it opens, with repetitions."""
    plain = inspect.unwrap(function)
    path = Path(inspect.getfile(plain))
    return sorted(_used_in(path, functions(path)[plain.__name__], set()))


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


def _used_in(path: Path, node: Function, seen: set[Function]) -> Iterator[str]:
    seen.add(node)
    tree = dict(prose.modules())[path]
    yield from _named(node, _imported(tree))
    names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
    attributes = {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}
    following = [(path, one) for name, one in functions(path).items() if name in names]
    for opening, module in _openings(tree).items():
        if opening in names:
            following += [(module, one) for name, one in methods(module).items() if name in attributes]
    for place, one in following:
        if one not in seen:
            yield from _used_in(place, one, seen)


@cache
def _openings(tree: ast.Module) -> dict[str, Path]:
    """Return the functions that a module imports to open calls, such as `open_tasks`, each with its module."""
    return {
        alias.name: prose.PACKAGE.parent / f"{node.module.replace('.', '/')}.py"
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module is not None
        for alias in node.names
        if alias.name.startswith("open_") and node.module.startswith("craftcore.cli.")
    }


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
