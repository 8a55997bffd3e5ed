"""The cost of a boot: it does not depend on the number of triggers that are not yet due."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from craftcore import App
from tests.support.engine_harness import lab
from tests.support.fakes import NEW_YEAR, VirtualClock, VirtualCore
from tests.triggers.test_claim_plans import fill

pytestmark = pytest.mark.anyio

PENDING = 20_000

NEWEST_STEPS = 15_000
"""The boot reads the thousand newest triggers to detect a clock that was set back, at eleven steps each."""


class Steps:
    """Steps of SQLite's virtual machine by statement, on all connections opened in the block."""

    def __init__(self) -> None:
        self.by_statement: dict[str, int] = {}

    @property
    def sum(self) -> int:
        return sum(self.by_statement.values())

    def add(self, event: dict[str, object]) -> None:
        status = event["stmt_status"]
        assert isinstance(status, dict)
        sql = str(event["sql"])
        self.by_statement[sql] = self.by_statement.get(sql, 0) + status["SQLITE_STMTSTATUS_VM_STEP"]


@contextmanager
def count_steps() -> Iterator[Steps]:
    steps = Steps()

    def watch(connection: apsw.Connection) -> None:
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, steps.add)

    apsw.connection_hooks.append(watch)
    try:
        yield steps
    finally:
        apsw.connection_hooks.remove(watch)


async def boot_steps(folder: Path, pending: int) -> Steps:
    """Return the steps of a boot on a file with pending triggers that are due in a day, up to the end of the first
    poll."""
    clock = VirtualClock()
    core = VirtualCore(folder / "agent.db", clock)
    with core.transaction() as tx:
        if pending:
            fill(tx, "later-", fire_at=NEW_YEAR + 86_400, many=pending)
    core.close()
    app = App()

    @app.workflow("greet")
    async def greet() -> None: ...

    with count_steps() as steps:
        async with lab(app, folder, clock=clock) as harness:
            await harness.engine.feeder.wait_for_first_poll()
            await harness.idle()
    return steps


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_boot_visits_no_trigger_that_waits_for_its_time(tmp_path, anyio_backend):
    none = await boot_steps(tmp_path / "none", 0)
    many = await boot_steps(tmp_path / "many", PENDING)

    assert many.sum < none.sum + NEWEST_STEPS, sorted(many.by_statement.items(), key=lambda item: -item[1])[:3]
