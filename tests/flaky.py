"""`python -m tests.flaky N`: run the default tests N times, in random order on a busy machine, to find flaky ones.

A flaky test has a deadline that is too short, or depends on other tests. Each run runs each test once. The runs
alternate between four loads:

burners   one busy process for each processor competes with the tests
one core  all workers share one processor
flushes   the files are on a disk on which another process writes and flushes all the time
crowd     twice the usual number of workers
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOADS = ("burners", "one core", "flushes", "crowd")

BURNER = "while True: pass"
FLUSHER = """
import os, sys
with open(sys.argv[1], "wb", buffering=0) as file:
    while True:
        file.seek(0)
        file.write(b"x" * (4 << 20))
        os.fsync(file.fileno())
"""


def main() -> int:
    """Run the tests under load. Return 1 when a test failed in any run."""
    parser = argparse.ArgumentParser(prog="python -m tests.flaky")
    parser.add_argument("runs", type=int, metavar="N")
    parser.add_argument("--seed", default="0", help="another word makes other orders (0)")
    parser.add_argument("--load", choices=LOADS, help="the same load in each run")
    parser.add_argument("tests", nargs="*", help="some tests instead of all")
    args = parser.parse_intermixed_args()
    failures: defaultdict[str, list[str]] = defaultdict(list)
    for number in range(1, args.runs + 1):
        load = args.load or LOADS[(number - 1) % len(LOADS)]
        order = f"{args.seed}-{number}"
        started = time.monotonic()
        with under(load) as (options, folder), tempfile.TemporaryFile("w+") as output:
            where = [] if folder is None else ["--basetemp", str(folder / "tests")]
            command = [sys.executable, "-m", "pytest", "-rfE", "--shuffle", order, *options, *where, *args.tests]
            code = subprocess.run(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT).returncode
            output.seek(0)
            text = output.read()
        failed = re.findall(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", text, re.MULTILINE)
        if code and not failed:
            failed = [f"(pytest exits with {code})"]
        for name in failed:
            failures[name].append(f"{load}, --shuffle {order}")
        [counts] = re.findall(r"^(?:=+ )?(\d+ .*) in [\d.]+s", text, re.MULTILINE)[-1:] or ["no counts"]
        print(f"{number:3} {load:9} {time.monotonic() - started:6.0f} s  {counts}", flush=True)
        if failed:
            print(text[text.find("= FAILURES") :][:60_000], flush=True)
    print(f"{len(failures)} tests failed in {args.runs} runs")
    for name, runs in sorted(failures.items()):
        print(f"  {name}: {len(runs)} times ({'; '.join(runs)})")
    return 1 if failures else 0


@contextlib.contextmanager
def under(load: str) -> Iterator[tuple[list[str], Path | None]]:
    """Put the machine under a load. Yield the options of pytest, and the folder for its files if it needs one."""
    cores = sorted(os.sched_getaffinity(0))
    workers, folder = len(cores) * 5 // 2, None
    with contextlib.ExitStack() as started:
        match load:
            case "burners":
                for _ in cores:
                    started.enter_context(_running(BURNER))
            case "one core":
                os.sched_setaffinity(0, cores[:1])
                started.callback(os.sched_setaffinity, 0, cores)
            case "flushes":
                folder = Path(started.enter_context(tempfile.TemporaryDirectory(dir="/var/tmp")))
                started.enter_context(_running(FLUSHER, str(folder / "flushed")))
            case "crowd":
                workers *= 2
        yield ["-n", str(workers), "--dist", "worksteal"], folder


@contextlib.contextmanager
def _running(program: str, *arguments: str) -> Iterator[None]:
    with subprocess.Popen([sys.executable, "-c", program, *arguments]) as process:
        try:
            yield
        finally:
            process.kill()


if __name__ == "__main__":
    sys.exit(main())
