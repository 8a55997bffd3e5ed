"""Kills around the call of an irreversible action: no effect is lost or repeated without a report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from craftcore import OnUnknown
from tests.crash.act_app import CRASH, WHERE
from tests.crash.act_child import POINTS
from tests.crash.act_matrix import OTHER_PLANS, TABLE_PLANS, THOROUGH_PLANS, read_tables, tables
from tests.crash.child import FROM_OUTSIDE, PRODUCER
from tests.crash.crews import campaign_result, command_result

MATRIX = "tests.crash.act_matrix"
CAMPAIGN = "tests.crash.act_campaign"

DOCUMENT = Path(__file__).parents[2] / "docs" / "explanation" / "irreversible-actions.md"

VALID_PAIRS = 16
"""Pairs of a policy and a kind of provider that may be declared."""


def judge_matrix(result: dict[str, Any], cells: int, kills: int) -> None:
    found = result["found"]
    assert result["wrong"] == []
    assert (found["duplicates"], found["losses"]) == (0, 0)
    assert len(result["cells"]) == cells
    assert result["kills"] >= kills, "each cell with a crash kills"
    assert result["stops"] >= kills
    assert found["doubts"] > cells / 2, "a cell without a doubt proves nothing"


def judge_campaign(result: dict[str, Any], kills: int) -> None:
    found = result["found"]
    assert result["wrong"] == []
    assert (found["duplicates"], found["losses"]) == (0, 0)
    assert sum(result["kills"].values()) >= kills
    places = {f"{CRASH}@{where}" for where in WHERE}
    assert len(places & {*result["kills"]}) >= min(len(places), max(2, kills // 5))  # the tasks decide at which places
    assert len({*POINTS} & {*result["kills"]}) > min(len(POINTS) / 2, kills / 2)  # two kills may be at one point
    assert min(result["kills"][place] for place in (FROM_OUTSIDE, PRODUCER)) > 0
    assert found["acts"] > 2 * kills
    assert found["doubts"] > kills, "a kill without a doubt proves nothing"
    assert min(found[name] for name in ("answers", "gave_up", "reconciled", "resent", "assumed")) > 0
    assert found["effects"] > found["acts"] / 2


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return command_result(MATRIX, tmp_path_factory.mktemp("sample"), 1800, "--sample", "--workers", "1")


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return command_result(MATRIX, tmp_path_factory.mktemp("matrix"), 1800)


def documented_tables() -> str:
    _, heading, rest = DOCUMENT.read_text(encoding="utf-8").partition("### ")
    return heading + rest


def test_kill_around_a_call_never_loses_or_repeats_an_effect_unreported(sample):
    """The sample has two of the pairs in each row, which is an eighth of the cells."""
    judge_matrix(sample, 2 * len([*TABLE_PLANS, *OTHER_PLANS]), 2 * len(WHERE))
    crashed = {name.partition(":")[0] for name in sample["cells"] if f"{CRASH}@" in name}
    assert len(crashed) == 2 * len(WHERE)
    assert {action.partition(".")[0] for action in crashed} == {*OnUnknown}


@pytest.mark.acceptance
def test_kill_in_each_cell_never_loses_or_repeats_an_effect_unreported(matrix):
    judge_matrix(matrix, VALID_PAIRS * len([*TABLE_PLANS, *OTHER_PLANS]), VALID_PAIRS * len(WHERE))


def test_tables_in_the_docs_match_the_matrix(sample):
    expected = read_tables(documented_tables())

    found = {name: outcome for name, outcome in sample["cells"].items() if name in expected}

    assert len(expected) == VALID_PAIRS * len(TABLE_PLANS)
    assert len(found) == len(expected) / 8
    assert found == {name: expected[name] for name in found}, f"run python -m {MATRIX}, and copy its tables"


@pytest.mark.acceptance
def test_tables_in_the_docs_match_the_whole_matrix(matrix):
    printed = tables(matrix["cells"], matrix["refused"])

    assert documented_tables().strip() == printed.strip(), f"run python -m {MATRIX}, and copy its tables"


@pytest.mark.parametrize(("kills", "crews"), [(8, 1), pytest.param(80, 2, marks=pytest.mark.campaign)])
def test_kills_lose_and_repeat_no_effect_unreported(tmp_path, kills, crews):
    """The tasks of seed 8 crash at two or more places around a call, on one database. The matrix has each place."""
    judge_campaign(campaign_result(CAMPAIGN, tmp_path, kills, 1800, "--seed", "8", "--workers", str(crews)), kills)


@pytest.mark.campaign
def test_cell_in_every_shape_with_more_faults_loses_nothing_unreported(tmp_path):
    result = command_result(MATRIX, tmp_path, 4 * 3600, "--thorough")
    judge_matrix(result, VALID_PAIRS * len([*TABLE_PLANS, *OTHER_PLANS, *THOROUGH_PLANS]), 4 * VALID_PAIRS * len(WHERE))


@pytest.mark.campaign
def test_two_thousand_kills_lose_and_repeat_no_effect_unreported(tmp_path):
    judge_campaign(campaign_result(CAMPAIGN, tmp_path, 2000, 7200), 2000)
