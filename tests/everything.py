"""`python -m tests.everything`: all tests except the campaigns, for each night and for each closed issue.

A seed selects the cells of large matrices that the default run leaves out: the day's seed, or the seed of `--seed`. So
each cell runs within weeks. The tests of a booted systemd run in parallel, because they often wait for their machine.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
NO_TESTS = 5
"""The exit code of pytest when it finds no test."""

PYTEST = (sys.executable, "-m", "pytest")


def main() -> int:
    """Run the tests. Return 0 when all passed, 1 when a test failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.everything")
    parser.add_argument("--seed", default=f"{datetime.now(UTC):%Y-%m-%d}", help="draw other cells (the day, in UTC)")
    parser.add_argument("--workers", default="auto", metavar="N", help="processes of pytest (auto)")
    args = parser.parse_args()
    print(f"The seed is {args.seed}: --seed {args.seed} repeats this choice of cells.", flush=True)
    draw = ["--seed", args.seed]
    spread = ["-n", args.workers, "--dist", "worksteal", "--durations=50", "--costs"]
    with tempfile.TemporaryFile("w+") as booted:
        system_tests = [*PYTEST, "-m", "system and not campaign", *draw]
        with subprocess.Popen(system_tests, cwd=ROOT, stdout=booted, stderr=subprocess.STDOUT) as system:
            code = subprocess.run([*PYTEST, "-m", "not campaign and not system", *draw, *spread], cwd=ROOT).returncode
            code_of_system = system.wait()
        booted.seek(0)
        print(f"\nThe tests of a booted systemd and of a fresh environment:\n{booted.read()}", flush=True)
    return int(code != 0 or code_of_system not in (0, NO_TESTS))


if __name__ == "__main__":
    sys.exit(main())
