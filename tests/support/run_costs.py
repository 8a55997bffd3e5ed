"""Seconds of processor of a run of the tests, by folder, beside what each folder may take.

Processor time is compared, never wall time: the machine is shared. Its processors are not always equally fast either.
So the budgets are in seconds of the machine that `docs/decisions/project.md` names, and a busy machine refuses
nothing.
"""

from __future__ import annotations

import os
import time
import tomllib
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support import warm_parent

TESTS = Path(__file__).parents[1]
BUDGETS = TESTS / "budgets.toml"
OVERRUN = 1.5
"""A folder, or the whole run, may take half as much again before it is named."""

STOLEN_MAX = 0.05
"""The share of time that other machines took from this one, above which its processor time says little."""

COLLECTION, TOP, BESIDE = "(collection)", "(files of tests/ itself)", "(beside the tests)"


class RunCosts:
    """A plugin: each process counts its tests, and the first one adds them up and prints them."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._begun = time.monotonic()
        self._stolen, self._passed = _stolen_and_passed()
        self._was_quiet = os.getloadavg()[0] < (os.cpu_count() or 1) / 2
        self._has_collected = False
        self._exceeded = False

    def pytest_collection_finish(self) -> None:
        self._has_collected = True  # the first process of a run with workers does not
        self._seconds[COLLECTION] += _used_seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        before = _used_seconds()
        result = yield
        folders = item.path.relative_to(TESTS).parts[:-1]
        self._seconds[folders[0] if folders else TOP] += _used_seconds() - before
        return result

    def pytest_testnodedown(self, node: object) -> None:
        """Add what a worker counted. One that crashed counted nothing."""
        for folder, seconds in getattr(node, "workeroutput", {}).get("seconds", {}).items():
            self._seconds[folder] += seconds

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, object, object]:
        warm_parent.close()
        times = os.times()
        seconds = times.user + times.system
        if self._has_collected:
            counted = sum(self._seconds.values())
            seconds += times.children_user + times.children_system - counted
        self._seconds[BESIDE] += seconds
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["seconds"] = dict(self._seconds)
        result = yield
        if self._exceeded:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        return result

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print what each folder took. A default run of all tests names the folders that take too much."""
        in_full = self._config.getoption("costs")
        whole_run = self._config.args_source is pytest.Config.ArgsSource.TESTPATHS and not self._config.option.keyword
        if not in_full and not whole_run:
            return
        budgets = tomllib.loads(BUDGETS.read_text())["seconds"]
        terminalreporter.section("seconds of processor", sep="-")
        for folder, seconds in sorted(self._seconds.items(), key=lambda item: -item[1]):
            budget = budgets.get(folder, 0)
            if in_full or seconds > OVERRUN * budget:
                over = ": more than its budget and half of it" if seconds > OVERRUN * budget else ""
                terminalreporter.line(f"{seconds:8.1f} of {budget:4}  {folder}{over}")
        self._judge(sum(self._seconds.values()), sum(budgets.values()), terminalreporter)
        self._exceeded = self._exceeded and in_full

    def _judge(self, seconds: float, budget: float, terminalreporter: pytest.TerminalReporter) -> None:
        stolen, passed = _stolen_and_passed()
        share = (stolen - self._stolen) / max(passed - self._passed, 1.0)
        took = f"in {time.monotonic() - self._begun:.0f} s; other machines took {share:.0%} of the time"
        terminalreporter.line(f"{seconds:8.1f} of {budget:4}  in all, {took}")
        if seconds > OVERRUN * budget:
            self._exceeded = self._was_quiet and share < STOLEN_MAX
            where = "" if self._exceeded else ", on a machine that did other work"
            terminalreporter.line(f"The whole takes more than its budget and half of it{where}.")


def _used_seconds() -> float:
    """Return the seconds of processor of this process and its ended children, those of the warm parent included."""
    times = os.times()
    forked = sum(warm_parent.seconds_of_children)
    return times.user + times.system + times.children_user + times.children_system + forked


def _stolen_and_passed() -> tuple[float, float]:
    """Return the ticks of processors that a hypervisor gave to others since the boot, and all of them (proc(5))."""
    ticks = [float(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return ticks[7], sum(ticks)
