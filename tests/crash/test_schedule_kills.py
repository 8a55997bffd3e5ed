"""Kills at every point of a tick: each occurrence has one account and fires at most once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.crash.crews import campaign_result
from tests.crash.schedule_child import WAYS

CAMPAIGN = "tests.crash.schedule_campaign"


def judge(result: dict[str, Any], kills: int) -> None:
    found = result["found"]
    assert result["wrong"] == []
    assert sum(result["kills"].values()) >= kills
    assert {way for way in WAYS if result["kills"].get(way, 0) >= kills * WAYS.count(way) / len(WAYS) / 2} == {*WAYS}
    assert (found["lost"], found["doubled"]) == (0, 0)
    assert found["run_again"] > kills / 2, "too few kills interrupted an attempt"
    assert found["one_time"] > kills / 10
    assert found["forgotten"] > kills, "retention removed too few settled triggers"
    assert found["poisoned"] < found["triggers"] / 50
    assert found["triggers"] > kills * 5


@pytest.mark.parametrize(("kills", "crews"), [(len(WAYS), 1), pytest.param(80, 2, marks=pytest.mark.campaign)])
def test_kills_lose_no_occurrence_and_fire_none_twice(tmp_path, kills, crews):
    judge(campaign_result(CAMPAIGN, tmp_path, kills, 1800, "--seed", "1", "--workers", str(crews)), kills)


@pytest.mark.campaign
def test_two_thousand_kills_lose_no_occurrence_and_fire_none_twice(tmp_path):
    judge(campaign_result(CAMPAIGN, tmp_path, 2000, timeout=7200), 2000)
