"""Fakes for tests: a clock that a test advances, repeatable ids, and a Core on a real file."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import anyio

from craftcore.clock import Uuid7
from craftcore.config import Config
from craftcore.services import Services
from craftcore.storage.database import Database
from craftcore.storage.facts import give_id
from craftcore.storage.migrate import migrate
from craftcore.storage.transaction import Transaction
from craftcore.testing import virtual_clock as clock
from craftcore.testing.virtual_clock import NEW_YEAR
from craftcore.triggers.model import TriggerSpec

__all__ = ["NEW_YEAR", "VirtualClock", "VirtualCore", "a_trigger"]

P = ParamSpec("P")
T = TypeVar("T")


ClockState = tuple[float, float, str | None, int, tuple[Any, ...]]
"""The time, the boot time and the zone of a virtual clock, its last id and its random state."""


class VirtualClock(clock.VirtualClock):
    """A virtual clock: only the test and the sleeps of an engine advance it."""

    def __init__(self, now: float = NEW_YEAR, *, seed: int = 0, zone_name: str | None = "UTC") -> None:
        super().__init__(now, seed=seed, zone_name=zone_name)
        self._random = random.Random(seed)
        self._ids = Uuid7(self._random)

    @property
    def state(self) -> ClockState:
        return self._now, self._boot_time, self._zone, self._ids._last, self._random.getstate()

    @state.setter
    def state(self, state: ClockState) -> None:
        self._now, self._boot_time, self._zone, self._ids._last, random_state = state
        self._random.setstate(random_state)

    def awake_time(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)


_MIGRATED: dict[tuple[float, str], bytes] = {}
"""Migrated files by the time and the id of their creation."""

_MIGRATED_MAX = 50


class VirtualCore(Services):
    """A Core with a schema and one synchronous call for each rule: `core.do(core.triggers.emit, spec)`."""

    def __init__(
        self, path: Path, clock: VirtualClock, config: Config | None = None, *, database: type[Database] = Database
    ) -> None:
        super().__init__(path, config or Config(), clock, database=database)
        self.prepare()

    def prepare(self) -> None:
        """Create the schema. The initial file of most tests is migrated once, and then copied."""
        path = self.database.path
        if path.exists():
            super().prepare()
            return
        new_id = self.clock.new_id()
        made = self.clock.now(), new_id
        if made in _MIGRATED:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.touch(mode=0o600)
            path.write_bytes(_MIGRATED[made])
            return
        migrate(self.database, self.clock, also=lambda tx, _: give_id(tx, new_id))
        self.database.close()
        if len(_MIGRATED) == _MIGRATED_MAX:
            del _MIGRATED[next(iter(_MIGRATED))]
        _MIGRATED[made] = path.read_bytes()

    def do(self, rule: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run one rule in its own transaction."""
        with self.transaction() as tx:
            return rule(tx, *args, **kwargs)

    def rows(self, sql: str, **params: Any) -> list[dict[str, Any]]:
        """Query the tables directly."""
        with self.reading() as reader:
            return reader.fetch_all(sql, **params)


def a_trigger(**changes: Any) -> TriggerSpec:
    """Return a valid spec; the test overrides the fields that matter to it."""
    return TriggerSpec(**{"workflow": "greet", **changes})
