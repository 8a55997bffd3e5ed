"""Retention of epochs: ninety days, except the newest hundred and those with references."""

from __future__ import annotations

from craftcore.retention.history_store import EPOCHS_KEPT
from craftcore.storage.facts import set_fact
from craftcore.triggers.settlement import Succeeded
from tests.support.activity_steps import DONE, an_activity
from tests.support.attempts import end, start_due
from tests.support.fakes import VirtualCore
from tests.support.many_starts import insert_starts
from tests.support.retention_harness import DAY, HOUR, only, sweep
from tests.support.task_steps import begin
from tests.support.trigger_steps import claim_all, emit

HISTORY_ONLY = only(history=90 * DAY)


def epochs(core: VirtualCore) -> list[int]:
    return [row["epoch"] for row in core.rows("SELECT epoch FROM epochs ORDER BY epoch")]


def test_epoch_is_removed_exactly_ninety_days_after_the_end(core, clock):
    insert_starts(core, EPOCHS_KEPT + 3)
    ended = clock.now()
    clock.advance(90 * DAY - 1)
    assert sweep(core, HISTORY_ONLY).rows == 0

    clock.advance(1)
    assert clock.now() - ended == 90 * DAY
    assert dict(sweep(core, HISTORY_ONLY).removed) == {"epochs": 3}

    assert epochs(core) == list(range(4, EPOCHS_KEPT + 4))


def test_epochs_keep_the_newest_hundred_at_any_age(core, clock):
    insert_starts(core, EPOCHS_KEPT + 1)
    clock.advance(4_000 * DAY)
    assert sweep(core, only(bodies=DAY)).rows == 0

    sweep(core, HISTORY_ONLY)

    assert epochs(core) == list(range(2, EPOCHS_KEPT + 2))


def test_epoch_with_a_reference_is_kept(core, clock):
    """A claim, an activity in doubt, a workflow, a clock event and a release refer to one epoch each."""
    insert_starts(core, EPOCHS_KEPT + 20)
    an_activity(core, begin(core, epoch=EPOCHS_KEPT + 20), DONE)
    core.do(lambda tx: tx.run("UPDATE activity_log SET epoch = 3"))
    core.do(lambda tx: tx.run("INSERT INTO workflows (name, epoch) VALUES ('greet', 5)"))
    core.do(lambda tx: tx.run("INSERT INTO clock_events (at, kind, seconds, epoch) VALUES (1, 'held', 1, 7)"))
    core.do(set_fact, "released_epoch", "9")
    emit(core)
    assert len(claim_all(core, epoch=11)) == 1
    clock.advance(100 * DAY)

    sweep(core, HISTORY_ONLY)

    assert epochs(core)[:5] == [3, 5, 7, 9, 11]
    assert epochs(core)[5:] == list(range(21, EPOCHS_KEPT + 21))


def test_record_keeps_the_epoch_of_the_attempt_and_all_later_epochs(core, clock):
    insert_starts(core, EPOCHS_KEPT + 20)
    for epoch in (4, 6):
        emit(core)
        end(core, start_due(core, epoch=epoch), Succeeded())
    clock.advance(100 * DAY)

    sweep(core, only(history=99 * DAY))

    assert epochs(core)[0] == 6, "the record of epoch 4 was removed first; the record of epoch 6 is the newest"


def test_epoch_of_a_killed_daemon_ages_from_the_start(core, clock):
    insert_starts(core, EPOCHS_KEPT + 1, ended=False)
    clock.advance(90 * DAY + HOUR)

    assert dict(sweep(core, HISTORY_ONLY).removed) == {"epochs": 1}
