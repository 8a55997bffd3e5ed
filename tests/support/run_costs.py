"""The processor time of a test run by folder, compared with the budget of each folder.

Wall time is not compared, because the machine is shared. The speed of its processors also varies. So the budgets are in
seconds of the machine that `docs/decisions/project.md` names, and a busy machine fails no run.
"""

from __future__ import annotations

import os
import time
import tomllib
from collections import defaultdict
from collections.abc import Generator, Mapping
from pathlib import Path

import pytest

from tests.support import warm_parent

TESTS = Path(__file__).parents[1]
BUDGETS = TESTS / "budgets.toml"
OVERRUN = 1.5
"""The multiple of its budget above which a folder, or the whole run, is reported."""

STOLEN_MAX = 0.05
"""The share of time taken by other machines above which the processor time of this one is not reliable."""

COLLECTION, TOP, BESIDE = "(collection)", "(files of tests/ itself)", "(beside the tests)"


class RunCosts:
    """A plugin that counts the costs of tests in each process, and prints the sums of all."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._begun = time.monotonic()
        self._stolen, self._passed = _stolen_and_passed()
        self._was_quiet = os.getloadavg()[0] < (os.cpu_count() or 1) / 2
        self._has_collected = False
        self._exceeded = False

    def pytest_collection_finish(self) -> None:
        self._has_collected = True  # in a run with workers, the controller does not collect
        self._seconds[COLLECTION] += used_seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        before = used_seconds()
        result = yield
        folders = item.path.relative_to(TESTS).parts[:-1]
        self._seconds[folders[0] if folders else TOP] += used_seconds() - before
        return result

    def pytest_testnodedown(self, node: object) -> None:
        """Add the costs of a worker. A crashed worker has none."""
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
        """Print the costs of folders: those over their budget in a default run, and all with `--costs`."""
        in_full = self._config.getoption("costs")
        is_default = self._is_default_run()
        if not in_full and not is_default:
            return
        budgets = tomllib.loads(BUDGETS.read_text())["seconds"] if is_default else {}
        terminalreporter.section("seconds of processor", sep="-")
        for line in describe(self._seconds, budgets, in_full=in_full):
            terminalreporter.line(line)
        stolen, passed = _stolen_and_passed()
        share = (stolen - self._stolen) / max(passed - self._passed, 1.0)
        took = f"{time.monotonic() - self._begun:.0f} s; other machines took {share:.0%} of the time"
        terminalreporter.line(f"In all {sum(self._seconds.values()):.0f} seconds of processor in {took}.")
        if is_default and is_over(sum(self._seconds.values()), sum(budgets.values())):
            is_quiet = self._was_quiet and share < STOLEN_MAX
            self._exceeded = in_full and is_quiet
            terminalreporter.line(
                f"The budget is {sum(budgets.values())} seconds: the run takes more than it and half of it"
                + ("." if is_quiet else ", on a machine that did other work.")
            )

    def _is_default_run(self) -> bool:
        """Return whether no option selected tests."""
        options = self._config.option
        if options.collectonly:
            return False
        by_default = self._config.getini("addopts")
        is_marked = options.markexpr != by_default[by_default.index("-m") + 1]
        return self._config.args_source is pytest.Config.ArgsSource.TESTPATHS and not options.keyword and not is_marked


def is_over(seconds: float, budget: float) -> bool:
    """Return whether a folder or a run exceeds one and a half times its budget."""
    return seconds > OVERRUN * budget


def describe(seconds: Mapping[str, float], budgets: Mapping[str, float], *, in_full: bool) -> list[str]:
    """Return a line for each folder, the most expensive first. Without `in_full`, only overruns have a line."""
    lines = []
    for folder, taken in sorted(seconds.items(), key=lambda item: -item[1]):
        line = f"{taken:8.1f}  {folder}"
        if budgets:
            budget = budgets.get(folder, 0)
            line = f"{taken:8.1f} of {budget:3}  {folder}"
            if is_over(taken, budget):
                line += ": more than its budget and half of it"
            elif not in_full:
                continue
        lines.append(line)
    return lines


def used_seconds() -> float:
    """Return the seconds of processor of this process and its ended children, those of the warm parent included."""
    times = os.times()
    forked = sum(warm_parent.seconds_of_children)
    return times.user + times.system + times.children_user + times.children_system + forked


def _stolen_and_passed() -> tuple[float, float]:
    """Return the ticks of processors that a hypervisor gave to others since the boot, and all of them (proc(5))."""
    ticks = [float(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return ticks[7], sum(ticks)
