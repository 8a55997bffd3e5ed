"""The kill campaign of a cluster: each app has its own campaign, which kills its workers and its server."""

from __future__ import annotations

from pathlib import Path

import anyio

from tests.evidence.model import Findings
from tests.temporal.kill_campaign import a_campaign
from tests.temporal.kill_cases import CASES

SERVER_KILLS = 10
"""The number of kills of the server in the campaign of each app."""


def worker_kills(kills: int, seed: int, folder: Path) -> Findings:
    """Kill the workers of all apps `kills` times in total, those of each app equally often."""
    found = Findings()
    tasks = crashes = doubts = 0
    for case in CASES:
        home = folder / case.name
        home.mkdir()
        share = -(-kills // len(CASES))
        with a_campaign(home, [case], kills=share, server_kills=min(SERVER_KILLS, share // 10), seed=seed) as campaign:
            try:
                tallies = anyio.run(campaign.play, campaign.allowed_seconds)
            except TimeoutError:
                found.wrong.append(f"{case.name}: a task did not end within {campaign.allowed_seconds:.0f} s")
                tallies = campaign.tallies
        for tally in tallies.values():
            found.lost += tally.missing
            found.repeated += tally.doubled
            found.wrong += [f"{case.name}: {text}" for text in tally.wrong]
            tasks, crashes, doubts = tasks + tally.tasks, crashes + tally.crashes, doubts + tally.doubts
        found.count += campaign.killed
    found.more = f"{tasks:,} tasks of {len(CASES)} apps, {crashes:,} crashes of entries, {doubts:,} in doubt"
    return found
