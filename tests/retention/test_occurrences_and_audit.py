"""Retention of schedule occurrences and of the audit log, oldest rows first."""

from __future__ import annotations

from craftcore.audit.model import Actor
from craftcore.audit.store import audit
from craftcore.operations.executions import invalidate_record
from craftcore.storage.transaction import Transaction
from craftcore.triggers.settlement import Succeeded
from tests.support.attempts import begin, end
from tests.support.fakes import VirtualCore
from tests.support.retention_harness import DAY, HOUR, only, sweep
from tests.support.schedule_steps import account, put, run_all, tick

HISTORY_ONLY = only(history=90 * DAY)
AUDIT_ONLY = only(audit=90 * DAY)
ADA = Actor(uid=1000, name="ada")


def audit_rows(core: VirtualCore) -> list[int]:
    return [row["seq"] for row in core.rows("SELECT seq FROM audit_log ORDER BY seq")]


# Occurrences


def test_occurrence_is_removed_exactly_after_ninety_days(core, clock):
    put(core, when="every 1h")
    for _ in range(3):
        clock.advance(hours=1)
        tick(core)
        run_all(core)

    clock.advance(90 * DAY - 2 * HOUR - 1)
    assert sweep(core, HISTORY_ONLY).rows == 0
    clock.advance(1)
    assert dict(sweep(core, HISTORY_ONLY).removed) == {"schedule_occurrences": 1}
    assert len(account(core)) == 2


def test_occurrences_keep_the_newest_per_schedule_and_buffered_lines(core, clock):
    put(core, id="quick")
    put(core, id="slow")
    clock.advance(hours=1)
    tick(core)
    clock.advance(hours=1)
    tick(core)  # no earlier occurrence has run, so these are buffered
    assert [line[0] for line in account(core, "slow")] == ["fired", "buffered"]

    clock.advance(400 * DAY)
    assert sweep(core, HISTORY_ONLY).rows == 0, "the fired occurrences have not ended"
    run_all(core)
    sweep(core, HISTORY_ONLY)

    assert [line[0] for line in account(core, "slow")] == ["buffered"]
    assert [line[0] for line in account(core, "quick")] == ["buffered"]


def test_schedule_slot_does_not_fire_again_after_line_and_key_are_removed(core, clock):
    put(core, when="every 1h")
    clock.advance(hours=1)
    tick(core)
    run_all(core)
    clock.advance(hours=1)
    tick(core)
    run_all(core)
    first, second = account(core)
    clock.advance(100 * DAY)
    sweep(core)
    assert account(core) == [second]
    assert core.rows("SELECT 1 FROM triggers WHERE dedup_key LIKE :key", key=f"%:{first[1]:.0f}") == []

    tick(core)

    assert first not in account(core)


# The audit log


def test_audit_row_is_removed_exactly_after_ninety_days_and_the_anchor_advances(core, clock):
    core.do(audit, ADA, "release")
    clock.advance(DAY)
    core.do(audit, ADA, "release")

    clock.advance(89 * DAY - 1)
    assert sweep(core, AUDIT_ONLY).rows == 0
    clock.advance(1)
    assert dict(sweep(core, AUDIT_ONLY).removed) == {"audit_log": 1}
    assert audit_rows(core) == [2]

    clock.advance(DAY)
    sweep(core, AUDIT_ONLY)
    assert audit_rows(core) == []
    core.do(audit, ADA, "release")
    sweep(core, AUDIT_ONLY)
    assert audit_rows(core) == [3]


def test_audit_row_of_an_invalidation_is_kept_while_the_record_can_be_replayed(core, clock):
    begun = begin(core)
    end(core, begun, Succeeded(result_json="1"))
    core.do(invalidate_record, begun.id, ADA, "wrong city")
    core.do(audit, ADA, "release")
    clock.advance(400 * DAY)

    assert sweep(core, AUDIT_ONLY).rows == 0
    sweep(core, only(bodies=DAY, audit=90 * DAY))

    assert audit_rows(core) == []


def test_audit_rows_beyond_a_batch_are_removed_in_a_single_sweep(core, clock):
    def add_rows(tx: Transaction) -> None:
        for _ in range(1_100):
            audit(tx, ADA, "release")

    core.do(add_rows)
    clock.advance(90 * DAY)

    assert sweep(core, AUDIT_ONLY).removed["audit_log"] == 1_100
