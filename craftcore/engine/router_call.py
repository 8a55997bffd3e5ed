"""Question to the app's own router: its answer becomes a route or an outcome, and the question can be stopped."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import anyio.lowlevel

from craftcore.engine.attempt import Attempt
from craftcore.engine.attempt_commits import AttemptCommits
from craftcore.engine.claim_window import Slots
from craftcore.engine.durable_commit import DurableCommits
from craftcore.engine.failure import exception_details, wait_asked
from craftcore.engine.loop.keyboard_interrupt import is_ctrl_c
from craftcore.engine.routing import Routes
from craftcore.errors import ErrorCode
from craftcore.executions.recorder import Routed
from craftcore.failpoints import Failpoint, hit
from craftcore.log import get_logger
from craftcore.registry.registry import Registry
from craftcore.registry.router import Route, RoutedTrigger, Router, RoutingContext, check_route, unroutable_failure
from craftcore.serialization.untrusted import MESSAGE_LIMIT, safe_isinstance, safe_repr, truncate_text
from craftcore.tasks.turn_start import StaleTurn
from craftcore.triggers.settlement import Cancelled, Delivered, Failed, Obsolete, Outcome, Released, Rerouted

log = get_logger(__name__)


class RouterCall:
    """Calls of the router of one app. `on_lane_left` is called when a trigger leaves its lane before it is settled."""

    def __init__(
        self,
        app: Registry,
        attempts: AttemptCommits,
        commits: DurableCommits,
        slots: Slots,
        *,
        on_lane_left: Callable[[], None],
    ) -> None:
        self._app = app
        self._attempts = attempts
        self._commits = commits
        self._slots = slots
        self._on_lane_left = on_lane_left
        self._routes = Routes(app)

    async def route(self, attempt: Attempt, router: Router) -> Outcome | None:
        """Ask the router and commit its decision. Return an outcome when the trigger ends here."""
        claim = attempt.claim
        route = await ask(router, attempt, await self._commits.commit(self._routes.context))
        if not isinstance(route, Route):
            return route
        session_id = route.session_id
        if route.workflow is None:
            task = await self._commits.commit(self._routes.live_task, route)
            if task is None:
                message = f"the router chose {route.session_id or route.task_id}, and no live task is there"
                return Failed(code=ErrorCode.ROUTING_ERROR, message=message, retryable=True)
            session_id = task.session_id or task.id
        elif route.workflow not in self._app.workflows:
            return unroutable_failure(claim, route.workflow, self._app.workflows)
        if session_id is not None and session_id != attempt.lane:
            if not self._slots.take_lane(session_id):
                return Rerouted(session_id=session_id)
            left, attempt.lane = attempt.lane, session_id
            if left is not None:
                self._slots.release_lane(left)
                self._on_lane_left()
        if route.workflow is None:
            assert task is not None
            return Delivered(task_id=task.id)
        routed = Routed(route.workflow, "router", agents=route.agents)
        attempt.record, entry = await self._commits.commit(self._attempts.decide, attempt, routed, session_id)
        attempt.routed = attempt.record.routed
        hit(Failpoint.ROUTE_DECIDED)
        if isinstance(entry, StaleTurn):
            return Obsolete(reason=entry.reason)
        attempt.entry = entry
        return None


async def ask(router: Router, attempt: Attempt, context: RoutingContext) -> Route | Outcome:
    """Return the router's route. When it fails, that of the rule for the source; without one the attempt fails, too.
    Ctrl-C is raised."""
    claim = attempt.claim
    trigger = RoutedTrigger(
        id=claim.id,
        source=claim.source,
        session_id=claim.session_id,
        description=claim.description,
        payload_json=claim.payload_json,
    )
    try:
        with anyio.CancelScope() as scope:
            attempt.enter(scope)
            return check_route(await router.route(trigger, context))
    except BaseException as error:
        if safe_isinstance(error, anyio.get_cancelled_exc_class()):
            await anyio.lowlevel.checkpoint_if_cancelled()  # raises, if it was we who cancelled
        if is_ctrl_c(error):
            raise
        error_text = safe_repr(error)
        if claim.source in context.by_source:
            log.warning("router.failed", trigger=claim.id, error=error_text, fallback=context.by_source[claim.source])
            session_id = claim.session_id or claim.id  # one that can be chosen the next time
            return Route(workflow=context.by_source[claim.source], session_id=session_id)
        message = truncate_text(f"the router failed: {error_text}", MESSAGE_LIMIT)
        wait = wait_asked(error)
        code = ErrorCode.ROUTING_ERROR
        return Failed(code=code, message=message, retryable=True, retry_after=wait, details=exception_details(error))
    return Cancelled() if attempt.stopped_by == "cancelled" else Released(reason="shutdown")
