"""Single steps of a schedule, each in its own transaction."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from craftcore.engine import boot as booting
from craftcore.schedules.declaration import DeclareResult
from craftcore.schedules.model import Origin, Schedule, ScheduleSpec
from craftcore.schedules.store import ScheduleStore
from craftcore.schedules.tick_service import Ticked
from craftcore.triggers.settlement import Succeeded
from tests.support.fakes import VirtualCore
from tests.support.trigger_steps import ack, claim_all, start

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0


def a_schedule(**changes: Any) -> ScheduleSpec:
    """Return a valid spec; the test overrides the fields that matter to it."""
    return ScheduleSpec(**{"id": "job", "when": "every 1h", "workflow": "greet", **changes})


def put(core: VirtualCore, *, origin: Origin = Origin.OPERATOR, **changes: Any) -> DeclareResult:
    return core.do(core.schedules.put, a_schedule(**changes), origin)


def declare(
    core: VirtualCore, *specs: ScheduleSpec, origin: Origin = Origin.CODE, elsewhere: Collection[str] = ()
) -> list[DeclareResult]:
    return core.do(core.schedules.declare, origin, specs, elsewhere=elsewhere)


def tick(core: VirtualCore) -> Ticked:
    return core.do(core.ticks.tick)


def stored(core: VirtualCore, schedule_id: str = "job") -> Schedule:
    with core.reading() as reader:
        schedule = ScheduleStore().get(reader, schedule_id)
    assert schedule is not None, schedule_id
    return schedule


def run_all(core: VirtualCore) -> int:
    """Run every due trigger to its end, and return their number."""
    claims = claim_all(core, limit=1000)
    for claim in claims:
        ack(core, start(core, claim), Succeeded())
    return len(claims)


def account(core: VirtualCore, schedule_id: str = "job") -> list[tuple[str, float, int, str | None]]:
    """Return (outcome, first moment, count, reason) of each row, in the order of the account."""
    rows = core.rows(
        "SELECT outcome, nominal_at, count, reason FROM schedule_occurrences WHERE schedule_id = :id ORDER BY seq",
        id=schedule_id,
    )
    return [(row["outcome"], row["nominal_at"], row["count"], row["reason"]) for row in rows]


def triggers(core: VirtualCore, schedule_id: str = "job") -> list[dict[str, Any]]:
    return core.rows("SELECT * FROM triggers WHERE schedule_id = :id ORDER BY seq", id=schedule_id)


def start_daemon(core: VirtualCore, boot_id: str = "b") -> booting.Boot:
    """Boot as a daemon does."""
    process = booting.Process(boot_id=boot_id, machine_boot_id=None, pid=1, host="h", version="0")
    return core.do(
        booting.boot, core.claims, core.acts, core.resume_contract, process, [], new_database_id="d", last_seen=None
    )


def stop_daemon(core: VirtualCore, epoch: int) -> None:
    """End in order, as a daemon does."""
    core.do(booting.end, core.claims, core.acts, epoch)
