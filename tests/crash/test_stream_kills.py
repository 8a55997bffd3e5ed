"""Kills of daemons and readers of streams: each reader has the text that the turns wrote, byte for byte."""

from __future__ import annotations

import pytest

from tests.crash import stream_campaign


@pytest.mark.parametrize("kills", [5, pytest.param(1000, marks=pytest.mark.campaign)])
def test_killed_daemons_and_readers_leave_every_text_exact(tmp_path, kills):
    verdict = stream_campaign.run(tmp_path, kills, seed=kills)

    assert verdict.holds, verdict
    assert verdict.tasks > kills
    assert verdict.cuts > kills / 10, "a kill that interrupts no step proves nothing"


@pytest.mark.campaign
@pytest.mark.parametrize("fault", ["unsaved", "uncut"])
def test_campaign_finds_a_fault(tmp_path, fault):
    """The program records a step before its chunks, or does not withdraw those of a step that was cut off."""
    verdict = stream_campaign.run(tmp_path, 20, seed=1, fault=fault)

    assert verdict.torn, verdict
    assert verdict.torn_for_new_readers, verdict
