"""Simulated years of a hundred schedules, with crashes and a clock that is set back."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.evidence.model import Findings
from tests.simulation.test_year import run_year
from tests.support.simulated_year import Year


def simulated_years(years: int, seed: int, folder: Path) -> Findings:
    """Run years with different seeds, and check the account of each month."""
    found = Findings()
    crashes = steps = 0
    for number in range(years):
        home = folder / str(number)
        home.mkdir()
        year = Year(home, seed=seed + number)
        try:
            run_year(year)
        except AssertionError as error:
            found.wrong.append(f"seed {seed + number}: {error}")
            break
        crashes, steps = crashes + year.crashes, steps + len(year.steps)
        found.count += 1
        shutil.rmtree(home)
    found.more = f"{crashes:,} crashes, {steps:,} steps of the clock"
    return found
