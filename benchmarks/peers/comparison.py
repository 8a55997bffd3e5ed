"""The comparison from its arguments to its tables: install, start PostgreSQL, measure, print, draw."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.peers import scale
from benchmarks.peers.disk import file_system
from benchmarks.peers.environments import python_of
from benchmarks.peers.plots import write_plots
from benchmarks.peers.postgres import PostgresMissing, running_cluster
from benchmarks.peers.promises import PROMISES
from benchmarks.peers.report import Results, against_craftcore, promise_lines, reason_lines, table
from benchmarks.peers.rounds import Machine, installed, measure
from benchmarks.peers.systems import SYSTEMS, WORKS, System

ROUNDS = 3
ALONE = ("history", "boot")
"""Works of craftcore alone."""
IN_MEMORY = {"tmpfs", "ramfs"}


def compare(arguments: Sequence[str]) -> None:
    """Run the comparison that the arguments ask for."""
    options = parse(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that every process is ended on the way out
    began = time.monotonic()
    chosen = [system for system in SYSTEMS if not options.peers or system.name in {"craftcore", *options.peers}]
    results = Results()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if (kind := file_system(folder)) in IN_MEMORY:
            sys.exit(f"{folder} is on {kind}, which flushes nothing: set TMPDIR to a folder on a disk")
        folder.chmod(0o755)  # PostgreSQL runs as another user
        run_all(chosen, options, folder, results)
    works = [work for work in WORKS if work in options.only]
    show(results, chosen, works)
    print("\n" + write_plots(results.rates, options.output, lambda packages: python_of(options.folder, packages)))
    print(f"\n{options.rounds} interleaved rounds on {kind}, {time.monotonic() - began:,.0f} s in all")


def run_all(chosen: Sequence[System], options: argparse.Namespace, folder: Path, results: Results) -> None:
    """Install, and do every work that was asked for. What it starts has ended when it returns."""
    with ExitStack() as ends:
        pythons = installed(chosen, lambda packages: python_of(options.folder, packages), results)
        server = started_server([system for system in chosen if system.name in pythons], folder, results, ends)
        ready = [system for system in chosen if system.name in pythons and (server or not system.needs_postgres)]
        machine = Machine(folder=folder, pythons=pythons, server=server)
        measure(ready, [work for work in WORKS if work in options.only], options.rounds, machine.run, results)
    if "history" in options.only:
        scale.measure_history(folder, options.rounds, results, full=options.full)
    if "boot" in options.only:
        scale.measure_boot(folder, results)


def started_server(systems: Sequence[System], folder: Path, results: Results, ends: ExitStack) -> str:
    """Return the connection string of a new PostgreSQL, empty when nobody needs it or it does not start."""
    needing = [system for system in systems if system.needs_postgres]
    try:
        return ends.enter_context(running_cluster(folder / "postgres")) if needing else ""
    except PostgresMissing as error:
        for system in needing:
            results.fail(system.name, None, str(error))
        return ""


def show(results: Results, systems: Sequence[System], works: Sequence[str]) -> None:
    """Print the tables."""
    names = [system.name for system in systems]
    if works:
        print("\nItems per second: the median of the rounds (least to greatest)\n")
        print("\n".join(table(results, names, works)))
        print("\ncraftcore's median divided by that of the other system\n")
        print("\n".join(against_craftcore(results, names, works)))
    print("\nRatios with a floor: the median of the rounds' ratios (least to greatest)\n")
    print("\n".join(promise_lines(PROMISES, results.rates)))
    for line in reason_lines(results):
        print(f"\n{line}")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options. Exits with a message when they are wrong."""
    works, peers = [*WORKS, *ALONE], [system.name for system in SYSTEMS]
    cache = Path(tempfile.gettempdir()) / "craftcore-peers"
    parser = argparse.ArgumentParser(prog="python -m benchmarks peers")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"rounds of each work (default: {ROUNDS})")
    parser.add_argument("--only", type=names_of(works), default=works, help=f"some of {','.join(works)}")
    parser.add_argument("--peers", type=names_of(peers), default=[], help=f"craftcore and some of {','.join(peers)}")
    parser.add_argument("--folder", type=Path, default=cache, help=f"the environments (default: {cache})")
    parser.add_argument("--output", type=Path, default=Path("benchmarks-output"), help="the folder of the plots")
    parser.add_argument("--full", action="store_true", help="also 10,000,000 settled rows, in 5 minutes and 30 GB")
    return parser.parse_args(arguments)


def names_of(known: Sequence[str]) -> Callable[[str], list[str]]:
    """Return a function that reads names with commas between them."""

    def names(text: str) -> list[str]:
        found = [name.strip() for name in text.split(",")]
        if unknown := [name for name in found if name not in known]:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is not one of {', '.join(known)}")
        return found

    return names
