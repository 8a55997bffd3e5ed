"""Where a trigger goes. Runs after the durable write, inside the started attempt, never in `emit`.

`routing.py` has the order of the rules; a router of one's own is asked only where they leave it open.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from craftcore.errors import ErrorCode
from craftcore.executions.model import Strategy
from craftcore.executions.recorder import Routed
from craftcore.registry.workflow import order_mistake
from craftcore.triggers.model import Claim
from craftcore.triggers.settlement import Failed
from craftcore.triggers.validation import NAME
from craftcore.triggers.workflow_names import bare_name, intent_of

DECLARED_MAX = 100
"""How many workflows an error names that were not meant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A router's answer: the workflow to run, or the session (or task) that is live and takes it.

    With a workflow, `session_id` is the session it is run in (None: the trigger's own). Without one, the trigger is
    delivered to the task named, or to the live task of the session.

    `fallback`: what is tried when that workflow fails, in this order; None: what it declares. `strategy`: DIRECT tries
    nothing else, whatever it declares; None: FALLBACK where there is something to fall back to. Both hold for all the
    task.
    """

    workflow: str | None = None
    session_id: str | None = None
    task_id: str | None = None
    fallback: tuple[str, ...] | None = None
    strategy: Strategy | None = None

    @property
    def agents(self) -> tuple[str, ...]:
        """All that are tried, in order; (): as the workflow declares."""
        if self.workflow is None or (self.fallback is None and self.strategy is not Strategy.DIRECT):
            return ()
        return (self.workflow, *(self.fallback or ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedTrigger:
    """A trigger, as a router sees it."""

    id: str
    source: str
    session_id: str | None
    description: str | None
    payload_json: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSession:
    """A session with a task that has not ended. `waits_for`: the event the task waits for now; None: it runs, or waits
    for something else. `description` is that of the trigger which created the task."""

    session_id: str
    task_id: str
    workflow: str
    waits_for: str | None
    description: str | None
    updated_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingContext:
    """The context of a routing decision: the choices of a router. `sessions`: those with a live task, the last moved
    first, at most a hundred."""

    workflows: tuple[str, ...]
    by_source: Mapping[str, str]
    sessions: tuple[LiveSession, ...] = ()


class Router(Protocol):
    """The pluggable strategy. It may be slow, it may raise: both cost only its own trigger."""

    async def route(self, trigger: RoutedTrigger, context: RoutingContext) -> Route:
        """Decide. Raising fails the attempt with ROUTING_ERROR, which is retried."""


def check_route(route: object) -> Route:
    """Return a router's answer with the declared names of its workflows. Raises TypeError or ValueError for an invalid
    answer."""
    if not isinstance(route, Route):
        raise TypeError(f"the router returned {route!r:.200}, not a Route")
    for field in ("workflow", "session_id", "task_id"):
        chosen = getattr(route, field)
        if chosen is not None and not (isinstance(chosen, str) and NAME.fullmatch(chosen)):
            raise ValueError(f"the router chose {field} {chosen!r:.80}, which is not a name")
    if route.workflow is None and route.session_id is None and route.task_id is None:
        raise ValueError("the router chose neither a workflow nor a session nor a task")
    if route.strategy is not None and not isinstance(route.strategy, Strategy):
        raise ValueError(f"the router chose strategy {route.strategy!r:.80}; it must be one of {', '.join(Strategy)}")
    known_by = replace(route, workflow=None if route.workflow is None else bare_name(route.workflow))
    if route.fallback is not None:
        if wrong := order_mistake(route.workflow, route.fallback):
            raise ValueError(f"the router chose {wrong}")
        known_by = replace(known_by, fallback=tuple(map(bare_name, route.fallback)))
        if wrong := order_mistake(known_by.workflow, known_by.fallback):
            raise ValueError(f"the router chose {wrong}")
        if route.strategy is Strategy.DIRECT and route.fallback:
            raise ValueError("the router chose strategy DIRECT and a fallback")
    return known_by


def route_by_source(claim: Claim, workflows: Mapping[str, str]) -> Routed | None:
    """Return the workflow declared for the source; None when there is none."""
    workflow = workflows.get(claim.source)
    return Routed(workflow, "rule by source") if workflow is not None else None


def unroutable_failure(claim: Claim, workflow: str | None, declared: Iterable[str]) -> Failed:
    """Return the outcome of a trigger that no workflow handles, and what there would have been."""
    asked = f"source: {claim.source}" if workflow is None else f"intent: {'/'.join(intent_of(workflow))}"
    return Failed(
        code=ErrorCode.CAPABILITY_NOT_FOUND,
        message=f"No agent found for {asked}",
        retryable=False,
        details={"declared": sorted(declared)[:DECLARED_MAX]},
    )
