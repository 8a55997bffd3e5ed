"""A task that never ends: it needs bounded space and does not retain the rows of other tasks."""

from __future__ import annotations

import pytest

from craftcore.config import RetentionSettings
from tests.support.hourly_watch import TWENTIETH, file_contains, simulate_days


def test_hourly_task_stays_within_its_space_for_ever(tmp_path):
    """The run lasts three times the longest period of retention, at a twentieth of the defaults."""
    days = list(simulate_days(tmp_path, 15, TWENTIETH))

    settled, later = days[5:10], days[10:]
    for name in ("bytes", "records", "events", "triggers", "waits"):
        most = max(getattr(one, name) for one in settled)
        assert all(getattr(one, name) <= most * 1.01 for one in later), name
    assert later[-1].records <= 6 * 25
    assert not file_contains(tmp_path / "agent.db", "secret-of-day-6."), "the secret is 8 days old"
    assert file_contains(tmp_path / "agent.db", "secret-of-day-14.")


@pytest.mark.campaign
def test_hourly_task_stays_within_its_space_for_ten_years(tmp_path):
    """`pytest -m campaign tests/simulation/test_watch.py -s` runs 87,600 turns and prints the counts of each year."""
    days = list(simulate_days(tmp_path, 3_650, RetentionSettings()))
    for day in days[364::365]:
        print(day)

    settled, later = days[180:365], days[365:]
    for name in ("bytes", "records", "events", "triggers", "waits"):
        most = max(getattr(one, name) for one in settled)
        assert all(getattr(one, name) <= most * 1.01 for one in later), name
