"""Declarations of an app besides its workflows and actions: schedules, and functions that are notified."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Unpack

from craftcore.errors import ConfigInvalid, UnknownWorkflow
from craftcore.notifications.model import FAILURES, NotificationKind, NotifiedWorkflow
from craftcore.registry.registry import F, Registry
from craftcore.schedules.model import ScheduleOptions, ScheduleSpec
from craftcore.serialization.arguments import show_value


class Declarations(Registry):
    """The decorators and calls by which an app declares schedules and notified functions."""

    def schedule(
        self,
        id: str,
        when: str,
        *,
        workflow: str | None = None,
        payload: Mapping[str, Any] | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> None:
        """Declare a schedule. The arguments are those of ScheduleSpec.

        Taken over when the app starts, by id: the same declaration changes nothing, whenever that was; a changed one
        takes effect from then on; one that is gone is disabled. Raises ConfigInvalid for an id declared twice or an app
        that runs already, and when the app starts for what cannot be used.
        """
        self._declare_schedule(
            ScheduleSpec(id=id, when=when, workflow=workflow, payload={} if payload is None else payload, **options)
        )

    def every(self, interval: str, name: str | None = None, /, **options: Unpack[ScheduleOptions]) -> Callable[[F], F]:
        """Declare a workflow and its schedule: `@app.every("5m")`. The interval is that of `every 5m`.

        Both are called `name`; None: as the function. Options and errors are those of `schedule`.
        """
        return self._scheduled(f"every {interval}", name, options)

    def cron(self, expression: str, name: str | None = None, /, **options: Unpack[ScheduleOptions]) -> Callable[[F], F]:
        """Declare a workflow and its schedule: `@app.cron("0 7 * * *", timezone="Europe/Berlin")`.

        Both are called `name`; None: as the function. Options and errors are those of `schedule`.
        """
        return self._scheduled(expression, name, options)

    def find_name(self, fn: Callable[..., Any]) -> str:
        """Return the name of the workflow that is this function. Raises UnknownWorkflow."""
        for name, workflow in self.workflows.items():
            if workflow.fn == fn:  # a method is another object each time
                return name
        raise UnknownWorkflow(f"{show_value(fn)} is not declared as a workflow of app {self.name}")

    def _scheduled(self, when: str, name: str | None, options: ScheduleOptions) -> Callable[[F], F]:
        def declare(fn: F) -> F:
            id = _name_of(fn, "give the schedule a name") if name is None else name
            self.declare(id, fn)
            self.schedule(id, when, workflow=id, **options)
            return fn

        return declare

    def on_failure(self, fn: F) -> F:
        """Declare a workflow that is run for each trigger that becomes DEAD or FAILED: `@app.on_failure`.

        It takes one argument, a Notification, and is called `on_failure.` and the function's name. It runs at least
        once, with retries as any workflow; its own failure is not notified. Raises ConfigInvalid.
        """
        return self._declare_handler(fn, "on_failure", FAILURES)

    def on_question(self, fn: F) -> F:
        """Declare a workflow that is run for each question to a person, doubts about irreversible actions included.
        The rest is as for `on_failure`."""
        return self._declare_handler(fn, "on_question", ("question", "in_doubt"))

    def on_retention(self, fn: F) -> F:
        """Declare a plain function that removes rows of your own together with those of craftcore: `@app.on_retention`.

        `fn(tx, removed)` runs in the transaction in which retention removes up to about 500 rows. `removed` is a
        `Removed`, with the ids of tasks and triggers. It runs once more at the end of each hourly pass, with no ids.
        Its rules are those of `app.transaction`: it changes your tables only, and all functions have one second.

        An exception never stops retention. Nothing of these functions is written then, the rows of craftcore are
        removed without them, and `status` and `doctor` say so until a pass in which none fails. So a function is safest
        when it removes what belongs to no row of the table `tasks`, also what an earlier call has left.

        `craftcore db gc` and an app on a cluster do not call it. Raises ConfigInvalid for what is not a plain function.
        """
        given: object = fn
        if not callable(given) or inspect.iscoroutinefunction(given):
            raise ConfigInvalid(
                f"on_retention takes a plain function, not {show_value(fn)}: declare it with @app.on_retention and def"
            )
        try:
            inspect.signature(fn).bind(None, None)
        except TypeError as error:
            raise ConfigInvalid(f"on_retention: {show_value(fn)} must take (tx, removed)") from error
        self.retention_functions.append(fn)
        return fn

    def _declare_handler(self, fn: F, decorator: str, kinds: tuple[NotificationKind, ...]) -> F:
        if not callable(fn):
            raise ConfigInvalid(f"{decorator} takes no arguments: declare it with @app.{decorator}")
        name = f"{decorator}.{_name_of(fn, 'declare it with def')}"
        names = [each for each in inspect.signature(fn).parameters if each != "ctx"]
        if len(names) != 1:
            raise ConfigInvalid(f"workflow {name} must take one argument, a Notification, besides a ctx")
        self.declare(name, fn)
        self.notified[name] = NotifiedWorkflow(names[0], frozenset(kinds))
        return fn

    def _declare_schedule(self, spec: ScheduleSpec) -> None:
        """Add a schedule. Raises ConfigInvalid for an id declared twice, and for an app that runs already."""
        if not isinstance(spec.id, str):
            raise ConfigInvalid(f"schedule {show_value(spec.id)} must be the id of a schedule, as text")
        if self._engine is not None:
            raise ConfigInvalid(f"schedule {spec.id}: the app runs already; declare schedules before it is started")
        if spec.id in self.declared_schedules:
            raise ConfigInvalid(f"schedule {spec.id} is declared twice")
        self.declared_schedules[spec.id] = spec


def _name_of(fn: Callable[..., Any], advice: str) -> str:
    """Return the name of a function. Raises ConfigInvalid for a partial or an object, which has none."""
    name = getattr(fn, "__name__", None)
    if not isinstance(name, str):
        raise ConfigInvalid(f"{show_value(fn)} has no name of its own: {advice}")
    return name
