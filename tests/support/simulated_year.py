"""A simulated year of a hundred schedules, in which time jumps from one event to the next.

Each day the daemon ends, in order or by kill -9, and boots again after minutes, hours or a holiday. Between boot and
end it calls the services of the engine: settle, tick, claim and start. All random choices come from one seed, so a year
can be repeated.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from craftcore.config import Config, StorageSettings
from craftcore.engine import boot as boot_module
from craftcore.errors import CraftcoreError
from craftcore.schedules.model import CatchUp, Origin, Overlap, ScheduleSpec
from craftcore.storage.transaction import Transaction
from craftcore.triggers.backoff import RetryPolicy
from craftcore.triggers.claim_service import Started
from craftcore.triggers.model import Claim
from craftcore.triggers.settlement import Outcome, Succeeded
from tests.support.brute_force_times import cron, interval
from tests.support.fakes import NEW_YEAR, VirtualClock, VirtualCore
from tests.support.trigger_steps import BROKEN, HOPELESS

HOUR, DAY = 3600.0, 86_400.0

ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kolkata",
    "America/St_Johns",
    "Africa/Cairo",
)

POLICY = RetryPolicy(max_attempts=4, base=120, cap=7200)

Generation = tuple[str, int]
"""(schedule id, generation)"""


class Declared(NamedTuple):
    """A schedule and an independent definition of its times: `cron` with a zone, `every` in seconds, or `once`."""

    spec: ScheduleSpec
    cron: str | None = None
    every: int | None = None
    once: float | None = None

    def moments(self, now: float, last: float) -> list[int] | list[float]:
        """Return all moments at which the schedule may fire, if it is declared at `now`."""
        if self.once is not None:
            return [self.once]
        start = now if self.spec.start is None else self.spec.start
        until = last if self.spec.until is None else self.spec.until
        assert isinstance(start, float)
        assert isinstance(until, float)
        found: list[int] = []
        if self.every is not None:
            found = interval(int(start), self.every, int(last))
        elif self.cron is not None:
            found = cron(self.cron, self.spec.timezone or "UTC", int(NEW_YEAR), int(last))
        return [moment for moment in found if now < moment <= until and moment >= start]


class Year:
    """A simulated year of one database."""

    def __init__(self, folder: Path, *, seed: int, days: int = 365) -> None:
        self.chance = random.Random(seed)
        self.clock = VirtualClock(NEW_YEAR + self.chance.uniform(0.5, 3), seed=seed)
        self.days = days
        self.last = NEW_YEAR + (days + 10) * DAY
        self.now = self.clock.now
        self._removed: dict[str, Declared] = {}
        without_flush = replace(Config(), storage=StorageSettings(synchronous="normal"))  # the test cuts no power
        self.core = VirtualCore(folder / "agent.db", self.clock, without_flush)
        self.declared = {one.spec.id: one for one in hundred_schedules(self.chance, self.now())}
        self.moments: dict[Generation, list[int] | list[float]] = {}
        """The moments that the account must contain up to the end."""
        self.operator_ids = {id for number, id in enumerate(sorted(self.declared)) if number % 5}
        self.seen_at = self.now()
        """The account contains the moments up to this time."""
        self.crashes = 0
        self.steps: list[tuple[float, float]] = []
        """The changes of the clock: its moment before the change, and the seconds by which it was set back."""
        self._epoch = 0
        self._running: list[tuple[float, Claim]] = []

    def run(self) -> Iterator[int]:
        """Run each day, and yield its number at its end."""
        for id in sorted(self.operator_ids):
            self._put(self.declared[id], Origin.OPERATOR)
        for day in range(self.days):
            self._change_something(day)
            self._boot()
            self._run_until(NEW_YEAR + day * DAY + self.chance.uniform(0.4, 0.95) * DAY)
            self._end()
            yield day + 1
        self.core.close()

    def _boot(self) -> None:
        process = boot_module.Process(boot_id="b", machine_boot_id=None, pid=1, host="h", version="0")
        with self.core.transaction() as tx:
            boot = boot_module.boot(
                tx,
                self.core.claims,
                self.core.acts,
                self.core.resume_contract,
                process,
                [],
                new_database_id="d",
                last_seen=None,
            )
            code = [one for id, one in sorted(self.declared.items()) if id not in self.operator_ids]
            for put in self.core.schedules.declare(tx, Origin.CODE, [one.spec for one in code]):
                if put.change in ("added", "changed"):
                    self._record_moments(put.schedule.id, put.schedule.generation)
            assert (boot.held, boot.safe_mode) == (None, None)
            self.core.ticks.fire_startup(tx)
        self._epoch = boot.epoch

    def _end(self) -> None:
        """End the daemon in order or by a crash, and advance the clock."""
        if self.chance.random() < 0.5:
            self.core.do(boot_module.end, self.core.claims, self.core.acts, self._epoch)
        else:
            self.core.do(self._claim_and_start, 2)
            self.crashes += 1
        self._running.clear()
        choice = self.chance.random()
        if choice < 0.70:
            self.clock.advance(self.chance.uniform(1, 600))
        elif choice < 0.98:
            self.clock.advance(hours=self.chance.uniform(0.5, 6))
        else:
            self.clock.advance(hours=self.chance.uniform(30, 60))
        if self.chance.random() < 0.03:
            step = self.chance.uniform(60, 5400)
            self.steps.append((self.now(), step))
            self.clock.set_back(step)

    def _run_until(self, evening: float) -> None:
        while True:
            with self.core.transaction() as tx:
                self._acknowledge(tx)
                ticked = self.core.ticks.tick(tx)
                claimed, next_due = self._claim_and_start(tx, 100)
            if claimed or ticked.more:
                continue
            self.seen_at = self.now()
            ends = [end for end, _ in self._running]
            ahead = [moment for moment in (ticked.next_at, next_due, *ends, evening) if moment is not None]
            if self.now() >= evening:
                return
            self.clock.advance(max(0.001, min(ahead) - self.now()))

    def _claim_and_start(self, tx: Transaction, limit: int) -> tuple[int, float | None]:
        window = self.core.claims.claim(tx, epoch=self._epoch, limit=limit)
        started = [one for one in self.core.claims.start_all(tx, window.claims) if isinstance(one, Started)]
        for claim, _ in started:
            assert claim.nominal_at is not None, claim
            assert claim.fire_at <= self.now(), claim
            assert claim.nominal_at <= claim.fire_at or self.was_due(claim.nominal_at, claim.fire_at), claim
            is_slow = claim.workflow == "slow" and self.chance.random() < 0.5
            takes = self.chance.uniform(1, 10) * HOUR if is_slow else 0.0
            self._running.append((self.now() + takes, claim))
        return len(window.claims), window.next_due

    def was_due(self, nominal_at: float, fire_at: float) -> bool:
        """Return whether a trigger that fires before its moment was due before the clock was set back.

        The step of the clock then also sets back the trigger's time to fire.
        """
        return any(nominal_at <= fire_at + step <= before for before, step in self.steps)

    def _acknowledge(self, tx: Transaction) -> None:
        ended = [claim for end, claim in self._running if end <= self.now()]
        if ended:
            self._running = [(end, claim) for end, claim in self._running if end > self.now()]
            self.core.claims.settle_all(tx, [(claim, self._outcome()) for claim in ended], lambda _: POLICY)

    def _outcome(self) -> Outcome:
        choice = self.chance.random()
        return Succeeded() if choice < 0.93 else BROKEN if choice < 0.99 else HOPELESS

    # Changes by operators and in the code

    def _change_something(self, day: int) -> None:
        """Pause schedules for weeks, edit the code in the middle of the year, and later restore some schedules."""
        ids = sorted(self.declared)
        if day in (60, 61):
            for id in ids[day % 2 :: 15]:
                self._operate(self.core.schedules.pause, id, "holidays")
        if day in (84, 97):
            for id in ids[day % 2 :: 15]:
                self._operate(self.core.schedules.resume, id)
        if day % 9 == 0:
            self._operate(self.core.schedules.skip_next, self.chance.choice(ids))
        if day % 5 == 0:
            self._operate(self.core.schedules.run_now, self.chance.choice(ids))
            since = self.now() - self.chance.uniform(1, 3) * DAY
            self._operate(self.core.schedules.backfill, self.chance.choice(ids), since, self.now() - DAY / 2)
        if day == self.days // 2:
            self._edit(ids)
        again = next(id for id in sorted(self.operator_ids)[1:] if self.declared[id].cron)
        if day == self.days // 3:
            self.core.do(self.core.schedules.remove, again)
        if day == self.days // 3 + 20:
            self._put(self.declared[again], Origin.OPERATOR)
        if day == self.days * 3 // 4:
            self.declared.update(self._removed)

    def _edit(self, ids: list[str]) -> None:
        """Change the timing of some schedules and the payload of others, and remove a few."""
        in_code = [id for id in ids if id not in self.operator_ids]
        for id in in_code[::10]:
            old = self.declared[id].spec
            self.declared[id] = Declared(replace(old, when="every 60h", start=None, until=None), every=60 * 3600)
        for id in in_code[1::10]:
            old = self.declared[id].spec
            self.declared[id] = self.declared[id]._replace(spec=replace(old, payload={"edited": 1}))
        self._removed = {id: self.declared.pop(id) for id in in_code[2::10]}
        changed = sorted(self.operator_ids)[0]
        self.declared[changed] = Declared(replace(self.declared[changed].spec, when="30 4 * * *"), cron="30 4 * * *")
        self._put(self.declared[changed], Origin.OPERATOR)

    def _operate(self, rule: Any, id: str, *words: object) -> None:
        """Apply an operator action while no daemon runs."""
        try:
            self.core.do(rule, id, *words)
        except CraftcoreError:
            pass  # the schedule does not exist, has finished, or is not paused

    def _put(self, one: Declared, origin: Origin) -> None:
        put = self.core.do(self.core.schedules.put, one.spec, origin)
        assert put.change in ("added", "changed"), put
        self._record_moments(put.schedule.id, put.schedule.generation)

    def _record_moments(self, id: str, generation: int) -> None:
        if (id, generation) not in self.moments:
            self.moments[id, generation] = self.declared[id].moments(self.now(), self.last)


def hundred_schedules(chance: random.Random, now: float) -> list[Declared]:
    """Return a hundred schedules of every kind, zone and policy; the seed sets their times of day."""
    found: list[Declared] = []

    def add(when: str, *, workflow: str = "", **settings: Any) -> None:
        number = len(found)
        timing = {name: settings.pop(name) for name in ("cron", "every", "once") if name in settings}
        options = {
            "catch_up": tuple(CatchUp)[number % 3],
            "overlap": tuple(Overlap)[number // 3 % 3],
            "jitter": (0, 0, 0, 900, 5400)[number % 5],
            "catch_up_max": 1 + number % 7,
            **settings,
        }
        workflow = workflow or ("slow" if number % 4 == 1 else "quick")
        spec = ScheduleSpec(id=f"job-{number:03}", when=when, workflow=workflow, **options)
        found.append(Declared(spec, **timing))

    def at(day: float) -> float:
        return float(int(NEW_YEAR + day * DAY))

    for hours in (18, 24, 36, 48, 72, 72, 100, 168, 168, 240, 240, 300, 500, 700, 1000, 1500):
        add(f"every {hours}h", every=hours * 3600)
    for zone in ZONES[1:]:  # times at which clocks change: some hours are skipped, and some come twice
        add(text := f"{chance.choice((0, 15, 59))} {chance.choice((0, 1, 2, 3))} * * 0-2", cron=text, timezone=zone)
        add(text := f"0,30 1,2,3 * {chance.choice(('3,10', '4,11'))} 0", cron=text, timezone=zone)
    for zone in ZONES[:3]:
        add("0 */12 * * 1,4", cron="0 */12 * * 1,4", timezone=zone)
        add(text := "*/30 1-3 * 3,4,10,11 0", cron=text, timezone=zone)
        add("@monthly", cron="0 0 1 * *", timezone=zone)
    add("every day at 2:30am", cron="30 2 * * *", timezone="Europe/Berlin")
    for number in range(12):
        text = f"{chance.randrange(60)} {chance.randrange(24)} * * {chance.randrange(7)}"
        add(text, cron=text, timezone=ZONES[number % len(ZONES)])
    for number in range(6):
        text = f"{chance.randrange(60)} {chance.randrange(24)} {chance.randrange(1, 32)} * *"
        add(text, cron=text, timezone=ZONES[number % len(ZONES)])
    add("every monday at 9am", cron="0 9 * * 1", timezone="Europe/Berlin")
    add("every weekday at 17:30", cron="30 17 * * 1-5", timezone="America/New_York")
    add("@weekly", cron="0 0 * * 0")
    add("@daily", cron="0 0 * * *", until=at(40), timezone="Asia/Kolkata")
    add("*/15 * * * *", cron="*/15 * * * *", until=at(3), timezone="UTC")
    add("@hourly", cron="0 * * * *", max_runs=60, timezone="Australia/Lord_Howe")
    add("every 10m", every=600, start=at(100), until=at(101.5), catch_up="all", overlap="buffer_one")
    add("every 30s", every=30, until=at(0.1), catch_up="none", overlap="skip")
    add("every 1m", every=60, max_runs=60, catch_up="all", overlap="allow")
    add("every 3h", every=10_800, start=at(30), max_runs=80, expires_after=3600)
    add("every 90m", every=5400, start=at(200), until=at(210), workflow="slow", overlap="buffer_one")
    add("on startup")
    for number in range(100 - len(found) - 2):
        days = chance.uniform(0.01, 350)
        if number % 2:
            seconds = int(days * DAY)
            add(f"in {seconds}s", once=now + seconds)
        else:
            add(f"{datetime.fromtimestamp(at(days), UTC):%Y-%m-%dT%H:%M:%SZ}", once=at(days))
    add("in 3 weeks", once=now + 21 * DAY, overlap="skip")
    add("tomorrow at 9am", once=at(1) + 8 * HOUR, timezone="Europe/Berlin")
    assert len(found) == 100, len(found)
    return found


def digest(path: Path) -> str:
    """Return a hash of every row of schedules and triggers, in their order."""
    total = hashlib.sha256()
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    for table, order in (("schedules", "id"), ("schedule_occurrences", "seq"), ("triggers", "seq")):
        for row in connection.execute(f"SELECT * FROM {table} ORDER BY {order}"):
            total.update(repr(row).encode())
    connection.close()
    return total.hexdigest()
