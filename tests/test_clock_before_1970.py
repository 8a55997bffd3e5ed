"""A machine whose clock is before 1970: relative moments are refused with that reason, and all else works."""

from __future__ import annotations

import pytest

from craftcore.clock import BEFORE_1970
from craftcore.errors import InvalidInput, ScheduleInvalid
from craftcore.schedules.model import Origin, ScheduleSpec
from craftcore.triggers.model import TriggerSpec, TriggerStatus
from tests.support.fakes import VirtualClock, VirtualCore


@pytest.fixture
def core(tmp_path):
    return VirtualCore(tmp_path / "old.db", VirtualClock(-10 * 86_400.0))


def test_trigger_is_accepted_before_1970(core):
    emitted = core.do(core.triggers.emit, TriggerSpec(workflow="w"))

    assert (emitted.created, emitted.status) == (True, TriggerStatus.PENDING)


@pytest.mark.parametrize("options", [{"delay": 60}, {"delay": "10m"}, {"at": "in 10m"}, {"at": "9am"}])
def test_moment_from_now_before_1970_is_refused_with_the_clock_as_reason(core, options):
    with pytest.raises(InvalidInput, match=BEFORE_1970):
        core.triggers.accept(TriggerSpec(workflow="w", **options))


@pytest.mark.parametrize("when", ["in 10m", "tomorrow at 0:30"])
def test_schedule_from_now_before_1970_is_refused_with_the_clock_as_reason(core, when):
    with pytest.raises(ScheduleInvalid, match=BEFORE_1970):
        core.schedules.check(ScheduleSpec(id="s", when=when, workflow="w"), Origin.OPERATOR)
