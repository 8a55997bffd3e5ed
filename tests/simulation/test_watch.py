"""A task that never ends: it needs bounded space and does not keep other rows."""

from __future__ import annotations

import pytest

from craftcore.config import RetentionSettings
from tests.support.hourly_watch import TWENTIETH, evenings, is_said


def test_hourly_task_stays_within_its_space_for_ever(tmp_path):
    """Three times the longest age, at a twentieth of the defaults."""
    seen = list(evenings(tmp_path, 15, TWENTIETH))

    settled, later = seen[5:10], seen[10:]
    for name in ("bytes", "records", "events", "triggers", "waits"):
        most = max(getattr(one, name) for one in settled)
        assert all(getattr(one, name) <= most * 1.01 for one in later), name
    assert later[-1].records <= 6 * 25
    assert not is_said(tmp_path / "agent.db", "secret-of-day-6."), "of somebody else, 8 days ago"
    assert is_said(tmp_path / "agent.db", "secret-of-day-14.")


@pytest.mark.campaign
def test_hourly_task_stays_within_its_space_for_ten_years(tmp_path):
    """`pytest -m campaign tests/simulation/test_watch.py -s`: 87,600 turns, and what the file holds each year."""
    seen = list(evenings(tmp_path, 3_650, RetentionSettings()))
    for one in seen[364::365]:
        print(one)

    settled, later = seen[180:365], seen[365:]
    for name in ("bytes", "records", "events", "triggers", "waits"):
        most = max(getattr(one, name) for one in settled)
        assert all(getattr(one, name) <= most * 1.01 for one in later), name
