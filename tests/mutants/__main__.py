"""`python -m tests.mutants`: apply each mutant of the list, and check that a test detects it.

python -m tests.mutants [--only NAME …] [--jobs N] [--list]
"""

from __future__ import annotations

import argparse
import sys

from tests.mutants.catalogue import MUTANTS
from tests.mutants.runner import Outcome, Unusable, require_green, run


def main() -> int:
    """Run the chosen mutants. Return 1 if one survives, and 2 if one is unusable."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[mutant.name for mutant in MUTANTS])
    parser.add_argument("--jobs", type=int, default=2, metavar="N")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    chosen = [mutant for mutant in MUTANTS if options.only is None or mutant.name in options.only]
    if options.list:
        for mutant in chosen:
            print(f"{mutant.name:40} {mutant.breaks}")
        return 0
    try:
        require_green(chosen)
        outcomes = run(chosen, jobs=options.jobs, progress=_show)
    except Unusable as error:
        print(error, file=sys.stderr)
        return 2
    survivors = [outcome.name for outcome in outcomes if outcome.noticed_by is None]
    longest = max(outcome.seconds for outcome in outcomes)
    print(f"{len(outcomes) - len(survivors)} of {len(outcomes)} mutants were noticed, each within {longest:.0f} s")
    return 1 if survivors else 0


def _show(outcome: Outcome) -> None:
    print(f"{outcome.name:40} {outcome.seconds:5.1f} s  {outcome.noticed_by or 'SURVIVED'}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
