"""`python -m tests.evidence`: run the experiments, and write the page with the measured results.

python -m tests.evidence [--quick | --full] [--seed N] [--only EXPERIMENT …]
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.evidence.experiments import EXPERIMENTS
from tests.evidence.model import ROOT, Experiment, Row, load, make_row, store
from tests.evidence.page import page
from tests.support.log_capture import suppress_log

PAGE = ROOT / "docs" / "explanation" / "evidence.md"


def main() -> int:
    """Run the experiments. Return 1 when anything was lost or repeated, or when a checker found another fault."""
    args = options(sys.argv[1:])
    suppress_log()
    chosen = [one for one in EXPERIMENTS if args.only is None or one.name in args.only]
    seed = random.SystemRandom().getrandbits(31) if args.seed is None else args.seed
    return write(chosen, PAGE, seed=seed, full=args.full)


def options(words: Sequence[str]) -> argparse.Namespace:
    """Return the options of the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.evidence", description=__doc__)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="the default")
    size.add_argument("--full", action="store_true")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--only", nargs="+", metavar="EXPERIMENT", choices=[one.name for one in EXPERIMENTS])
    return parser.parse_args(words)


def write(chosen: Sequence[Experiment], path: Path, *, seed: int, full: bool) -> int:
    """Run the experiments, and write the page after each. Rows of other experiments stay as they were measured."""
    results = path.with_suffix(".json")
    failed = False
    for experiment in chosen:
        row = measure(experiment, seed=seed, count=experiment.full if full else experiment.quick)
        failed = failed or bool(row.lost or row.repeated or row.wrong)
        rows = {**load(results), row.name: row}
        store(results, {one.name: rows[one.name] for one in EXPERIMENTS if one.name in rows})
        path.write_text(page(EXPERIMENTS, rows))
    return 1 if failed else 0


def measure(experiment: Experiment, *, seed: int, count: int) -> Row:
    """Run one experiment, and print its figures."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="craftcore-evidence-") as folder:
        found = experiment.run(count, seed, Path(folder))
    row = make_row(experiment, found, seed, time.monotonic() - started)
    figures = f"{row.count:,} {row.unit}, {row.lost} lost, {row.repeated} repeated, {len(row.wrong)} other faults"
    print(f"{row.name:20} {figures}, {row.seconds:.0f} s; {row.more}", flush=True)
    for text in row.wrong[:20]:
        print(f"    WRONG (seed {seed}): {text}", flush=True)
    return row


if __name__ == "__main__":
    sys.exit(main())
