"""Starts of rate-limited workflows, read back after a restart."""

from __future__ import annotations

from typing import Any

import pytest

from craftcore import App, Rate
from craftcore.engine.limits.restart import restore_rate_history
from craftcore.engine.limits.workflow_limits import Limits
from craftcore.executions import starts_store
from craftcore.executions.starts_store import StartsStore
from craftcore.storage.transaction import Transaction
from tests.support.fakes import NEW_YEAR, VirtualCore
from tests.support.log_capture import capture_logs


def add_record(tx: Transaction, seq: int, workflow: Any, at: float) -> None:
    tx.run(
        """
        INSERT INTO executions (seq, id, trigger_id, attempt, epoch, workflow, created_at, envelope_json, envelope_hash)
        VALUES (:seq, :id, 't', 1, 1, CAST(:workflow AS TEXT), :at, '{}', 'h')
        """,
        seq=seq,
        id=f"exec-t.{seq}",
        workflow=workflow,
        at=at,
    )


def add_records(core: VirtualCore, *records: tuple[Any, float]) -> None:
    with core.transaction() as tx:
        for seq, (workflow, ago) in enumerate(records, 1):
            add_record(tx, seq, workflow, NEW_YEAR - ago)


def since(core: VirtualCore, seconds: float) -> tuple[list[tuple[str, float]], bool]:
    with core.reading() as reader:
        return StartsStore().list_since(reader, {"mail", "post"}, NEW_YEAR - seconds, NEW_YEAR)


def test_starts_of_rate_limited_workflows_are_returned_newest_first(core):
    add_records(core, ("mail", 90), ("mail", 50), ("other", 40), ("post", 30), (None, 20))

    assert since(core, 60) == ([("post", NEW_YEAR - 30), ("mail", NEW_YEAR - 50)], True)


def test_start_at_the_edge_of_the_window_does_not_count(core):
    add_records(core, ("mail", 60), ("mail", 59))

    assert since(core, 60) == ([("mail", NEW_YEAR - 59)], True)


def test_start_in_the_future_counts_as_of_now(core):
    add_records(core, ("mail", 30), ("mail", -3600), ("mail", 0))

    assert since(core, 60) == ([("mail", NEW_YEAR), ("mail", NEW_YEAR), ("mail", NEW_YEAR - 30)], True)


def test_workflow_name_that_is_invalid_text_is_not_read(core):
    add_records(core, ("mail", 30), (b"\xff\xfe", 20))

    assert since(core, 60) == ([("mail", NEW_YEAR - 30)], True)


@pytest.mark.parametrize(("records", "are_all"), [(2, True), (3, False), (4, False)])
def test_start_query_reads_a_bounded_number_of_records(core, monkeypatch, records, are_all):
    monkeypatch.setattr(starts_store, "READ_MAX", 3)
    add_records(core, *[("mail", 10.0)] * records)

    starts, is_complete = since(core, 60)

    assert (len(starts), is_complete) == (min(records, 3), are_all)


@pytest.mark.parametrize("records", [2, 4])
def test_start_query_reports_when_the_list_is_partial(core, monkeypatch, records):
    monkeypatch.setattr(starts_store, "READ_MAX", 3)
    add_records(core, *[("mail", 10.0)] * records)
    app = App()

    async def mail() -> None: ...

    app.declare("mail", mail, rate=Rate(10, per=60))
    limits = Limits(app.workflows.values(), app.by_source)

    with capture_logs() as logs, core.reading() as reader:
        restore_rate_history(reader, limits, core.clock)

    assert [(line["event"], line["starts"]) for line in logs] == (
        [("limits.recalled_in_part", 3)] if records > 2 else []
    )


def test_earlier_starts_count_against_the_rate_until_expiry(core):
    add_records(core, *[("mail", 50.0)] * 2)
    app = App()

    async def mail() -> None: ...

    app.declare("mail", mail, rate=Rate(2, per=60))
    limits = Limits(app.workflows.values(), app.by_source)

    with core.reading() as reader:
        restore_rate_history(reader, limits, core.clock)

    booted = core.clock.boot_time()
    limits.budget([], [], booted)
    assert limits.next_token([], []) == pytest.approx(booted + 10)
