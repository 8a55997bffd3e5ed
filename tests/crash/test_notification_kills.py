"""Kills of a daemon that notifies: each event is notified exactly once."""

from __future__ import annotations

import pytest

from tests.crash import notification_campaign


@pytest.mark.parametrize("kills", [6, pytest.param(500, marks=pytest.mark.campaign)])
def test_killed_daemon_notifies_of_each_event_once(tmp_path, kills):
    verdict = notification_campaign.run(tmp_path, kills, seed=kills)

    assert verdict.holds, verdict
    assert verdict.events >= 3 * kills
