"""Declared things: the workflows, actions and schedules of one app, and what they say about a trigger."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from craftcore.activities.model import OnUnknown
from craftcore.errors import ConfigInvalid, InvalidInput, UnknownWorkflow
from craftcore.notifications.model import NotifiedWorkflow
from craftcore.registry.action import Action, Declare, terms_of
from craftcore.registry.executor import Executor, find_executor_mistake
from craftcore.registry.message_lists import list_message_lists
from craftcore.registry.workflow import (
    Rate,
    Workflow,
    find_limit_by_mistake,
    find_option_mistake,
    order_mistake,
    parameters,
    read_seconds,
)
from craftcore.schedules.model import Declared, ScheduleSpec
from craftcore.serialization.arguments import Duration, list_of, require_member, require_whole_number
from craftcore.serialization.arguments import show_value as shown
from craftcore.serialization.encode import describe_error
from craftcore.serialization.untrusted import message_of, safe_repr
from craftcore.triggers.backoff import ATTEMPTS_MAX, RetryPolicy
from craftcore.triggers.model import NewTrigger, TriggerSource
from craftcore.triggers.validation import NAME, NAME_RULE
from craftcore.triggers.workflow_names import bare_name

if TYPE_CHECKING:
    from craftcore.registry.router import Router

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


class Registry:
    """Declarations of one app, as the engine reads them.

    `by_source` has the workflow for the triggers of a source that name none.
    """

    def __init__(self, name: str = "app", *, router: Router | None = None) -> None:
        if router is not None and not callable(getattr(router, "route", None)):
            raise ConfigInvalid(f"App: router {shown(router)} must have a method `async def route(trigger, context)`")
        self.name, self.router = name, router
        self._workflows: dict[str, Workflow] = {}
        self._actions: dict[str, Action] = {}
        self.workflows: Mapping[str, Workflow] = MappingProxyType(self._workflows)
        """The declared workflows by name. It can only be read."""
        self.actions: Mapping[str, Action] = MappingProxyType(self._actions)
        """The declared actions by name. It can only be read."""
        self.checks: list[Callable[[], Iterable[str]]] = []
        """Functions that `craftcore check` calls. Each returns sentences about what should be changed, which it prints
        as warnings; none: all is well."""
        self.retention_functions: list[Callable[..., object]] = []
        """The functions of `on_retention`, in the order of their declaration."""
        self.by_source: dict[str, str] = {}
        self.notified: dict[str, NotifiedWorkflow] = {}
        self.declared_schedules: dict[str, ScheduleSpec] = {}
        self.default_retry = RetryPolicy()
        self._engine: Any = None

    def attach(self, engine: Any) -> None:
        """Set the engine that runs these declarations, or None. Raises ConfigInvalid for a second engine."""
        if engine is not None and self._engine is not None:
            raise ConfigInvalid(f"app {self.name} is running already")
        self._engine = engine

    def workflow(
        self,
        name: str,
        *,
        sources: Iterable[TriggerSource | str] = (),
        max_attempts: int | None = None,
        timeout: Duration | None = None,
        deadline: Duration | None = None,
        retry: RetryPolicy | None = None,
        concurrency: int | None = None,
        rate: Rate | None = None,
        limit_by: str | None = None,
        version: str | None = None,
        fallback: Iterable[str] = (),
        executor: Executor = "thread",
    ) -> Callable[[F], F]:
        """Declare a workflow: an async function, or a plain one, which runs in a thread and cannot be cancelled. With
        `executor="process"` it runs in a worker process, which a timeout or a cancellation kills. With
        `executor="inline"` it runs on the event loop: for a function that returns at once, without a thread.

        A first parameter called `ctx` receives a TaskContext; the others are the payload's keys, converted to their
        annotations (dataclasses, msgspec structs and pydantic models included). `sources`: triggers of these sources
        that name no workflow come here. `timeout` is for one attempt, `deadline` for the whole task, from its first
        start to its end, waits included; both in seconds, None: no limit.
        Raises ConfigInvalid when the declaration contradicts itself or another one.

        At most `concurrency` of its triggers are claimed or running at once, and no more of its attempts start than
        `rate` allows. The rest waits in the table, and other workflows do not wait for it. Both count triggers that
        name this workflow, and those of its `sources` that name none. They do not count what a router sends here, nor
        fallbacks to it. With `limit_by` they count for each value of this parameter apart, or of `session_id`; a
        trigger without a value has no limit then.

        `fallback`: when it fails, these workflows are tried at once in the same attempt, each once, in
        this order. The attempt fails as the last of them did. There is no fallback once an irreversible action of the
        task has begun. `version="2.0"` declares `name@2.0`, which is another workflow; the version of a name without
        one is 1.0.
        """
        _require_name("workflow", name)
        if version is not None:
            given: object = version
            if not isinstance(given, str) or not given:
                raise ConfigInvalid(f'workflow {name}: version {shown(version)} must be text, as in version="2.0"')
            name = f"{name}@{version}"

        def declare(fn: F) -> F:
            self.declare(
                name,
                fn,
                sources=sources,
                max_attempts=max_attempts,
                timeout=timeout,
                deadline=deadline,
                retry=retry,
                concurrency=concurrency,
                rate=rate,
                limit_by=limit_by,
                fallback=fallback,
                executor=executor,
            )
            return fn

        return declare

    def declare(
        self,
        name: str,
        fn: Callable[..., Any],
        *,
        sources: Iterable[TriggerSource | str] = (),
        max_attempts: int | None = None,
        timeout: Duration | None = None,
        deadline: Duration | None = None,
        retry: RetryPolicy | None = None,
        concurrency: int | None = None,
        rate: Rate | None = None,
        limit_by: str | None = None,
        fallback: Iterable[str] = (),
        task_when: Callable[[str], bool] | None = None,
        executor: Executor = "thread",
    ) -> Workflow:
        """Declare a workflow, as `workflow` does, without the decorator.

        `task_when`: tests the payload's JSON, in a write transaction. Where it is False, the ctx is None.
        """
        name = bare_name(name)
        if not re.fullmatch(NAME, name):
            raise ConfigInvalid(f"workflow {name!r:.80}: a name is {NAME_RULE}")
        if name in self.workflows:
            raise ConfigInvalid(f"workflow {name} is declared twice")
        if concurrency is not None:
            require_whole_number(f"workflow {name}: concurrency", concurrency, 1, 1000, ConfigInvalid)
        if mistake := find_option_mistake(rate, retry, task_when) or find_executor_mistake(executor, fn):
            raise ConfigInvalid(f"workflow {name}: {mistake}")
        is_limited = concurrency is not None or rate is not None
        if self._engine is not None and is_limited:
            raise ConfigInvalid(f"workflow {name}: the app runs already; declare limits before it is started")
        if max_attempts is not None and retry is not None:
            raise ConfigInvalid(f"workflow {name}: give max_attempts or a retry policy, not both")
        if max_attempts is not None:
            require_whole_number(f"workflow {name}: max_attempts", max_attempts, 1, ATTEMPTS_MAX, ConfigInvalid)
        named: tuple[Any, ...] = list_of(f"workflow {name}: fallback", fallback, "names", ConfigInvalid)
        if wrong := order_mistake(name, named) or order_mistake(name, tuple(map(bare_name, named))):
            raise ConfigInvalid(f"workflow {name} has {wrong}")
        of = list_of(f"workflow {name}: sources", sources, "trigger sources", ConfigInvalid)
        read = parameters(name, fn)
        if deadline is not None and not read.takes_context:
            raise ConfigInvalid(f"workflow {name}: a deadline is for a task, and only a workflow with ctx is one")
        if mistake := find_limit_by_mistake(limit_by, is_limited=is_limited, read=read):
            raise ConfigInvalid(f"workflow {name}: {mistake}")
        workflow = Workflow(
            name=name,
            fn=fn,
            sources=tuple(self._source(name, each) for each in of),
            concurrency=concurrency,
            rate=rate,
            limit_by=limit_by,
            fallback=tuple(map(bare_name, named)),
            retry=retry,
            max_attempts=max_attempts,
            timeout=read_seconds(name, "timeout", timeout),
            deadline=read_seconds(name, "deadline", deadline),
            task_when=task_when,
            executor=executor,
            **read._asdict(),
        )
        self._workflows[name] = workflow
        self.by_source.update((source, name) for source in workflow.sources)
        return workflow

    def action(
        self,
        name: str,
        *,
        irreversible: bool | None = None,
        on_unknown: OnUnknown | str | None = None,
        idempotent_provider: bool = False,
        idempotency_window: Duration | None = None,
        timeout: Duration = 60.0,
        settle_after: Duration | None = None,
    ) -> Declare:
        """Declare an action for `ctx.act`: a function, async or plain, whose first parameter is the Call.

        With `irreversible=True` (email, payment, post, message) it goes through the ledger. Its intent is on disk
        before it is called, its result after; a completed call is not repeated. It ends by returning the provider's
        reference (text, or a mapping with `provider_ref`), by `raise NoEffect` (nothing happened, that is certain), or
        by `raise Fail` (the provider refused, and nothing happened). After anything else the outcome is unknown, and
        `on_unknown` applies: ASK unless given. Otherwise it is a step, and may be done again after a crash; a start
        warns of one whose name says that this would do harm, unless it has `irreversible=False`.

        `idempotent_provider`: it does one thing once for each `call.key`, for `idempotency_window` seconds (None: for
        ever). `timeout` is for one call, in seconds. `settle_after`: seconds after a call from which a "no" of
        `reconcile` is trusted; by default the timeout. A plain function runs in a thread, which is waited for. Raises
        ConfigInvalid when the declaration contradicts itself or another one.
        """
        _require_name("action", name)
        if irreversible is not None and not isinstance(irreversible, bool):
            raise ConfigInvalid(f"action {name}: irreversible {shown(irreversible)} must be True or False")

        def declare(fn: Any) -> Any:
            terms = terms_of(
                name,
                irreversible=bool(irreversible),
                on_unknown=on_unknown,
                idempotent_provider=idempotent_provider,
                idempotency_window=idempotency_window,
                timeout=timeout,
                settle_after=settle_after,
            )
            return self.declare_action(Action(name, fn, terms, is_marked=irreversible is not None))

        return declare

    def declare_action(self, action: Action[T]) -> Action[T]:
        """Declare an action, as `action` does, without the decorator. Raises ConfigInvalid."""
        if action.name in self.actions:
            raise ConfigInvalid(f"action {action.name} is declared twice")
        self._actions[action.name] = action
        return action

    def list_checks(self) -> list[str]:
        """Return the sentences of `checks`, one about each that fails, and one about each step with a list of
        messages."""
        found = list(list_message_lists(self.workflows))
        for check in self.checks:
            try:
                found.extend(str(sentence) for sentence in check())
            except Exception as error:
                found.append(f"{safe_repr(check):.80} of app.checks failed: {describe_error(error)}")
        return found

    def remove_workflow(self, name: str) -> None:
        """Forget the declaration of a workflow, if there is one."""
        if (removed := self._workflows.pop(name, None)) is not None:
            for source in removed.sources:
                del self.by_source[source]

    def remove_action(self, name: str) -> None:
        """Forget the declaration of an action, if there is one."""
        self._actions.pop(name, None)

    def policy_of(self, workflow: str | None) -> RetryPolicy:
        """Return the retry policy of a workflow, the default where it declares none or is unknown."""
        declared = self.workflows.get(workflow) if workflow is not None else None
        if declared is None:
            return self.default_retry
        if declared.max_attempts is not None:
            return replace(self.default_retry, max_attempts=declared.max_attempts)
        return declared.retry or self.default_retry

    def check(self, row: NewTrigger | Declared) -> None:
        """Refuse a trigger or schedule that could only fail: unknown workflow, or a payload that does not fit it."""
        if row.workflow is None:
            return
        workflow = self.workflows.get(row.workflow)
        if workflow is None:
            raise UnknownWorkflow(f"no workflow is named {row.workflow}; declared are {', '.join(self.workflows)}")
        try:
            workflow.arguments(row.payload_json)
        except BaseException as error:  # msgspec's own, or whatever the author's types raise
            raise InvalidInput(f"the payload does not fit {row.workflow}: {message_of(error)}") from error

    def check_fallbacks(self, others: Collection[str] = ()) -> None:
        """Raise ConfigInvalid for a fallback to a workflow that neither this declares nor `others` has."""
        lacking = [
            f"workflow {workflow.name} falls back to {name}, and no workflow of that name is declared"
            for workflow in self.workflows.values()
            for name in workflow.fallback
            if name not in self.workflows and name not in others
        ]
        if lacking:
            raise ConfigInvalid("\n".join(lacking))

    def check_actions(self) -> list[str]:
        """Return the actions that by their names cannot be taken back, and do not say whether they can.

        Raises ConfigInvalid for those that are to be reconciled, and nothing says how, and for those whose result JSON
        cannot become.
        """
        mistakes = [
            f"action {action.name}: on_unknown=RECONCILE, and no reconcile of it is declared"
            for action in self.actions.values()
            if action.lacks_reconciler
        ]
        for action in self.actions.values():
            try:
                action.result_type  # noqa: B018
            except ConfigInvalid as error:
                mistakes.append(error.message)
        if mistakes:
            raise ConfigInvalid("\n".join(mistakes))
        return [action.name for action in self.actions.values() if action.is_doubtful]

    def _source(self, workflow: str, value: object) -> TriggerSource:
        source = require_member(f"workflow {workflow}: source", value, TriggerSource, ConfigInvalid)
        if source in self.by_source:
            raise ConfigInvalid(f"source {source} goes to workflow {self.by_source[source]} and to {workflow}")
        return source


def _require_name(kind: str, name: object) -> None:
    """Raise ConfigInvalid for a decorator without its parentheses, which would declare nothing, and say so nowhere."""
    if not isinstance(name, str):
        raise ConfigInvalid(f'{kind} {shown(name)} has no name: declare it with @app.{kind}("its.name")')
