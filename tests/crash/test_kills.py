"""Processes killed at every failpoint, checked by an independent checker."""

from __future__ import annotations

from typing import Any

import pytest

from tests.crash.child import KILLS, PRODUCER
from tests.crash.crews import campaign_result

CAMPAIGN = "tests.crash.campaign"


def judge(result: dict[str, Any], kills: int) -> None:
    assert result["wrong"] == []
    assert sum(result["kills"].values()) >= kills
    assert result["kills"][PRODUCER] > 0
    assert {way for way, count in result["kills"].items() if count >= max(1, kills // len(KILLS) // 2)} >= set(KILLS)
    assert (sum(result["lost"].values()), sum(result["doubled"].values())) == (0, 0)
    assert sum(result["interrupted"].values()) > kills / 2, "too few kills interrupted an attempt"
    assert result["poisoned"] < result["accepted"] / 20


@pytest.mark.parametrize(("kills", "crews"), [(20, 1), pytest.param(500, 2, marks=pytest.mark.campaign)])
def test_kills_lose_nothing_and_settle_nothing_twice(tmp_path, kills, crews):
    """The default run kills once or twice in each way. Its database has the shape (asyncio, 16)."""
    judge(campaign_result(CAMPAIGN, tmp_path, kills, 1800, "--seed", "2", "--workers", str(crews)), kills)


@pytest.mark.campaign
def test_five_thousand_kills_lose_nothing_and_settle_nothing_twice(tmp_path):
    judge(campaign_result(CAMPAIGN, tmp_path, 5000, 3600), 5000)
