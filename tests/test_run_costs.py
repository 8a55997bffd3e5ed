"""The budgets of processor time: each folder has one, and an overrun is named."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.run_costs import BESIDE, BUDGETS, COLLECTION, TOP, describe, is_over, used_seconds
from tests.support.warm_parent import start

TESTS = Path(__file__).parent


def test_budgets_name_the_folders_with_tests():
    folders = {path.relative_to(TESTS).parts[0] for path in TESTS.glob("*/test_*.py")}
    budgets = tomllib.loads(BUDGETS.read_text())["seconds"]
    assert folders | {COLLECTION, TOP, BESIDE} == budgets.keys()


@pytest.mark.parametrize(("seconds", "over"), [(0, False), (100, False), (150, False), (150.1, True), (900, True)])
def test_overrun_begins_above_the_budget_and_half(seconds, over):
    assert is_over(seconds, 100) is over


def test_folder_over_the_budget_is_named():
    seconds, budgets = {"cheap": 10.0, "dear": 31.0, "new": 1.0}, {"cheap": 10, "dear": 20}
    assert describe(seconds, budgets, in_full=False) == [
        "    31.0 of  20  dear: more than its budget and half of it",
        "     1.0 of   0  new: more than its budget and half of it",
    ]
    assert len(describe(seconds, budgets, in_full=True)) == 3


WORK = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass"


def test_seconds_count_ended_children_of_both_kinds():
    before = used_seconds()
    subprocess.run([sys.executable, "-c", WORK], check=True)
    new_interpreter = used_seconds()
    assert new_interpreter - before >= 0.3
    assert start(["-c", WORK]).wait() == 0
    assert used_seconds() - new_interpreter >= 0.3
