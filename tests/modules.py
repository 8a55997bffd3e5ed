"""`python -m tests.modules`: list the modules that a reader may want to cut or to merge. No test fails for them.

A long module may hold two ideas. A short module that only one module of its folder imports may be a part of that one.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from tests.support import import_graph, prose

LINES_LONG, LINES_SHORT = 450, 70


def main() -> None:
    """Print both lists, with the lines of each module."""
    lines = {path.relative_to(prose.PACKAGE).as_posix(): len(path.read_text("utf-8").splitlines()) for path in paths()}
    print(f"modules of more than {LINES_LONG} lines:")
    for path in sorted(filter(lambda one: lines[one] > LINES_LONG, lines)):
        print(f"  {lines[path]:4} {path}")
    print(f"modules of fewer than {LINES_SHORT} lines with one importer, in the same folder:")
    for path, importer in sorted(with_one_importer(import_graph.by_file()).items()):
        if lines[path] < LINES_SHORT:
            print(f"  {lines[path]:4} {path} -> {importer}")


def paths() -> list[Path]:
    """Return the modules of the package."""
    return [path for path, _ in prose.modules()]


def with_one_importer(graph: import_graph.Graph) -> dict[str, str]:
    """Return the only importer of each module that exactly one module imports, if both are in one folder."""
    importers: dict[str, list[str]] = {path: [] for path in graph}
    for path, imported in graph.items():
        for one in imported:
            importers[one].append(path)
    return {
        path: found[0]
        for path, found in importers.items()
        if len(found) == 1 and PurePosixPath(found[0]).parent == PurePosixPath(path).parent
    }


if __name__ == "__main__":
    main()
