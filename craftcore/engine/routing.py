"""Rules of routing: the way of a trigger before a router is asked, and the context that a router decides by.

The first that applies: the task that the trigger began; an explicit live task; an explicit workflow; the live task of
its session, whatever its source. A message with a workflow goes to the live chat of its session and that workflow. For
one without a session: the router's choice when several are live. Then the workflow declared for the source, then the
router, if there is one.
"""

from __future__ import annotations

from typing import NamedTuple

from craftcore.executions.recorder import Routed
from craftcore.log import get_logger
from craftcore.registry.registry import Registry
from craftcore.registry.router import LiveSession, Route, RoutingContext, route_by_source
from craftcore.storage.transaction import Reader
from craftcore.tasks.model import Task
from craftcore.tasks.store import TaskStore
from craftcore.triggers.model import OWN_SOURCES, Claim, TriggerSource

log = get_logger(__name__)

SESSIONS_MAX = 100
"""How many live sessions a router gets to see."""


class Delivery(NamedTuple):
    """The trigger is a message to this live task."""

    task_id: str


class Routes:
    """The rules of one app. Each method runs on the transaction it is given."""

    def __init__(self, app: Registry) -> None:
        self._app = app
        self._tasks = TaskStore()

    def known_route(self, tx: Reader, claim: Claim) -> Routed | Delivery | None:
        """Return the route that needs no decision; None when the router of the app decides, or there is none."""
        if claim.starts > 1 and (own := self._tasks.get(tx, claim.id)) is not None:
            return Routed(own.workflow, "its own task")  # which is live, in its session: it is no message to that
        if claim.task_id is not None and claim.task_id != claim.id and claim.source not in OWN_SOURCES:
            named = self._tasks.get(tx, claim.task_id)
            if named is not None and named.status.is_live:
                return Delivery(named.id)
        is_message = claim.source == TriggerSource.MESSAGE
        if claim.workflow is not None:
            chat = None
            if is_message and claim.session_id is not None:
                chat = self._tasks.live_task_of_session(tx, claim.session_id, claim.workflow)
            return Routed(claim.workflow, "explicit workflow") if chat is None else Delivery(chat.id)
        chosen = claim.lane if is_message and claim.lane != claim.task_id else None  # by a router, when it was busy
        session = claim.session_id or chosen
        task = self._task_of_session(tx, session) if session is not None and claim.source not in OWN_SOURCES else None
        if task is not None:
            return Delivery(task.id)
        is_open = is_message and claim.session_id is None and self._app.router is not None
        if is_open and len(self._tasks.live_sessions(tx, 2)) > 1:
            return None
        return route_by_source(claim, self._app.by_source)

    def live_task(self, tx: Reader, route: Route) -> Task | None:
        """Return the live task that a router chose; None when it has ended."""
        if route.task_id is not None:
            task = self._tasks.get(tx, route.task_id)
            return task if task is not None and task.status.is_live else None
        return self._tasks.live_task_of_session(tx, route.session_id) if route.session_id is not None else None

    def _task_of_session(self, tx: Reader, session_id: str) -> Task | None:
        """Return its live task. One that is of no session is known by its own id: that is the lane it runs in."""
        task = self._tasks.live_task_of_session(tx, session_id) or self._tasks.get(tx, session_id)
        return task if task is not None and task.status.is_live else None

    def context(self, tx: Reader) -> RoutingContext:
        sessions = tuple(LiveSession(**row) for row in self._tasks.live_sessions(tx, SESSIONS_MAX))
        return RoutingContext(workflows=tuple(self._app.workflows), by_source=self._app.by_source, sessions=sessions)
