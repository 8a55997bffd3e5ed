"""The comparison with other systems: its figures, and the reason of each omitted measurement."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.peers.comparison import parse
from benchmarks.peers.disk import file_system
from benchmarks.peers.environments import NotInstalled, python_of
from benchmarks.peers.process import ProgramFailed, parse_result
from benchmarks.peers.programs.work import PAYLOAD, Drain
from benchmarks.peers.promises import PROMISES, Promise
from benchmarks.peers.report import Results, against_craftcore, cell, percentile, promise_lines, reason_lines, table
from benchmarks.peers.rounds import arguments, installed, measure
from benchmarks.peers.systems import SYSTEMS, WORKS, System

HUEY = next(system for system in SYSTEMS if system.name == "Huey")


PROMISE = Promise(
    title="ours / theirs", above=("craftcore", "plain-100"), below=("Huey", "plain-100"), floor=2.5, aim=4
)


def rates(ours: list[float], theirs: list[float]) -> dict[tuple[str, str], list[float]]:
    return {("craftcore", "plain-100"): ours, ("Huey", "plain-100"): theirs}


def test_payload_has_two_hundred_bytes():
    assert len(json.dumps(PAYLOAD, separators=(",", ":"))) == 200


def test_ratio_is_the_median_of_the_ratios_of_each_round():
    assert PROMISE.ratio(rates([10, 30, 80], [10, 10, 20])) == (3, 1, 4)


def test_ratio_of_an_unmeasured_side_is_none():
    assert PROMISE.ratio({("craftcore", "plain-100"): [1.0]}) is None


def test_difference_is_not_divided():
    assert replace(PROMISE, is_difference=True).ratio(rates([54.0], [50.0])) == (4, 4, 4)


def test_ratio_of_latencies_is_that_of_their_medians():
    """Latencies are not measured in pairs, and one system may have more of them."""
    promise = replace(PROMISE, above=("craftcore", "latency"), below=("Huey", "latency"))

    assert promise.ratio({("craftcore", "latency"): [3, 2, 9], ("Huey", "latency"): [2, 1]}) == (2, 2, 2)


def test_ratios_that_miss_their_floor_come_first():
    promises = [replace(PROMISE, title=f"at least {floor}", floor=floor, aim=floor) for floor in (1, 3)]

    lines = list(
        promise_lines([*promises, replace(PROMISE, title="none", below=("DBOS", "plain-100"))], rates([4], [2]))
    )

    assert [line.split(" | ")[0] for line in lines[2:]] == ["| at least 3", "| at least 1", "| none"]
    assert [line.split(" | ")[-1] for line in lines[2:]] == ["misses its floor |", "meets its aim |", "not measured |"]


def test_upper_bound_is_met_from_below():
    promise = replace(PROMISE, floor=1.5, aim=1, at_most=True)

    [*_, line] = promise_lines([promise], rates([5], [4]))

    assert line == "| ours / theirs | 1.25 (1.25 to 1.25) | at most 1.5 | at most 1 | meets its floor |"


@pytest.mark.parametrize(
    ("floor", "aim", "verdict"),
    [
        (3, 4, "misses its floor"),
        (1, 4, "meets its floor"),
        (1, 2, "meets its aim"),
        (1, None, "meets its floor"),
        (None, 4, "misses its aim"),
    ],
)
def test_verdict_follows_the_bounds_that_a_ratio_has(floor, aim, verdict):
    assert replace(PROMISE, floor=floor, aim=aim).verdict(2) == verdict


def test_table_has_medians_with_their_spread_and_a_dash_for_missing_works():
    results = Results()
    for rate in (900.0, 1_300.0, 1_200.0):
        results.add("Huey", "plain-100", rate)

    [_, _, row] = table(results, ["Huey"], ["plain-100", "step-100"])

    assert row == "| Huey | 1,200 (900 to 1,300) | - |"


def test_latency_is_shown_in_milliseconds():
    results = Results()
    results.add("Huey", "latency", [0.002, 0.001, 0.003])

    assert cell(results, "Huey", "latency") == "2.0, p99 3.0"


def test_percentile_of_a_single_value_is_that_value():
    assert percentile([7.0], 99) == 7.0


def test_comparison_divides_craftcore_by_each_other_system():
    results = Results()
    results.add("craftcore", "plain-100", 5_000.0)
    results.add("Huey", "plain-100", 2_000.0)

    assert list(against_craftcore(results, ["craftcore", "Huey"], ["plain-100"]))[2:] == ["| Huey | 2.50 |"]


def test_system_that_fails_to_install_is_reported_with_its_reason():
    results = Results()

    def refuse(requirements: tuple[str, ...]) -> str:
        raise NotInstalled(f"no matching distribution for {requirements[0]}")

    pythons = installed([HUEY], refuse, results)

    assert pythons == {}
    assert cell(results, "Huey", "plain-100") == "failed"
    assert list(reason_lines(results)) == ["Huey: not installed: no matching distribution for huey==3.5.4"]


@pytest.mark.packaging
def test_interpreter_that_cannot_install_names_the_reason(tmp_path):
    """pip refuses this requirement before it contacts an index."""
    with pytest.raises(NotInstalled, match="Invalid requirement"):
        python_of(tmp_path, ("no requirement",))


def test_system_without_packages_runs_with_this_interpreter(tmp_path):
    assert python_of(tmp_path, ()) == sys.executable


def test_work_that_fails_is_reported_once_and_not_tried_again():
    results, tried = Results(), []

    def run(system: System, work: str) -> float:
        tried.append(work)
        if work == "plain-1":
            raise ProgramFailed("database is locked")
        return 100.0

    measure([HUEY], ["plain-100", "plain-1"], 3, run, results)

    assert tried == ["plain-100", "plain-1", "plain-100", "plain-100"]
    assert results.rates == {("Huey", "plain-100"): [100.0, 100.0, 100.0]}
    assert list(reason_lines(results)) == ["Huey, drain, 1 at once: database is locked"]


def test_rounds_of_all_systems_are_interleaved():
    """Each work is done by every system before the next work, and each round before the next round."""
    done, two = [], [system for system in SYSTEMS if system.name in ("craftcore", "Huey")]

    def run(system: System, work: str) -> float:
        done.append((system.name, work))
        return 1.0

    measure(two, ["plain-100", "emit-1"], 2, run, Results())

    once = [(name, work) for work in ("plain-100", "emit-1") for name in ("craftcore", "Huey")]
    assert done == once * 2


def test_width_that_suits_a_system_replaces_that_of_the_work():
    assert arguments(HUEY, "plain-100", "")[2] == "--width=10"


@pytest.mark.parametrize("out", ["", "no json", "[]", '{"rate": 1}', "true"])
def test_output_that_is_no_result_is_refused(out):
    with pytest.raises(ProgramFailed):
        parse_result(out)


@pytest.mark.parametrize(("out", "result"), [("12.5\n", 12.5), ("log\n7\n", 7.0), ("[0.1, 2]\n", [0.1, 2.0])])
def test_output_with_a_result_is_read(out, result):
    assert parse_result(out) == result


def test_drain_counts_from_the_first_handler_to_the_last_settlement():
    drain = Drain(2)

    for _ in range(2):
        drain.begin()
        drain.settle()

    assert drain.over.is_set()
    assert drain.rate() > 0


def test_systems_pin_packages_and_name_existing_works():
    for system in SYSTEMS:
        assert all("==" in requirement for requirement in system.requirements), system.name
        assert {*system.counts, *system.widths, *system.kinds} <= WORKS.keys(), system.name


def test_ratios_name_existing_measurements():
    offered = {(system.name, work) for system in SYSTEMS for work in system.counts}
    alone = ("history-", "boot-", "memory-")

    for promise in PROMISES:
        for side in (promise.above, promise.below):
            assert side in offered or side[1].startswith(alone), promise.title


def test_file_system_is_that_of_the_longest_mount():
    mounts = "/dev/a / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n"

    assert file_system(Path("/tmp/deeper"), mounts) == "tmpfs"
    assert file_system(Path("/var"), mounts) == "ext4"


def test_options_refuse_an_unknown_work(capsys):
    with pytest.raises(SystemExit):
        parse(["--only", "plain-100,sleep"])

    assert "'sleep' is not one of" in capsys.readouterr().err
