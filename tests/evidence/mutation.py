"""The mutants: deliberately broken variants of craftcore, each of which a test must notice."""

from __future__ import annotations

import os
from pathlib import Path

from tests.evidence.model import Found
from tests.mutants.catalogue import MUTANTS
from tests.mutants.runner import Unusable, require_green, run


def mutants(most: int, seed: int, folder: Path) -> Found:
    """Run the mutants, or as many of them. Their tests must pass without them."""
    everything = MUTANTS[:most]
    try:
        require_green(everything)
        outcomes = run(everything, jobs=os.cpu_count() or 1, progress=lambda _: None)
    except Unusable as error:
        return Found(wrong=[str(error)])
    survivors = [outcome.name for outcome in outcomes if outcome.noticed_by is None]
    return Found(
        count=len(outcomes),
        wrong=[f"mutant {name} survived" for name in survivors],
        more=f"{len(outcomes) - len(survivors)} of {len(outcomes)} were noticed by a test",
    )
