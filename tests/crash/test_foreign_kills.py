"""Kills of engines and of foreign SQLite programs on one database: neither loses a committed row."""

from __future__ import annotations

from typing import Any

import pytest

from tests.crash.crews import campaign_result
from tests.crash.foreign_child import SHELL

CAMPAIGN = "tests.crash.foreign_campaign"


def judge(result: dict[str, Any], kills: int) -> None:
    found = result["found"]
    assert result["wrong"] == []
    assert sum(result["kills"].values()) >= kills
    assert result["kills"]["a foreign program"] > kills / 10
    assert (found["lost"], found["doubled"], found["foreign_lost"]) == (0, 0, 0)
    assert found["accepted"] > kills
    assert found["foreign"] > kills / 10


needs_shell = pytest.mark.skipif(SHELL is None, reason="sqlite3 is not installed (Debian: the package sqlite3)")


@needs_shell
@pytest.mark.parametrize("kills", [10, pytest.param(60, marks=pytest.mark.campaign)])
def test_kills_beside_foreign_programs_lose_nothing(tmp_path, kills):
    judge(campaign_result(CAMPAIGN, tmp_path, kills, 1800, "--seed", "1"), kills)


@pytest.mark.campaign
@needs_shell
def test_two_thousand_kills_beside_foreign_programs_lose_nothing(tmp_path):
    judge(campaign_result(CAMPAIGN, tmp_path, 2000, 7200), 2000)
