"""The rates of an hour, read from real records: their values, their cost, and incomplete minutes."""

from __future__ import annotations

from pathlib import Path

from craftcore.executions.model import Status
from craftcore.schedules.clock_store import record
from craftcore.storage.transaction import Transaction
from craftcore.web.hour_rates import HourRates
from craftcore.web.rates_store import RatesStore
from craftcore.web.spark import SAMPLED, Rates
from tests.executions.test_listing_plans import fill, plans_of
from tests.support.fakes import NEW_YEAR, VirtualClock, VirtualCore
from tests.support.filled_cores import filled_core
from tests.triggers.test_claim_plans import steps_of, undone

MANY, FEW = 50_000, 5_000

INSERT = """
INSERT INTO executions (id, trigger_id, attempt, epoch, workflow, created_at, ended_at, status, envelope_json,
                        envelope_hash, error_code)
VALUES ('exec-' || :id || '.1', :id, 1, 1, 'greet', :at, :at + :seconds, :status, '{}', 'sha256:0', :code)
"""


def add(core: VirtualCore, id: str, at: float, seconds: float | None, status: Status) -> None:
    code = "AGENT_TIMEOUT" if status is Status.ERROR else None
    with core.transaction() as tx:
        tx.run(INSERT, id=id, at=at, seconds=seconds, status=status, code=code)


def read(core: VirtualCore, rates: HourRates) -> Rates:
    with core.reading() as reader:
        return rates.read(reader, core.clock.now())


def make_records(path: Path, number: int) -> VirtualCore:
    """Make a database with this number of records, one a second."""
    core = VirtualCore(path, VirtualClock())
    with core.transaction() as tx:
        fill(tx, "fine-", number, Status.SUCCESS)
    return core


many_records, few_records = filled_core(make_records, MANY), filled_core(make_records, FEW)


def test_rates_of_a_database_without_records_are_empty(core):
    rates = read(core, HourRates())

    assert (rates.ended, rates.failed, rates.open, rates.median) == (0, 0, 0, None)
    assert len(rates.minutes) == 60


def test_rates_count_ended_failed_and_open_attempts(core, clock):
    now = clock.now()
    add(core, "old", now - 4000, 1.0, Status.SUCCESS)
    add(core, "fine", now - 1800, 2.0, Status.SUCCESS)
    add(core, "bad", now - 1799, 4.0, Status.ERROR)
    add(core, "long", now - 1200, None, Status.INCOMPLETE)
    add(core, "waits", now - 5, 6.0, Status.SUSPENDED)

    rates = read(core, HourRates())

    assert (rates.ended, rates.failed, rates.open) == (3, 1, 1)
    assert (rates.median, rates.p95) == (4.0, 6.0)
    assert [minute.begun for minute in rates.minutes if minute.begun] == [2, 1, 1]


def test_full_minute_is_read_again_until_its_attempts_have_ended(core, clock):
    rates = HourRates()
    add(core, "long", clock.now() - 600, None, Status.INCOMPLETE)
    assert read(core, rates).open == 1

    with core.transaction() as tx:
        tx.run("UPDATE executions SET status = 'success', ended_at = created_at + 700 WHERE trigger_id = 'long'")

    found = read(core, rates)
    assert (found.ended, found.open, found.median) == (1, 0, 700.0)


def test_hour_moves_with_the_clock_and_includes_new_records(core, clock):
    rates = HourRates()
    add(core, "first", clock.now(), 1.0, Status.SUCCESS)
    assert read(core, rates).ended == 1

    clock.advance(minutes=59)
    add(core, "second", clock.now(), 1.0, Status.SUCCESS)
    assert read(core, rates).ended == 2

    clock.advance(minutes=2)
    assert read(core, rates).ended == 1
    clock.advance(hours=2)
    assert read(core, rates).ended == 0


def test_rates_equal_those_of_a_fresh_reader_at_each_minute(core, clock):
    kept = HourRates()
    for number in range(150):
        add(core, str(number), clock.now(), 0.5, (Status.SUCCESS, Status.ERROR)[number % 7 == 0])
        clock.advance(seconds=41)
        if number % 10 == 0:
            assert read(core, kept) == read(core, HourRates())


def test_rates_are_uncertain_for_an_hour_after_the_clock_went_back(core, clock):
    rates = HourRates()
    assert not read(core, rates).uncertain

    core.do(record, None, "backward", 600.0)

    assert read(core, rates).uncertain
    clock.advance(minutes=61)
    assert not read(core, rates).uncertain


def test_kept_minutes_are_dropped_after_an_older_copy_replaced_the_file(core, clock, tmp_path):
    rates = HourRates()
    copy = VirtualCore(tmp_path / "copy.db", clock)
    for id in ("a", "b", "c"):
        add(core, id, clock.now() - 300, 1.0, Status.SUCCESS)
    add(copy, "a", clock.now() - 200, 1.0, Status.SUCCESS)
    assert read(core, rates).ended == 3

    assert read(copy, rates).ended == 1
    copy.close()


def all_statements(tx: Transaction) -> None:
    store = RatesStore()
    store.find_bounds(tx)
    store.created_at(tx, 7)
    store.minute(tx, 0.0, 1, 200)
    store.find_step_back(tx)


def test_rates_are_read_by_the_primary_key_and_partial_indexes(many_records):
    plan = set(plans_of(many_records, all_statements))

    assert plan == {
        "SEARCH executions",  # minimum and maximum of the key
        "SEARCH executions USING INTEGER PRIMARY KEY (rowid>?)",
        "SEARCH executions USING INTEGER PRIMARY KEY (rowid=?)",
        "SEARCH executions USING COVERING INDEX executions_incomplete (seq>? AND seq<?)",
        "SEARCH executions USING COVERING INDEX executions_error (seq>? AND seq<?)",
        "CO-ROUTINE (subquery-1)",
        "SCAN clock_events",  # reads at most 100 of at most 1,000 rows
        "SEARCH (subquery-1)",
    }


def test_cost_of_the_rates_does_not_grow_with_the_records(few_records, many_records):
    def work(core: VirtualCore, number: int) -> int:
        with undone(core) as tx:
            return steps_of(tx, lambda: HourRates().read(tx, NEW_YEAR + number))

    assert work(many_records, MANY) <= 1.4 * work(few_records, FEW)


def test_second_read_costs_a_single_minute(many_records):
    with undone(many_records) as tx:
        rates = HourRates()
        first = steps_of(tx, lambda: rates.read(tx, NEW_YEAR + MANY))
        second = steps_of(tx, lambda: rates.read(tx, NEW_YEAR + MANY + 1))

    assert second < first / 5


def test_busy_minute_is_sampled(many_records):
    with many_records.reading() as reader:
        rates = HourRates().read(reader, NEW_YEAR + MANY)

    assert rates.sampled
    assert max(len(minute.durations) for minute in rates.minutes) == SAMPLED
    assert 3540 <= rates.ended <= 3600
