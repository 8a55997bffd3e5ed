"""The benchmarks: each starts without an error, on a sound file with triggers of the past."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module

import pytest

from benchmarks import history
from benchmarks.__main__ import NAMES
from benchmarks.engine import end_to_end_rate
from benchmarks.records import unrecorded
from tests.support.command_calls import call_command
from tests.support.engine_harness import look


def test_filled_file_is_sound_and_has_triggers_records_and_events(tmp_path):
    path = tmp_path / "made" / "bench.db"

    history.make(path, settled=20, pending=3)

    [counted] = look(
        path,
        """
        SELECT (SELECT count(*) FROM triggers WHERE status = 'DONE')                                      AS settled,
               (SELECT count(*) FROM triggers WHERE status = 'PENDING')                                   AS pending,
               (SELECT count(*) FROM executions JOIN events ON execution_seq = executions.seq
                 WHERE executions.ended_at IS NOT NULL)                                                   AS events
        """,
    )
    assert counted == {"settled": 20, "pending": 3, "events": 100}
    checked = call_command(path.parent, "db", "check", database=path.name)
    assert checked.code == 0, checked.out


def test_unrecorded_engine_writes_no_records_and_settles_the_same(tmp_path):
    """The benchmark compares this engine with a normal one to find the cost of records."""
    blocks: list[AbstractContextManager[None]] = [nullcontext(), unrecorded()]
    written = []
    for number, block in enumerate(blocks):
        path = tmp_path / f"{number}" / "bench.db"
        with block:
            asyncio.run(end_to_end_rate(path, 10, 2))
        written += look(
            path,
            """
            SELECT (SELECT count(*) FROM executions)                     AS records,
                   (SELECT count(*) FROM triggers WHERE status = 'DONE') AS settled
            """,
        )

    assert written == [{"records": 10, "settled": 10}, {"records": 0, "settled": 10}]


@pytest.mark.parametrize("name", NAMES)
def test_measurement_starts_without_error(name):
    assert callable(import_module(f"benchmarks.{name}").main)
