"""Corrections of a wall clock that was ahead: delays keep their length, and absolute times stay unchanged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from craftcore.diagnostics.reasons.schedule_reasons import schedule_reasons
from craftcore.diagnostics.reasons.trigger_reasons import list_reasons
from craftcore.diagnostics.work import work_findings, work_of
from craftcore.retention.service import Retention
from craftcore.schedules.clock_guard import ClockTrust
from craftcore.schedules.clock_store import ClockStepStore
from craftcore.triggers.limit_keys import LimitKey
from craftcore.triggers.limit_wait_store import LimitWaitStore
from craftcore.triggers.model import HELD_UNTIL, LIMITED_UNTIL
from craftcore.triggers.operator_store import OperatorStore
from tests.support.fakes import NEW_YEAR, VirtualClock, VirtualCore
from tests.support.schedule_steps import (
    DAY,
    HOUR,
    a_schedule,
    account,
    declare,
    put,
    run_all,
    start_daemon,
    stored,
    tick,
)
from tests.support.task_steps import a_question, a_sleep, begin, enter_next, for_event, go_on, suspend
from tests.support.trigger_steps import BROKEN, ack, claim_all, emit, look, start_one

YEAR = 365 * DAY
TRUST = ClockTrust()

KEY = LimitKey("mail", '"a"')


def set_ahead(clock: VirtualClock, seconds: float = YEAR) -> None:
    clock.set_back(-seconds)


def correct_clock(core: VirtualCore, clock: VirtualClock, step: float = YEAR) -> int:
    """Set the clock back as a running daemon detects it, and return the number of moved rows."""
    clock.set_back(step)
    return core.do(TRUST.set_back, step)


def due_in(core: VirtualCore, trigger_id: str) -> float:
    return look(core, trigger_id).due_at - core.clock.now()


def test_trigger_emitted_while_the_clock_was_ahead_keeps_the_delay(core, clock):
    before = emit(core, delay=HOUR).id
    set_ahead(clock)
    at_once, later = emit(core).id, emit(core, delay=600).id
    clock.advance(60)

    assert correct_clock(core, clock) == 2

    assert due_in(core, at_once) == -60
    assert due_in(core, later) == 540
    assert due_in(core, before) == HOUR - 60
    assert [claim.id for claim in claim_all(core)] == [at_once]
    stamps = core.rows("SELECT max(created_at) AS created, max(updated_at) AS updated FROM triggers")[0]
    assert max(stamps["created"], stamps["updated"]) <= clock.now()


def test_trigger_with_a_given_time_is_not_moved_by_a_clock_step(core, clock):
    set_ahead(clock)
    far = emit(core, at=NEW_YEAR + 2 * YEAR).id
    soon = emit(core, at=NEW_YEAR + DAY).id

    correct_clock(core, clock)

    assert look(core, far).due_at == NEW_YEAR + 2 * YEAR
    assert look(core, soon).due_at == NEW_YEAR + DAY


def test_backoff_begun_while_the_clock_was_ahead_keeps_the_length(core, clock):
    broken = emit(core).id
    set_ahead(clock)
    ack(core, start_one(core), BROKEN)
    backoff = due_in(core, broken)
    assert 0 < backoff < DAY

    correct_clock(core, clock)

    assert due_in(core, broken) == pytest.approx(backoff)
    row = look(core, broken)
    assert row.fire_at == NEW_YEAR
    assert row.due_at == row.not_before


def test_waits_begun_while_the_clock_was_ahead_keep_the_length(core, clock):
    set_ahead(clock)
    now = clock.now()
    asleep, waits, asks = (begin(core) for _ in range(3))
    suspend(core, asleep, a_sleep(now + 60))
    suspend(core, waits, for_event("paid", until=now + 120))
    suspend(core, asks, a_question(until=now + 180))

    correct_clock(core, clock)

    timers = core.rows("SELECT due_at FROM triggers WHERE status = 'PENDING' ORDER BY due_at")
    assert [row["due_at"] - clock.now() for row in timers] == [60, 120, 180]
    waiting = core.rows("SELECT due_at FROM waits ORDER BY due_at")
    assert [row["due_at"] - clock.now() for row in waiting] == [60, 120, 180]
    assert [row["expires_at"] - clock.now() for row in core.rows("SELECT expires_at FROM questions")] == [180]
    clock.advance(60)
    assert enter_next(core).task.id == asleep.task.id


def test_sleep_until_a_given_time_is_not_moved_by_a_clock_step(core, clock):
    set_ahead(clock)
    running = begin(core)
    until = NEW_YEAR + YEAR + DAY
    suspend(core, running, replace(a_sleep(until), at_given=True))

    correct_clock(core, clock)

    assert core.rows("SELECT due_at FROM triggers WHERE status = 'PENDING'") == [{"due_at": until}]
    assert core.rows("SELECT due_at FROM waits") == [{"due_at": until}]


def test_deadline_of_a_task_begun_while_the_clock_was_ahead_is_moved(core, clock):
    old = begin(core, deadline=DAY)
    set_ahead(clock)
    new = begin(core, deadline=DAY)

    correct_clock(core, clock)

    deadlines = {row["id"]: row["deadline_at"] for row in core.rows("SELECT id, deadline_at FROM tasks")}
    assert deadlines == {old.task.id: NEW_YEAR + DAY, new.task.id: NEW_YEAR + DAY}


def test_wait_resolved_while_the_clock_was_ahead_resumes_at_once(core, clock):
    """The signal set the timer to a moment that is now a year away."""
    running = begin(core)
    suspend(core, running, for_event("paid", until=NEW_YEAR + 2 * YEAR))
    set_ahead(clock)
    core.do(core.tasks.signal, running.task.id, "paid")

    correct_clock(core, clock)

    assert enter_next(core).task.id == running.task.id


def test_trigger_follows_a_clock_corrected_in_two_steps(core, clock):
    set_ahead(clock, 2 * YEAR)
    later = emit(core, delay=600).id

    assert correct_clock(core, clock, YEAR) == 1
    assert correct_clock(core, clock, YEAR) == 1

    assert due_in(core, later) == 600


def test_clock_step_of_unknown_size_makes_no_trigger_early(core, clock):
    """The two rows were written at different times, and a step of unknown size fits each of them."""
    set_ahead(clock)
    first = emit(core, delay=600).id
    clock.advance(100)
    second = emit(core, delay=600).id
    clock.set_back(YEAR)

    assert core.do(TRUST.set_back) == 2

    assert (due_in(core, first), due_in(core, second)) == (500, 600)


def test_triggers_not_written_ahead_are_unchanged_by_a_clock_step(core, clock):
    rows = "SELECT * FROM triggers"
    emit(core, delay=HOUR)
    emit(core)
    before = core.rows(rows)
    clock.set_back(4)  # less than a step

    assert core.do(TRUST.set_back, 4.0) == 0
    assert core.rows(rows) == before


def test_boot_after_a_small_clock_step_moves_rows_before_reclaiming(core, clock):
    emitted = emit(core).id
    start_daemon(core)
    set_ahead(clock, HOUR)
    ack(core, start_one(core), BROKEN)
    clock.advance(HOUR)
    claimed = claim_all(core, epoch=1)
    assert [claim.id for claim in claimed] == [emitted]
    core.do(TRUST.store_time)
    clock.set_back(HOUR + 1800)

    start_daemon(core)

    assert due_in(core, emitted) <= 0
    kinds = core.rows("SELECT kind, seconds FROM clock_events")
    assert [(row["kind"], round(row["seconds"])) for row in kinds] == [("backward", HOUR + 1800)]


def test_boot_moves_rows_written_by_a_producer_with_a_clock_ahead(core, clock):
    start_daemon(core)
    set_ahead(clock)
    later = emit(core, delay=600).id
    clock.set_back(YEAR)

    start_daemon(core)

    assert due_in(core, later) == 600


def test_boot_far_behind_the_stored_time_moves_nothing_and_doctor_reports_triggers(core, clock, doctor_of):
    """The same happens on a machine without a battery, where the clock is wrong now and was right before."""
    set_ahead(clock)
    start_daemon(core)
    core.do(TRUST.store_time)
    later = emit(core, delay=600).id
    clock.set_back(YEAR)
    start_daemon(core)

    assert due_in(core, later) == YEAR + 600
    text = doctor_of(core)
    assert "it was ahead, and triggers (1) wait for a time set then" in text

    core.do(TRUST.trust)

    assert due_in(core, later) == 600
    assert "it was ahead" not in doctor_of(core)


def test_held_trigger_stays_held_after_a_clock_step(core, clock):
    set_ahead(clock)
    emitted = emit(core)
    [claim] = claim_all(core)
    core.do(OperatorStore().put_off, claim, "held")
    correct_clock(core, clock)

    assert look(core, emitted.id).due_at == HELD_UNTIL


def test_trigger_put_off_by_a_limit_is_due_at_once_after_a_clock_step(core, clock):
    set_ahead(clock)
    emitted = emit(core, payload={"to": "a"})
    [claim] = claim_all(core)
    core.do(lambda tx: LimitWaitStore().put_off(tx, [(claim, "to", KEY)], weight=60.0))
    core.do(lambda tx: tx.run("UPDATE limit_waits SET not_before = :now"))
    correct_clock(core, clock)
    assert look(core, emitted.id).due_at == LIMITED_UNTIL

    assert core.do(LimitWaitStore().put_back, KEY, 1) == 1

    assert look(core, emitted.id).due_at <= clock.now()


def test_next_turn_written_while_the_clock_was_ahead_is_due_after_the_step(core, clock):
    set_ahead(clock)
    running = begin(core)
    suspend(core, running, a_sleep(clock.now() + 60, name="continued"))
    other = begin(core)
    go_on(core, other, None)

    correct_clock(core, clock)

    assert enter_next(core).task.id == other.task.id


def test_trigger_written_ahead_is_explained_by_the_clock_in_why(core, clock):
    set_ahead(clock)
    delayed, absolute = emit(core, delay=600).id, emit(core, at=NEW_YEAR + 3 * YEAR).id
    clock.set_back(YEAR)

    with core.reading() as reader:
        codes = {
            trigger_id: list_reasons(
                reader, look(core, trigger_id), clock.now(), daemon_runs=True, priority_weight=60.0
            )[0].code
            for trigger_id in (delayed, absolute)
        }

    assert codes == {delayed: "clock", absolute: "not due"}


def test_count_ahead_excludes_triggers_with_a_given_time(core, clock):
    set_ahead(clock)
    emit(core, delay=600)
    emit(core, at=NEW_YEAR + 3 * YEAR)
    clock.set_back(YEAR)

    with core.reading() as reader:
        assert ClockStepStore().count_ahead(reader, clock.now()) == 1


# One-time schedules


def next_in(core: VirtualCore, schedule_id: str) -> float | None:
    next_at = stored(core, schedule_id).next_at
    return None if next_at is None else next_at - core.clock.now()


@pytest.mark.parametrize("when", ["in 17m", "In 17 minutes", "in  1020s"])
def test_once_schedule_declared_while_the_clock_was_ahead_keeps_the_delay(core, clock, when):
    set_ahead(clock)
    put(core, id="soon", when=when)
    clock.advance(20)

    assert correct_clock(core, clock) == 1

    assert next_in(core, "soon") == 1000
    assert stored(core, "soon").generation == 1
    clock.advance(999)
    assert tick(core).fired == 0
    clock.advance(1)
    assert tick(core).fired == 1
    assert stored(core, "soon").status == "FINISHED"
    assert run_all(core) == 1


def test_immediate_schedule_declared_while_the_clock_was_ahead_fires_at_once(core, clock):
    set_ahead(clock)
    put(core, when="immediate")

    correct_clock(core, clock)

    assert tick(core).fired == 1


@pytest.mark.parametrize("when", ["at 2028-03-01T12:00Z", "tomorrow at 9am", "every 2h"])
def test_schedule_with_an_absolute_or_recurring_time_is_not_moved_by_a_clock_step(core, clock, when):
    set_ahead(clock)
    before = put(core, when=when, timezone="UTC").schedule

    assert correct_clock(core, clock) == 0

    assert stored(core) == before


def test_once_schedule_declared_before_the_clock_went_ahead_is_not_moved(core, clock):
    put(core, when="in 2h")
    set_ahead(clock)
    core.do(core.schedules.pause, "job")
    before = stored(core)

    assert correct_clock(core, clock) == 0

    assert stored(core) == before


def test_paused_and_skipped_once_schedules_follow_a_clock_step(core, clock):
    set_ahead(clock)
    put(core, id="paused", when="in 17m")
    put(core, id="skipped", when="in 17m")
    core.do(core.schedules.pause, "paused")
    core.do(core.schedules.skip_next, "skipped")

    assert correct_clock(core, clock) == 2

    assert next_in(core, "paused") is None
    core.do(core.schedules.resume, "paused")
    assert next_in(core, "paused") == 1020
    clock.advance(1020)
    tick(core)
    assert account(core, "skipped") == [("skipped", clock.now(), 1, "skip-next")]
    assert [row[0] for row in account(core, "paused")] == ["fired"]


def test_once_schedule_declared_again_in_code_keeps_the_corrected_time(core, clock):
    set_ahead(clock)
    declare(core, a_schedule(when="in 17m"))
    correct_clock(core, clock)
    clock.advance(60)

    declare(core, a_schedule(when="in 17m"))

    assert next_in(core, "job") == 960


def test_once_schedule_follows_a_clock_corrected_in_two_steps(core, clock):
    set_ahead(clock, 2 * YEAR)
    put(core, when="in 10m")

    assert correct_clock(core, clock, YEAR) == 1
    assert correct_clock(core, clock, YEAR) == 1

    assert next_in(core, "job") == 600


def test_boot_moves_a_once_schedule_when_no_trigger_was_written_ahead(core, clock):
    set_ahead(clock)
    put(core, when="in 10m")
    clock.set_back(YEAR)

    start_daemon(core)

    assert next_in(core, "job") == 600
    assert [row["kind"] for row in core.rows("SELECT kind FROM clock_events")] == ["backward"]


def test_doctor_and_why_name_a_once_schedule_ahead_until_the_clock_is_trusted(core, clock, doctor_of):
    set_ahead(clock)
    start_daemon(core)
    core.do(TRUST.store_time)
    put(core, id="reminder", when="in 10m")
    clock.set_back(YEAR)
    start_daemon(core)

    def codes() -> list[str]:
        with core.reading() as reader:
            schedule = stored(core, "reminder")
            return [one.code for one in schedule_reasons(reader, schedule, clock.now(), daemon_runs=True)]

    assert next_in(core, "reminder") == YEAR + 600
    assert "one-time schedules (reminder) wait for a time set then" in doctor_of(core)
    assert "clock" in codes()

    core.do(TRUST.trust)

    assert next_in(core, "reminder") == 600
    assert "it was ahead" not in doctor_of(core)
    assert "clock" not in codes()


def test_corrupt_once_schedule_does_not_keep_others_from_following_a_clock_step(core, clock):
    set_ahead(clock)
    put(core, id="whole", when="in 10m")
    put(core, id="spoilt", when="in 10m")
    core.do(lambda tx: tx.run("UPDATE schedules SET payload_json = CAST(x'ff' AS TEXT) WHERE id = 'spoilt'"))

    assert correct_clock(core, clock) == 1

    assert next_in(core, "whole") == 600


@pytest.fixture
def doctor_of():
    """Return a function that returns the findings of `craftcore doctor` about the clock."""

    def findings(core: VirtualCore) -> str:
        with core.reading() as reader:
            work = work_of(
                reader,
                core.clock.now(),
                daemon_runs=False,
                lease_seconds=60.0,
                retention=Retention(core.config.retention),
            )
        return " ".join(str(finding) for finding in work_findings(work))

    return findings
