"""Tasks killed at every place: steps run once, turns count once, and waits end once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.crash.child import PRODUCER
from tests.crash.crews import campaign_result, command_result
from tests.crash.task_child import KILL_PLACES

MATRIX = "tests.crash.task_matrix"
CAMPAIGN = "tests.crash.task_campaign"


def judge_matrix(result: dict[str, Any], cuts: int, relays: int = 10) -> None:
    found = result["found"]
    assert result["wrong"] == []
    assert sum(result["cuts"].values()) >= cuts
    assert {place for place in KILL_PLACES if result["cuts"].get(place)} == {*KILL_PLACES}
    assert result["pairs"] > 0
    assert result["relays"] == len(result["kills"]) > relays, "the long chat is killed at each place that it passes"
    assert found["cut_off"] > cuts / 2, "a kill that interrupts no attempt proves nothing"
    assert found["run_again"] > cuts / 10
    assert found["poisoned"] == 0


def judge_campaign(result: dict[str, Any], kills: int) -> None:
    found = result["found"]
    assert result["wrong"] == []
    assert sum(result["kills"].values()) >= kills
    assert result["kills"][PRODUCER] > 0
    assert len(result["kills"]) > len(KILL_PLACES) / 2
    assert found["cut_off"] > kills / 2, "a kill that interrupts no attempt proves nothing"
    assert found["run_again"] > kills / 30
    assert found["tasks"] > kills
    assert found["poisoned"] < found["tasks"] / 20


def test_workflow_ends_equally_after_a_kill_at_any_place(tmp_path):
    """The test runs a fortieth of the passes, and each place at least once.

    There is one crew, because a second crew would stop the same lives again.
    """
    some = ("--part", "40", "--pairs", "1", "--workers", "1")
    judge_matrix(command_result(MATRIX, tmp_path, 1800, *some), len(KILL_PLACES), relays=0)


@pytest.mark.acceptance
def test_workflow_ends_equally_after_a_kill_at_each_place(tmp_path):
    judge_matrix(command_result(MATRIX, tmp_path, 1800), 300)


@pytest.mark.parametrize("kills", [20, pytest.param(60, marks=pytest.mark.campaign)])
def test_kills_repeat_no_completed_step_and_lose_no_answer(tmp_path, kills):
    judge_campaign(campaign_result(CAMPAIGN, tmp_path, kills, 1800, "--seed", "1"), kills)


@pytest.mark.campaign
def test_pass_of_every_place_in_every_shape_ends_equally(tmp_path):
    judge_matrix(command_result(MATRIX, tmp_path, 4 * 3600, "--thorough", "--pairs", "20"), 5000)


@pytest.mark.campaign
def test_pair_of_places_ends_equally(tmp_path):
    judge_matrix(command_result(MATRIX, tmp_path, 12 * 3600, "--pairs", "all"), 300)


@pytest.mark.campaign
def test_two_thousand_kills_repeat_no_completed_step_and_lose_no_answer(tmp_path):
    judge_campaign(campaign_result(CAMPAIGN, tmp_path, 2000, 7200), 2000)
