"""Crashes of a turn that completes nothing between them: the turn becomes a suspect, and then poison."""

from __future__ import annotations

import pytest

from craftcore.triggers.model import Trigger, TriggerStatus
from craftcore.triggers.settlement import must_run_alone
from tests.support.fakes import VirtualCore
from tests.support.task_steps import Running, begin, complete, enter
from tests.support.trigger_steps import claim_all, look


def crash(core: VirtualCore, running: Running, epoch: int) -> Trigger:
    """Simulate a killed process and the boot of the next epoch, and return the trigger."""
    core.do(core.claims.reclaim, epoch + 1)
    return look(core, running.claim.id)


def enter_again(core: VirtualCore, epoch: int) -> Running:
    [claim] = claim_all(core, epoch=epoch)
    running = enter(core, claim, epoch=epoch)
    assert isinstance(running, Running)
    return running


def test_turn_that_completes_a_step_before_each_crash_is_never_a_suspect(core):
    running = begin(core)
    for epoch in range(1, 11):
        complete(core, running, f"step:{epoch}")
        trigger = crash(core, running, epoch)
        assert (trigger.status, trigger.crash_count, trigger.attempts) == (TriggerStatus.PENDING, 0, 0)
        running = enter_again(core, epoch + 1)
        assert not must_run_alone(running.claim)


def test_completed_step_resets_the_crash_count(core):
    running = begin(core)
    counts = []
    for epoch in range(1, 6):
        if epoch == 3:
            complete(core, running)
        counts.append(crash(core, running, epoch).crash_count)
        running = enter_again(core, epoch + 1)
    assert counts == [1, 2, 0, 1, 2]


@pytest.mark.parametrize("is_alone", [True, False])
def test_step_before_a_crash_resets_the_count_of_no_later_crash(core, is_alone):
    running = begin(core)
    complete(core, running)
    crash(core, running, 1)
    for epoch in (2, 3, 4):
        running = enter_again(core, epoch)
        if is_alone and epoch == 4:
            core.do(lambda tx: tx.run("UPDATE triggers SET started_alone = 1"))
        trigger = crash(core, running, epoch)
    assert (trigger.status, trigger.crash_count) == (TriggerStatus.DEAD if is_alone else TriggerStatus.PENDING, 3)


def test_failed_attempts_still_count_after_the_crash_count_is_reset(core):
    running = begin(core)
    core.do(lambda tx: tx.run("UPDATE triggers SET attempts = attempts + 2"))
    for epoch in (1, 2):
        crash(core, running, epoch)
        running = enter_again(core, epoch + 1)
    complete(core, running)
    trigger = crash(core, running, 3)
    assert (trigger.attempts, trigger.crash_count) == (2, 0)
