"""The promises that must hold after every crash, as functions over how a scenario ended."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from craftcore.config import Config
from craftcore.diagnostics.invariants import violations
from craftcore.errors import InvalidInput
from craftcore.serialization.plurals import format_count
from craftcore.services import Services
from craftcore.storage.transaction import Reader
from craftcore.testing.effect import Effect


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioEnd:
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
    baseline: ScenarioEnd | None = None
    broken: Sequence[str] = field(default=())

    def effects_of(self, action: str) -> list[Effect]:
        """Return the effects of one action, or of one name of `record_effect`."""
        return [effect for effect in self.effects if effect.action == action]

    def rows(self, sql: str, **parameters: Any) -> list[dict[str, Any]]:
        """Return the rows of a query on the database."""
        with _open_reader(self.database) as reader:
            return reader.fetch_all(sql, **parameters)


Invariant = Callable[[ScenarioEnd], object]
"""A promise. It is broken when the function raises AssertionError, or returns False or a text that explains it."""

ACTIVITIES = "SELECT idem_key, action, status FROM activity_log ORDER BY seq"


def require_scenario_success(ending: ScenarioEnd) -> str | None:
    """Refuse an ending in which the scenario raised."""
    return None if ending.error is None else f"the scenario raised {ending.error}"


def require_same_statuses(ending: ScenarioEnd) -> str | None:
    """Refuse work that is lost, hangs, or ends in another status than without a crash."""
    if ending.baseline is None:
        return None
    pairs = enumerate(zip(ending.statuses, ending.baseline.statuses, strict=False), 1)
    texts = (f"work {number} is {now}, and {then} without a crash" for number, (now, then) in pairs if now != then)
    return next(texts, None)


def require_matching_ledger(ending: ScenarioEnd) -> str | None:
    """Refuse an irreversible action that had its effect twice, and a ledger that says otherwise than the world."""
    effects = Counter(effect.key for effect in ending.effects)
    for row in ending.rows(ACTIVITIES):
        action, status, count = row["action"], row["status"], effects[row["idem_key"]]
        if count > 1:
            return f"{action} had its effect {format_count(count, 'time')} under one key"
        if count == 0 and status == "DONE":
            return f"{action} is DONE in the ledger, and had no effect"
        if count == 1 and status == "FAILED":
            return f"{action} is FAILED in the ledger, and had its effect"
    return None


def require_consistent_rows(ending: ScenarioEnd) -> str | None:
    """Refuse a database in which rows contradict each other, as `craftcore doctor --invariants` does."""
    with _open_reader(ending.database) as reader:
        return "; ".join(finding.text for finding in violations(reader)) or None


GUARANTEES: tuple[Invariant, ...] = (
    require_scenario_success,
    require_same_statuses,
    require_matching_ledger,
    require_consistent_rows,
)
"""The invariants that every crash matrix checks."""


def happens_once(action: str, times: int = 1) -> Invariant:
    """Return the invariant that the effects of an action, or of a name of `record_effect`, are `times` in all lives.

    Raises InvalidInput for an action without a name, and for `times` below 0.
    """
    if action == "" or not isinstance(action, str):
        raise InvalidInput(f"happens_once: action is {action!r:.80}: give the name of an action or of record_effect")
    if type(times) is not int or times < 0:
        raise InvalidInput(f"happens_once: times is {times!r:.80}: give how often it happens, 0 or more")

    def count_effects(ending: ScenarioEnd) -> str | None:
        count = len(ending.effects_of(action))
        return None if count == times else f"{action} happened {format_count(count, 'time')}, not {times}"

    count_effects.__name__ = f"{action} happens {'once' if times == 1 else format_count(times, 'time')}"
    return count_effects


def list_broken(ending: ScenarioEnd, invariants: Sequence[Invariant]) -> list[str]:
    """Return a text for each invariant that does not hold, beginning with its name."""
    return [f"{_name(invariant)}: {text}" for invariant in invariants if (text := _check(invariant, ending))]


def _check(invariant: Invariant, ending: ScenarioEnd) -> str:
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
    name: str = getattr(invariant, "__name__", repr(invariant))
    return name.removeprefix("require_").replace("_", " ")


def _open_reader(database: Path) -> AbstractContextManager[Reader]:
    return Services(database, Config(), read_only=True).reading()
