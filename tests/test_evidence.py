"""The page of evidence: it has only measured rows, and its command reports lost work."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.evidence.__main__ import PAGE, options, write
from tests.evidence.experiments import EXPERIMENTS
from tests.evidence.model import Experiment, Findings, load
from tests.evidence.page import page
from tests.temporal.kill_cases import CASES

BY_NAME = {experiment.name: experiment for experiment in EXPERIMENTS}


def with_result(name: str, found: Findings) -> Experiment:
    """Return an experiment of the page that yields another result."""
    return BY_NAME[name]._replace(run=lambda count, seed, folder: replace(found, count=count))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "evidence.md"


def test_page_of_the_repository_is_made_of_its_rows():
    assert PAGE.read_text() == page(EXPERIMENTS, load(PAGE.with_suffix(".json")))


def test_commands_of_the_page_have_options_that_exist():
    """Each line of the block in docs/explanation/evidence.md is a python command."""
    block = PAGE.read_text().partition("```sh\n")[2].partition("```")[0]

    commands = [line.partition("#")[0].split() for line in block.splitlines()]

    assert [command[:3] for command in commands] == [["python", "-m", "tests.evidence"]] * 3
    assert [options(command[3:]).full for command in commands] == [False, True, True]


def test_measured_row_is_on_the_page_with_its_seed_and_commit(path):
    code = write([with_result("triggers", Findings(more="7 triggers"))], path, seed=42, full=True)

    [row] = load(path.with_suffix(".json")).values()
    text = path.read_text()
    assert code == 0
    assert "| triggers | 10,000 SIGKILLs | 0 | 0 | 0 | 42 | 0 s |" in text
    assert f"| `triggers` | {row.commit} | {row.date} | {row.python} | {row.sqlite} |" in text
    assert "7 triggers" in text


def test_experiment_that_was_not_run_is_named_as_such(path):
    write([with_result("triggers", Findings())], path, seed=1, full=False)

    missing = path.read_text().partition("Not run yet:")[2].partition("\n\nWhere a checker")[0].split("\n- ")

    assert "simulated years" in missing
    assert "triggers" not in missing
    assert len(missing) == len(EXPERIMENTS)


def test_refreshed_row_replaces_the_old_row_and_no_other(path):
    write([with_result("triggers", Findings()), with_result("tasks", Findings())], path, seed=1, full=False)
    write([with_result("triggers", Findings())], path, seed=2, full=True)

    rows = load(path.with_suffix(".json"))

    assert {name: (row.seed, row.count) for name, row in rows.items()} == {
        "tasks": (1, BY_NAME["tasks"].quick),
        "triggers": (2, BY_NAME["triggers"].full),
    }
    assert json.loads(path.with_suffix(".json").read_text())[0]["name"] == "tasks"


@pytest.mark.parametrize(
    "found", [Findings(lost=1), Findings(repeated=1), Findings(wrong=["a question is open without a notification"])]
)
def test_anything_lost_or_repeated_fails_the_command_and_is_on_the_page(path, found, capsys):
    code = write([with_result("tasks", found), with_result("triggers", Findings())], path, seed=1, full=False)

    assert code == 1
    assert f"| {found.lost} | {found.repeated} | {len(found.wrong)} |" in path.read_text()
    for wrong in found.wrong:
        assert f"- tasks: `{wrong}`" in path.read_text()
        assert f"WRONG (seed 1): {wrong}" in capsys.readouterr().out


def test_full_size_is_as_large_as_promised():
    kills = {name: one.full for name, one in BY_NAME.items() if name.startswith("actions-")}

    assert len(kills) == 4
    assert min(kills.values()) >= 10_000
    assert min(BY_NAME[name].full for name in ("tasks", "triggers", "schedules")) >= 10_000
    assert BY_NAME["power-cuts"].full >= 25_000
    assert BY_NAME["years"].full >= 20
    assert BY_NAME["emits"].full >= 1_000
    assert BY_NAME["cluster"].full >= 1_000 * len(CASES)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        pytest.param("triggers", 20, marks=pytest.mark.acceptance),
        pytest.param("actions-ask", 5, marks=pytest.mark.acceptance),
        pytest.param("cluster", 5, marks=pytest.mark.cluster),
        ("emits", 3),
        ("power-cuts", 8),
        ("full-disk", 2),
        ("failed-flush", 2),
    ],
)
def test_small_experiment_loses_and_repeats_nothing(tmp_path, name, count):
    found = BY_NAME[name].run(count, 1, tmp_path)

    assert (found.lost, found.repeated, found.wrong) == (0, 0, [])
    assert found.count >= count
    assert found.more


def test_campaign_that_does_not_end_is_a_fault(tmp_path):
    found = BY_NAME["triggers"].run(-1, "no seed", tmp_path)  # type: ignore[arg-type]

    assert not found.holds
    assert "tests.crash.campaign ended with 2" in found.wrong[0]
