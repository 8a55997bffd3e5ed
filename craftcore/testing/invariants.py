"""The promises that must hold after every crash, as functions over how a scenario ended."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from craftcore.config import Config
from craftcore.services import Services
from craftcore.testing.world import Effect


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a scenario ended.

    returned   what the scenario returned; None when it raised
    error      what it raised, as text; None: nothing
    statuses   the status of each emitted trigger or task at the end, in the order of the calls
    effects    every effect of every life, in order
    database   the database
    baseline   how the same scenario ended without a crash; None: this is that run
    broken     the texts of the invariants that do not hold
    """

    returned: Any
    error: str | None
    statuses: Sequence[str]
    effects: Sequence[Effect]
    database: Path
    baseline: Ending | None = None
    broken: Sequence[str] = field(default=())

    def effects_of(self, action: str) -> list[Effect]:
        """Return the effects of one action, or of one name of `record_effect`."""
        return [effect for effect in self.effects if effect.action == action]

    def rows(self, sql: str, **parameters: Any) -> list[dict[str, Any]]:
        """Return the rows of a query on the database."""
        services = Services(self.database, Config(), read_only=True)
        with services.reading() as reader:
            return reader.fetch_all(sql, **parameters)


Invariant = Callable[[Ending], object]
"""A promise. It is broken when the function raises AssertionError, or returns False or a text that says how."""

ACTIVITIES = "SELECT idem_key, action, status FROM activity_log ORDER BY seq"


def scenario_succeeds(ending: Ending) -> None:
    """Refuse an ending in which the scenario raised."""
    assert ending.error is None, f"the scenario raised {ending.error}"


def work_ends_as_without_crash(ending: Ending) -> None:
    """Refuse work that is lost, hangs, or ends in another status than without a crash."""
    if ending.baseline is None:
        return
    for number, (now, expected) in enumerate(zip(ending.statuses, ending.baseline.statuses, strict=False), 1):
        assert now == expected, f"work {number} is {now}, and {expected} without a crash"


def effects_match_ledger(ending: Ending) -> None:
    """Refuse an irreversible action that had its effect twice, and a ledger that says otherwise than the world."""
    effects = Counter(effect.key for effect in ending.effects)
    for row in ending.rows(ACTIVITIES):
        count = effects[row["idem_key"]]
        assert count < 2, f"{row['action']} had its effect {count} times under one key"
        assert count or row["status"] != "DONE", f"{row['action']} is DONE in the ledger, and had no effect"
        assert not count or row["status"] != "FAILED", f"{row['action']} is FAILED in the ledger, and had its effect"


GUARANTEES: tuple[Invariant, ...] = (scenario_succeeds, work_ends_as_without_crash, effects_match_ledger)
"""The invariants that every crash matrix checks."""


def happens_once(action: str, times: int = 1) -> Invariant:
    """Return the invariant that the effects of an action, or of a name of `record_effect`, are `times` in all lives."""

    def happens(ending: Ending) -> None:
        count = len(ending.effects_of(action))
        assert count == times, f"{action} happened {count} times, not {times}"

    happens.__name__ = f"{action} happens {'once' if times == 1 else f'{times} times'}"
    return happens


def list_broken(ending: Ending, invariants: Sequence[Invariant]) -> list[str]:
    """Return a text for each invariant that does not hold, beginning with its name."""
    return [f"{_name(invariant)}: {text}" for invariant in invariants if (text := _check(invariant, ending))]


def _check(invariant: Invariant, ending: Ending) -> str:
    """Return how an invariant is broken; "": it holds."""
    try:
        held = invariant(ending)
    except AssertionError as error:
        return str(error) or "its assertion failed"
    except Exception as error:
        return f"it raised {type(error).__name__}: {error}"
    if inspect.isawaitable(held):
        raise TypeError(f"the invariant {_name(invariant)} is async: make it a plain function")
    if isinstance(held, str):
        return held
    return "it returned False" if held is False else ""


def _name(invariant: Invariant) -> str:
    return getattr(invariant, "__name__", repr(invariant)).replace("_", " ")
