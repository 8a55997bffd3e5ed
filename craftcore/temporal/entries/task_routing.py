"""The workflow of a task that was emitted without one: the rule for its source or the router of the app chooses."""

from __future__ import annotations

from dataclasses import replace

from craftcore.engine.attempt import Attempt
from craftcore.engine.router_call import ask
from craftcore.errors import ErrorCode
from craftcore.registry.registry import Registry
from craftcore.registry.router import Route, RoutingContext, route_by_source, unroutable_failure
from craftcore.tasks.model import Task
from craftcore.temporal.entries.update_journal import TemporalJournal
from craftcore.triggers.settlement import Failed, Outcome


async def choose_workflow(app: Registry, journal: TemporalJournal, task: Task, attempt: Attempt) -> Task | Outcome:
    """Return the task with its workflow, which is on record then, or the outcome of an attempt that has none.

    The router sees no sessions, and may choose none.
    """
    claim = attempt.claim
    by_source = route_by_source(claim, app.by_source)
    if by_source is not None:
        route = Route(workflow=by_source.workflow)
    elif app.router is None:
        return unroutable_failure(claim, None, app.workflows)
    else:
        context = RoutingContext(workflows=tuple(app.workflows), by_source=app.by_source)
        asked = await ask(app.router, attempt, context)
        if not isinstance(asked, Route):
            return asked
        route = asked
    if route.workflow is None or route.session_id is not None:
        message = "the router chose a session or a task; on a cluster it chooses a workflow only"
        return Failed(code=ErrorCode.ROUTING_ERROR, message=message, retryable=False)
    if route.workflow not in app.workflows:
        return unroutable_failure(claim, route.workflow, app.workflows)
    await journal.note_route(route.workflow, route.agents)
    return replace(task, workflow=route.workflow, agents=route.agents or None)
