"""The mutants: deliberately broken variants of craftcore, each of which a test must notice."""

from __future__ import annotations

import os
from pathlib import Path

from tests.evidence.model import Findings
from tests.mutants.catalogue import MUTANTS
from tests.mutants.runner import Unusable, require_green, run


def mutants(most: int, seed: int, folder: Path) -> Findings:
    """Run at most `most` mutants. Their tests must pass without them."""
    chosen = MUTANTS[:most]
    try:
        require_green(chosen)
        outcomes = run(chosen, jobs=os.cpu_count() or 1, progress=lambda _: None)
    except Unusable as error:
        return Findings(wrong=[str(error)])
    survivors = [outcome.name for outcome in outcomes if outcome.noticed_by is None]
    return Findings(
        count=len(outcomes),
        wrong=[f"mutant {name} survived" for name in survivors],
        more=f"{len(outcomes) - len(survivors)} of {len(outcomes)} were noticed by a test",
    )
