"""What tests stand on: time that only moves when told, ids that repeat, and a Core on a real file."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from craftcore.clock import Uuid7
from craftcore.config import Config
from craftcore.services import Services
from craftcore.storage.facts import give_id
from craftcore.storage.migrate import migrate
from craftcore.storage.transaction import Transaction
from craftcore.triggers.model import TriggerSpec

P = ParamSpec("P")
T = TypeVar("T")

NEW_YEAR = 1_767_225_600.0
"""2026-01-01T00:00:00Z, when every test begins."""


class VirtualClock:
    """A Clock that stands still until `advance`; the same seed makes the same ids."""

    def __init__(self, now: float = NEW_YEAR, *, seed: int = 0) -> None:
        self._now = now
        self._boot_time = 1_000.0
        self._ids = Uuid7(random.Random(seed))

    def now(self) -> float:
        return self._now

    def boot_time(self) -> float:
        return self._boot_time

    def zone(self) -> str:
        return "UTC"

    def new_id(self) -> str:
        return self._ids.generate(self._now)

    def advance(self, seconds: float = 0.0, *, minutes: float = 0.0, hours: float = 0.0) -> None:
        """Let time pass."""
        passed = seconds + 60 * minutes + 3600 * hours
        assert passed >= 0, passed
        self._now += passed
        self._boot_time += passed

    def set_back(self, seconds: float) -> None:
        """Set the wall clock back, as NTP or a person does; the boot clock goes on."""
        self._now -= seconds


_MIGRATED: dict[str, bytes] = {}
"""Migrated files by the id that they were made with."""


class VirtualCore(Services):
    """A Core whose schema is there, with the synchronous door as one call: `core.do(core.triggers.emit, spec)`."""

    def __init__(self, path: Path, clock: VirtualClock, config: Config | None = None) -> None:
        super().__init__(path, config or Config(), clock)
        self.prepare()

    def prepare(self) -> None:
        """Create the schema. The file that most tests begin with is migrated once, and copied then."""
        path = self.database.path
        if path.exists() or self.clock.now() != NEW_YEAR:
            super().prepare()
            return
        new_id = self.clock.new_id()
        if new_id in _MIGRATED:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.touch(mode=0o600)
            path.write_bytes(_MIGRATED[new_id])
            return
        migrate(self.database, self.clock, also=lambda tx, _: give_id(tx, new_id))
        self.database.close()
        _MIGRATED[new_id] = path.read_bytes()

    def do(self, rule: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run one rule in a transaction of its own."""
        with self.transaction() as tx:
            return rule(tx, *args, **kwargs)

    def rows(self, sql: str, **params: Any) -> list[dict[str, Any]]:
        """What the table says, past every rule."""
        with self.reading() as reader:
            return reader.fetch_all(sql, **params)


def a_trigger(**changes: Any) -> TriggerSpec:
    """A spec that is accepted; the test names what matters to it."""
    return TriggerSpec(**{"workflow": "greet", **changes})
