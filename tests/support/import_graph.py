"""The import graph of the package, with imports in function bodies and for the type checker."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import PurePosixPath

from tests.support import prose

Graph = dict[str, set[str]]
"""A node, and the nodes that it imports."""


@cache
def by_file() -> Graph:
    """Return the graph over modules, by their path in the package."""
    trees = {path.relative_to(prose.PACKAGE).as_posix(): tree for path, tree in prose.modules()}
    return {
        path: {found for name in imports(PurePosixPath(path), tree) if (found := _module(name, trees))} - {path}
        for path, tree in trees.items()
    }


def by_folder(files: Graph) -> Graph:
    """Return the graph over folders. A module outside of all folders is its own node."""
    folders: Graph = {folder(path): set() for path in files}
    for path, imported in files.items():
        folders[folder(path)] |= {folder(one) for one in imported} - {folder(path)}
    return folders


def folder(path: str) -> str:
    """Return the first folder of a module's path, or the name of a module without one."""
    return PurePosixPath(path).parts[0].removesuffix(".py")


def circles(graph: Mapping[str, set[str]]) -> Iterator[set[str]]:
    """Yield the strongly connected components of more than one node (Tarjan 1972)."""
    numbers: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    on_path: set[str] = set()

    def visit(node: str) -> Iterator[set[str]]:
        numbers[node] = lowest[node] = len(numbers)
        path.append(node)
        on_path.add(node)
        for other in sorted(graph[node]):
            if other not in numbers:
                yield from visit(other)
                lowest[node] = min(lowest[node], lowest[other])
            elif other in on_path:
                lowest[node] = min(lowest[node], numbers[other])
        if lowest[node] == numbers[node]:
            start = path.index(node)
            component = set(path[start:])
            del path[start:]
            on_path.difference_update(component)
            if len(component) > 1:
                yield component

    for node in sorted(graph):
        if node not in numbers:
            yield from visit(node)


def imports(path: PurePosixPath, tree: ast.Module) -> Iterator[tuple[str, ...]]:
    """Yield every imported name, in parts: `from craftcore.triggers import store` is (craftcore, triggers, store)."""
    package = ("craftcore", *path.parts[:-1])
    for node in prose.nodes(tree):
        match node:
            case ast.Import(names=names):
                yield from (tuple(alias.name.split(".")) for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                start = package[: len(package) - level + 1] if level else ()
                base = (*start, *(module.split(".") if module else ()))
                yield from ((*base, alias.name) for alias in names)


def _module(name: tuple[str, ...], paths: Mapping[str, object]) -> str | None:
    """Return the path of the module that an import names, or that contains the imported name."""
    if name[0] != "craftcore":
        return None
    for length in (len(name), len(name) - 1):
        base = "/".join(name[1:length])
        for path in (f"{base}.py", f"{base}/__init__.py".lstrip("/")):
            if path in paths:
                return path
    return None
