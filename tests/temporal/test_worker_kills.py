"""The unchanged examples under kills of workers and the server: no effect is lost or repeated, and every task ends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from craftcore.temporal.settings import TemporalSettings
from tests.temporal.kill_campaign import Campaign, a_campaign
from tests.temporal.kill_cases import CASES, Witness

pytestmark = pytest.mark.anyio


@pytest.fixture
def short_lease(cluster: TemporalSettings) -> TemporalSettings:
    """Return settings with which a cluster soon notices that a worker was killed."""
    return replace(cluster, heartbeat_timeout=2)


async def run_and_check(campaign: Campaign, seconds: float) -> None:
    """Run the campaign, and compare the tasks with the providers."""
    tallies = await campaign.play(seconds)
    assert {name: tally.wrong for name, tally in tallies.items() if tally.wrong} == {}
    assert {name: (tally.doubled, tally.missing) for name, tally in tallies.items()} == {
        case.name: (0, 0) for case in campaign.cases
    }
    assert campaign.killed >= campaign.kills
    assert campaign.exits == [] or campaign.server_kills
    assert all(tally.tasks for tally in tallies.values())


async def test_killed_workers_lose_and_double_nothing(short_lease, tmp_path):
    """The witness case alone records each result of a step and each effect."""
    cases = [Witness(tmp_path)]
    await run_and_check(
        Campaign(settings=short_lease, folder=tmp_path, cases=cases, kills=2, live_max=2, timeout=1), 300
    )


@pytest.mark.cluster
async def test_killed_workers_of_the_examples_lose_and_double_nothing(short_lease, tmp_path):
    cases = [case(tmp_path) for case in CASES]
    await run_and_check(
        Campaign(settings=short_lease, folder=tmp_path, cases=cases, kills=3, live_max=2, timeout=1), 300
    )


@pytest.mark.campaign
async def test_killed_server_loses_and_doubles_nothing(tmp_path):
    with a_campaign(tmp_path, [Witness], kills=2, server_kills=1, seed=1, live_max=3, timeout=1) as campaign:
        await run_and_check(campaign, campaign.allowed_seconds)


@pytest.mark.campaign
@pytest.mark.parametrize(("case", "kills"), [(case, 1_000 if case.name == "witness" else 100) for case in CASES])
async def test_hundreds_of_kills_lose_and_double_nothing(tmp_path, case, kills):
    with a_campaign(tmp_path, [case], kills=kills, server_kills=10, seed=1) as campaign:
        await run_and_check(campaign, campaign.allowed_seconds)
