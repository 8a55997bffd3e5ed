"""The values that pass between a gate, the tasks that it lets through, and clients. Moments are epoch seconds."""

from __future__ import annotations

from dataclasses import dataclass, field

GATE = "craftcore.gate"
LOOK = "craftcore.gate_look"
LATER_PRIORITY = 5
"""The lowest priority of a later entry of a task: that of a continuation."""


@dataclass(frozen=True, kw_only=True)
class GateLimit:
    """The limit of a gate. `id`: its workflow. `places`: how many hold one at a time, None: any number.

    `rate_count`: how many start within any `rate_seconds`, None: any number.
    """

    id: str
    places: int | None = None
    rate_count: int | None = None
    rate_seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class GateStart:
    """The arguments of a gate. Times in seconds.

    check_seconds  how often the gate looks whether those who hold a place, or come first, are alive
    idle_seconds   the gate ends when it is empty and had no signal for this time
    """

    limit: GateLimit
    check_seconds: float = 60.0
    idle_seconds: float = 3600.0
    run_signals_max: int = 1_500
    """Signals of one run, after which the gate goes on in the next."""


@dataclass(frozen=True, kw_only=True)
class Announcement:
    """A trigger of a session that is about to be emitted. `mark` is of this emission alone.

    `is_later`: it is due later. It is in the order only from its own entry on.
    """

    holder: str
    mark: str
    priority: int
    source: str
    supersedes: bool = False
    is_later: bool = False
    is_first: bool = False
    """It was a message to a task that has ended, and comes before all others."""


@dataclass(frozen=True, kw_only=True)
class EnterCall:
    """A task wants to begin an entry. `gone`: the live task of the last answer, which has ended."""

    holder: str
    run: str
    """The first run of its workflow: a dedup key may be used again."""
    entry: int
    limit: GateLimit
    priority: int
    source: str
    supersedes: bool = False
    is_first: bool = False
    """No entry of it has been inside."""
    is_message: bool = False
    gone: str | None = None


@dataclass(frozen=True, kw_only=True)
class LeaveCall:
    """An entry is over. `stays`: its task lives on and takes the messages of its session. `takes_message`: it waits for
    one."""

    holder: str
    stays: bool = False
    takes_message: bool = False


@dataclass(frozen=True, kw_only=True)
class Passed:
    """The answer of a gate to an entry. `superseded_by`: it is not to begin, because of that one.

    `live`: the live task of the session, for a message.
    """

    gate: str
    run: str
    entry: int
    superseded_by: str | None = None
    live: str | None = None


@dataclass(kw_only=True)
class Ticket:
    """A place in the order of a gate. `entry` 0: it was announced, and its task has not come."""

    number: int
    entry: int
    priority: int
    source: str
    run: str = ""
    mark: str = ""
    supersedes: bool = False
    is_message: bool = False
    is_later: bool = False
    was_inside: bool = False
    """An entry of it has been inside before: nothing supersedes it."""
    withheld_for: str | None = None
    """An announced trigger that supersedes this one once it comes."""
    superseded_by: str | None = None
    checks: int = 0


@dataclass(kw_only=True)
class Place:
    """A place that is held. `has_token`: its entry has not reported its start yet."""

    run: str
    entry: int
    has_token: bool
    checks: int = 0


@dataclass(kw_only=True)
class GateState:
    """All that a gate carries from run to run. The keys are the workflows of tasks."""

    limit: GateLimit
    numbers: int = 0
    tickets: dict[str, Ticket] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)
    starts: list[float] = field(default_factory=list)
    """When those started that count against the rate, oldest first."""
    live: dict[str, bool] = field(default_factory=dict)
    """The live tasks of the session, oldest first, and whether each waits for a message."""
