"""Holds at run time: work that may not start until it is released. A running attempt goes on to its end.

Each hold is a fact of the database, so a restart keeps it: `held` for everything, `hold:workflow:NAME`,
`hold:source:SOURCE` and `hold:schedule:ID`. Its value says who holds it, since when and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, NamedTuple, cast, get_args

from craftcore.errors import InvalidInput, StateRefused
from craftcore.serialization.arguments import require_member
from craftcore.serialization.texts import check_texts
from craftcore.serialization.time_text import clock_time
from craftcore.storage.epochs import newest_epoch
from craftcore.storage.facts import delete_fact, get_fact, get_facts, set_fact
from craftcore.storage.transaction import Reader, Transaction
from craftcore.triggers.model import TriggerSource

HOLDS_MAX = 100
"""How many holds may stand at a time."""

PREFIX = "hold:"
SAFE_MODE_SOURCES = frozenset((TriggerSource.SCHEDULED, TriggerSource.RESUME))

ANY_SCHEDULE = "*"
"""Every schedule, among the names of held ones: a schedule may have another source than SCHEDULED."""

HoldKind = Literal["workflow", "source", "schedule"]
KINDS: tuple[HoldKind, ...] = get_args(HoldKind)


class HoldTarget(NamedTuple):
    """One thing that may be held. `kind` None: everything."""

    kind: HoldKind | None = None
    name: str = ""

    @property
    def fact(self) -> str:
        return "held" if self.kind is None else f"{PREFIX}{self.kind}:{self.name}"

    def __str__(self) -> str:
        return "everything" if self.kind is None else f"{self.kind} {self.name}"


def hold_target(workflow: str | None = None, source: str | None = None, schedule: str | None = None) -> HoldTarget:
    """Return the one of these that is given; none: everything. Raises InvalidInput for more than one of them, and for a
    source that there is not."""
    given = [(kind, name) for kind, name in zip(KINDS, (workflow, source, schedule), strict=True) if name is not None]
    if len(given) > 1:
        raise InvalidInput("a hold names a workflow, a source or a schedule, or nothing of them: give one at a time")
    target = HoldTarget(*given[0]) if given else HoldTarget()
    if target.kind == "source":
        require_member("source", source, TriggerSource, InvalidInput)
    return target


@dataclass(frozen=True, slots=True)
class StartHolds:
    """The holds that stand: why, each. `safe_mode` is set at a start after crashes, the others by people and
    programs."""

    everything: str | None = None
    safe_mode: str | None = None
    targets: Mapping[HoldTarget, str] = field(default_factory=lambda: MappingProxyType({}))

    def __bool__(self) -> bool:
        return self.everything is not None or self.safe_mode is not None or bool(self.targets)

    @property
    def reasons(self) -> list[str]:
        """The reason of each hold."""
        whole = [why for why in (self.everything, self.safe_mode) if why is not None]
        return whole + [f"{target}: {why}" for target, why in self.targets.items()]

    @property
    def sources(self) -> frozenset[str]:
        """The sources of which nothing starts."""
        held = frozenset(self._names("source"))
        return held if self.safe_mode is None else held | SAFE_MODE_SOURCES

    @property
    def workflows(self) -> frozenset[str]:
        """The workflows that do not start."""
        return frozenset(self._names("workflow"))

    @property
    def schedules(self) -> frozenset[str]:
        """The schedules whose triggers do not start; in safe mode ANY_SCHEDULE is among them."""
        held = frozenset(self._names("schedule"))
        return held if self.safe_mode is None else held | {ANY_SCHEDULE}

    def find_holds(self, source: str, workflow: str | None, schedule: str | None) -> dict[HoldTarget, str]:
        """Return the holds of a workflow, source or schedule that cover a trigger. `workflow`: the one that it would
        run, if that is known. `schedule`: the one that made it, if one did."""
        own = (
            HoldTarget("schedule", schedule or ""),
            HoldTarget("source", source),
            HoldTarget("workflow", workflow or ""),
        )
        return {target: self.targets[target] for target in own if target in self.targets}

    def is_held(self, source: str, workflow: str | None, schedule: str | None) -> bool:
        """Return whether a trigger may not start; the arguments are those of `find_holds`."""
        is_unsafe = self.safe_mode is not None and (source in SAFE_MODE_SOURCES or schedule is not None)
        return self.everything is not None or is_unsafe or bool(self.find_holds(source, workflow, schedule))

    def _names(self, kind: HoldKind) -> list[str]:
        return [target.name for target in self.targets if target.kind == kind]


NOTHING_HELD = StartHolds()


def read_holds(tx: Reader) -> StartHolds:
    facts = get_facts(tx, "held", "safe_mode", prefix=PREFIX)
    if not facts:
        return NOTHING_HELD
    everything, safe_mode = facts.pop("held", None), facts.pop("safe_mode", None)
    return StartHolds(everything, safe_mode, {_target_of(name): why for name, why in sorted(facts.items())})


def hold(tx: Transaction, target: HoldTarget, by: str, reason: str | None = None) -> bool:
    """Keep a target from starting until it is released. False when it is held already: that hold stays as it is.

    Raises StateRefused when too many holds stand, InvalidInput for a text that cannot be stored.
    """
    check_texts(reason=reason)
    if get_fact(tx, target.fact) is not None:
        return False
    if target.kind is not None and len(get_facts(tx, prefix=PREFIX)) >= HOLDS_MAX:
        raise StateRefused(f"{HOLDS_MAX} holds stand already; release some, or hold everything")
    set_fact(tx, target.fact, f"{by} held it at {clock_time(tx.now)}" + (f": {reason}" if reason else ""))
    return True


def release(tx: Transaction, target: HoldTarget = HoldTarget()) -> dict[str, str]:  # noqa: B008 - immutable
    """Let a target start again; everything also ends safe mode and every other hold. Return why each was held, by its
    name: empty when nothing was."""
    names = [target.fact]
    if target.kind is None:
        names += ["safe_mode", *sorted(get_facts(tx, prefix=PREFIX))]
    released = {name: why for name in names if (why := delete_fact(tx, name)) is not None}
    if released.keys() & {"held", "safe_mode"}:
        set_fact(tx, "released_epoch", str(newest_epoch(tx)))
    return released


def _target_of(fact: str) -> HoldTarget:
    kind, _, name = fact.removeprefix(PREFIX).partition(":")
    return HoldTarget(cast(HoldKind, kind), name)
