"""The mutants: deliberately broken variants of craftcore, each of which a test must notice."""

from __future__ import annotations

import os
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from tests.evidence.model import Found


def are_there() -> bool:
    """Return whether this checkout has mutants."""
    return find_spec("tests.mutants") is not None and find_spec("tests.mutants.runner") is not None


def mutants(most: int, seed: int, folder: Path) -> Found:
    """Run the mutants, or as many of them. Their tests must pass without them."""
    everything = import_module("tests.mutants.catalogue").MUTANTS[:most]
    runner = import_module("tests.mutants.runner")
    try:
        runner.require_green(everything)
        outcomes = runner.run(everything, jobs=os.cpu_count() or 1, progress=lambda _: None)
    except runner.Unusable as error:
        return Found(wrong=[str(error)])
    survivors = [outcome.name for outcome in outcomes if outcome.noticed_by is None]
    return Found(
        count=len(outcomes),
        wrong=[f"mutant {name} survived" for name in survivors],
        more=f"{len(outcomes) - len(survivors)} of {len(outcomes)} were noticed by a test",
    )
