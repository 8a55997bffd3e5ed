"""Routes of triggers: the rules that need no judgement, and the question to an app's own router about the rest.

The order: the task that it began -> explicit task, if it lives -> explicit workflow -> a message: the live task of its
session; where it names none and several are live, the app's router -> the workflow declared for the source -> the
router, if there is one.
"""

from __future__ import annotations

from typing import NamedTuple

import anyio
import anyio.lowlevel
import structlog

from craftcore.engine.attempt import Run
from craftcore.engine.failure import met, wait_asked
from craftcore.engine.keyboard_interrupt import is_ctrl_c
from craftcore.errors import ErrorCode
from craftcore.executions.recorder import Routed
from craftcore.registry.registry import Registry
from craftcore.registry.router import LiveSession, Route, RoutedTrigger, Router, RoutingContext, by_source, checked
from craftcore.serialization.untrusted import MESSAGE_LIMIT, bounded, is_a, shown
from craftcore.storage.transaction import Reader
from craftcore.tasks.model import Task
from craftcore.tasks.store import TaskStore
from craftcore.triggers.model import Claim, TriggerSource
from craftcore.triggers.settlement import Cancelled, Failed, Outcome, Released

log = structlog.get_logger(__name__)

SESSIONS_MAX = 100
"""How many live sessions a router is told of."""

OWN = (TriggerSource.CONTINUATION, TriggerSource.RESUME)
"""Sources of ours: they carry on with the task they name."""


class Delivery(NamedTuple):
    """The trigger is a message to this live task."""

    task_id: str


class Routes:
    """The rules of one app. Each method runs on the transaction it is given."""

    def __init__(self, app: Registry) -> None:
        self._app = app
        self._tasks = TaskStore()

    def known(self, tx: Reader, claim: Claim) -> Routed | Delivery | None:
        """The way that needs nobody's judgement; None when the app's router is to be asked, or nobody knows."""
        if claim.starts > 1 and (own := self._tasks.get(tx, claim.id)) is not None:
            return Routed(own.workflow, "its own task")  # which is live, in its session: it is no message to that
        if claim.task_id is not None and claim.task_id != claim.id and claim.source not in OWN:
            named = self._tasks.get(tx, claim.task_id)
            if named is not None and named.status.is_live:
                return Delivery(named.id)
        if claim.workflow is not None:
            return Routed(claim.workflow, "explicit workflow")
        if claim.source == TriggerSource.MESSAGE:
            chosen = claim.lane if claim.lane != claim.task_id else None  # by a router, when it was busy
            session = claim.session_id or chosen
            task = self._of_session(tx, session) if session is not None else None
            if task is not None:
                return Delivery(task.id)
            is_named = claim.session_id is not None
            if self._app.router is not None and not is_named and len(self._tasks.live_sessions(tx, 2)) > 1:
                return None
        return by_source(claim, self._app.by_source)

    def live(self, tx: Reader, route: Route) -> Task | None:
        """The live task that a router chose; None when it has ended."""
        if route.task_id is not None:
            task = self._tasks.get(tx, route.task_id)
            return task if task is not None and task.status.is_live else None
        return self._tasks.live_of_session(tx, route.session_id) if route.session_id is not None else None

    def _of_session(self, tx: Reader, session_id: str) -> Task | None:
        """Its live task. One that is of no session is known by its own id: that is the lane it runs in."""
        task = self._tasks.live_of_session(tx, session_id) or self._tasks.get(tx, session_id)
        return task if task is not None and task.status.is_live else None

    def context(self, tx: Reader) -> RoutingContext:
        """What a router is told."""
        sessions = tuple(LiveSession(**row) for row in self._tasks.live_sessions(tx, SESSIONS_MAX))
        return RoutingContext(workflows=tuple(self._app.workflows), by_source=self._app.by_source, sessions=sessions)


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
