"""Asking a router of the app's own: whatever it does ends as a route or an outcome, and can be stopped."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import structlog

from craftcore.engine.attempt import Run
from craftcore.engine.failure import met, wait_asked
from craftcore.engine.keyboard_interrupt import is_ctrl_c
from craftcore.errors import ErrorCode
from craftcore.registry.router import Route, RoutedTrigger, Router, RoutingContext, checked
from craftcore.serialization.untrusted import MESSAGE_LIMIT, bounded, is_a, shown
from craftcore.triggers.settlement import Cancelled, Failed, Outcome, Released

log = structlog.get_logger(__name__)


async def ask(router: Router, run: Run, context: RoutingContext) -> Route | Outcome:
    """The router's route. When it fails, that of the rule for the source; without one the attempt fails, too. Ctrl-C is
    raised."""
    claim = run.claim
    asked = RoutedTrigger(
        id=claim.id,
        source=claim.source,
        session_id=claim.session_id,
        description=claim.description,
        payload_json=claim.payload_json,
    )
    try:
        with anyio.CancelScope() as scope:
            run.enter(scope)
            return checked(await router.route(asked, context))
    except BaseException as error:
        if is_a(error, anyio.get_cancelled_exc_class()):
            await anyio.lowlevel.checkpoint_if_cancelled()  # raises, if it was we who cancelled
        if is_ctrl_c(error):
            raise
        said = shown(error)
        if claim.source in context.by_source:
            log.warning("router.failed", trigger=claim.id, error=said, fallback=context.by_source[claim.source])
            session_id = claim.session_id or claim.id  # one that can be chosen the next time
            return Route(workflow=context.by_source[claim.source], session_id=session_id)
        message = bounded(f"the router failed: {said}", MESSAGE_LIMIT)
        wait = wait_asked(error)
        code = ErrorCode.ROUTING_ERROR
        return Failed(code=code, message=message, retryable=True, retry_after=wait, details=met(error))
    return Cancelled() if run.stopped_by == "cancelled" else Released(reason="shutdown")
