"""The `watch` workflow of the README over years: it reads a price every hour and never ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from craftcore.config import Config, RetentionSettings, StorageSettings
from craftcore.tasks.model import CONTINUED
from craftcore.triggers.settlement import Succeeded, Suspended
from tests.support.attempts import begin as begin_plain
from tests.support.attempts import end
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.retention_harness import batches, give_all_back
from tests.support.task_steps import RECORDER, Running, a_sleep, begin, complete, enter, go_on
from tests.support.trigger_steps import claim_all

DAY = 86_400.0

TWENTIETH = RetentionSettings(
    triggers=0.05 * DAY, dead=1.5 * DAY, keys=4.5 * DAY, bodies=0.35 * DAY, history=4.5 * DAY, audit=4.5 * DAY
)
"""The default settings with a twentieth of each period."""


class DayEnd(NamedTuple):
    """The counts and the size of the file at the end of a day, after retention."""

    day: int
    bytes: int
    records: int
    events: int
    triggers: int
    waits: int


def simulate_days(folder: Path, days: int, settings: RetentionSettings) -> Iterator[DayEnd]:
    """Run and yield each day: 24 turns of the task, and another trigger with a secret of that day."""
    clock = VirtualClock()
    without_flush = replace(Config(), storage=StorageSettings(synchronous="normal"))  # the test cuts no power
    core = VirtualCore(folder / "agent.db", clock, without_flush)
    running = begin(core, payload={"item": "lamp", "limit": 40.0}, workflow="watch")
    for day in range(days):
        for hour in range(24):
            running = run_turn(core, running, price=42.0 + day + hour / 24)
        end(core, begin_plain(core, payload={"secret": f"secret-of-day-{day}."}), Succeeded(result_json='"done"'))
        for _ in batches(core, settings):
            pass
        give_all_back(core)
        yield measure_day_end(core, day)
    core.close()


def run_turn(core: VirtualCore, running: Running, *, price: float) -> Running:
    """Run one step, then `Continue(price, after=3600)`, and the next turn an hour later."""
    complete(core, running, "step:price", price)
    core.do(RECORDER.close_all, [(running.record, Suspended(reason="continues later"))])
    go_on(core, running, price, a_sleep(core.clock.now() + 3600, name=CONTINUED))
    core.clock.advance(3600)  # type: ignore[attr-defined]
    [claim] = [claim for claim in claim_all(core) if claim.task_id == running.task.id]
    entered = enter(core, claim)
    assert isinstance(entered, Running), entered
    assert entered.task.state_json == str(price)
    return entered


def measure_day_end(core: VirtualCore, day: int) -> DayEnd:
    [pages] = core.rows("SELECT page_count * page_size AS bytes FROM pragma_page_count(), pragma_page_size()")
    [rows] = core.rows(
        """
        SELECT (SELECT count(*) FROM executions) AS records,
               (SELECT count(*) FROM events)     AS events,
               (SELECT count(*) FROM triggers)   AS triggers,
               (SELECT count(*) FROM waits)      AS waits
        """
    )
    return DayEnd(day=day, **pages, **rows)


def file_contains(path: Path, word: str) -> bool:
    """Return whether the word is anywhere in the file or its WAL."""
    return any(word.encode() in part.read_bytes() for part in path.parent.glob(f"{path.name}*"))
