"""Where a trigger goes. Runs after the durable write, inside the started attempt, never in `emit`.

The order: explicit workflow -> the app's own router, if it has one -> the workflow declared for the source ->
CAPABILITY_NOT_FOUND. A router of one's own is asked only where the trigger leaves it open.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from craftcore.errors import ErrorCode
from craftcore.executions.recorder import Routed
from craftcore.triggers.acceptance import NAME
from craftcore.triggers.model import Claim
from craftcore.triggers.settlement import Failed


class Strategy(StrEnum):
    """How the workflows of a route are tried."""

    DIRECT = "DIRECT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A router's answer: the workflow to run, and the session whose lane the trigger joins (None: its own)."""

    workflow: str
    session_id: str | None = None
    strategy: Strategy = Strategy.DIRECT


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedTrigger:
    """What a router sees of a trigger."""

    id: str
    source: str
    session_id: str | None
    description: str | None
    payload_json: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingContext:
    """What a router may choose from."""

    workflows: tuple[str, ...]
    by_source: Mapping[str, str]


class Router(Protocol):
    """The pluggable strategy. It may be slow, it may raise: both cost only its own trigger."""

    async def route(self, trigger: RoutedTrigger, context: RoutingContext) -> Route:
        """Decide. Raising fails the attempt with ROUTING_ERROR, which is retried."""


def check_route(route: object) -> None:
    """Raise TypeError or ValueError for an answer of a router that is none."""
    if not isinstance(route, Route):
        raise TypeError(f"the router returned {route!r:.200}, not a Route")
    if not isinstance(route.workflow, str):
        raise TypeError(f"the router chose workflow {route.workflow!r:.80}, which is no name")
    if route.session_id is not None and not NAME.fullmatch(route.session_id):
        raise ValueError(f"the router chose session {route.session_id!r:.80}, which is no name")


def by_rules(claim: Claim, by_source: Mapping[str, str]) -> Routed | None:
    """The decision that needs nobody's judgement; None when the rules leave it open."""
    if claim.workflow is not None:
        return Routed(claim.workflow, "explicit workflow")
    workflow = by_source.get(claim.source)
    return Routed(workflow, "rule by source") if workflow is not None else None


def unroutable(claim: Claim, workflow: str | None) -> Failed:
    """The outcome of a trigger that no workflow handles."""
    asked = f"named {workflow}" if workflow is not None else f"declared for source {claim.source}"
    message = f"no workflow is {asked} in this app"
    return Failed(code=ErrorCode.CAPABILITY_NOT_FOUND, message=message, retryable=False)
