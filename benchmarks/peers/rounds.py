"""Interleaved rounds: each work is done by every system, one after the other, before the next round begins."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.environments import NotInstalled
from benchmarks.peers.process import ProgramFailed, run_program
from benchmarks.peers.report import Results
from benchmarks.peers.systems import WORKS, System

Run = Callable[[System, str], "float | list[float]"]
"""Does one work with a system. Raises ProgramFailed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The resources of the programs: a folder on a disk, an interpreter for each system, and the connection string of
    PostgreSQL."""

    folder: Path
    pythons: Mapping[str, str]
    server: str = ""

    def run(self, system: System, work: str) -> float | list[float]:
        """Do one work with a system in a process of its own. Raises ProgramFailed."""
        return run_program(
            self.pythons[system.name], system.program, arguments(system, work, self.server), folder=self.folder
        )


def arguments(system: System, work: str, server: str) -> list[str]:
    """Return the arguments of a program for a work."""
    what = WORKS[work]
    return [
        system.kinds.get(work, what.kind),
        f"--count={system.counts[work]}",
        f"--width={system.widths.get(work, what.width)}",
        f"--steps={what.steps}",
        f"--setting={server if system.needs_postgres else system.setting}",
    ]


def installed(systems: Sequence[System], install: Callable[[tuple[str, ...]], str], results: Results) -> dict[str, str]:
    """Return the interpreter of each system. One that cannot be installed is noted with its reason, and left out."""
    pythons: dict[str, str] = {}
    for system in systems:
        try:
            pythons[system.name] = install(system.requirements)
        except NotInstalled as error:
            results.fail(system.name, None, f"not installed: {error}")
    return pythons


def measure(systems: Sequence[System], works: Sequence[str], rounds: int, run: Run, results: Results) -> None:
    """Add the results of all rounds. A work that fails is noted with its reason, and not tried again."""
    for number in range(rounds):
        for work in works:
            for system in systems:
                if work not in system.counts or (system.name, work) in results.reasons:
                    continue
                print(f"  round {number + 1} of {rounds}: {work}, {system.name}", file=sys.stderr)
                try:
                    results.add(system.name, work, run(system, work))
                except ProgramFailed as error:
                    results.fail(system.name, work, str(error))
