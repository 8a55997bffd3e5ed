"""A declared workflow: a function, the type its payload must fit, and how much of it there may be at a time."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from types import NoneType, UnionType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from craftcore.errors import ConfigInvalid
from craftcore.executions.trigger_view import TriggerView
from craftcore.outcome_exceptions import LONGEST_WAIT
from craftcore.serialization.annotations import (
    RESULT,
    find_annotated_function,
    is_async,
    may_return_awaitable,
    unwrap_awaitable,
)
from craftcore.serialization.arguments import Duration, require_whole_number, seconds, show_value
from craftcore.serialization.decode import decode_custom
from craftcore.serialization.plurals import format_count
from craftcore.serialization.readable_types import readable_type
from craftcore.serialization.type_descriptions import describe_type
from craftcore.tasks.outcomes import Continue, Done
from craftcore.triggers.backoff import RetryPolicy
from craftcore.triggers.limit_keys import SESSION
from craftcore.triggers.model import TriggerSource
from craftcore.triggers.validation import is_name

RATE_COUNT_MAX = 10_000
RATE_PER_MAX = timedelta(days=366)


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `count` starts within any `per` (seconds, or a timedelta), wherever that begins.

    `Rate(10, per=60)`: ten may start at once, and the eleventh a minute after the first. Raises ConfigInvalid.
    """

    count: int
    per: Duration = field(kw_only=True)

    def __post_init__(self) -> None:
        require_whole_number("rate: count", self.count, 1, RATE_COUNT_MAX, ConfigInvalid)
        seconds("rate: per", self.per, ConfigInvalid, most=RATE_PER_MAX.total_seconds(), above=True)

    @property
    def seconds(self) -> float:
        """`per`, in seconds."""
        return seconds("rate: per", self.per, ConfigInvalid, most=RATE_PER_MAX.total_seconds())


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflow:
    """A declared workflow. `retry` None: the configured default. `timeout` of an attempt and `deadline` of a task in
    seconds, None: no limit.

    `fallback`: the workflows that are tried when it fails, in this order.
    `state_type` is X of a `ctx: TaskContext[X]`; Any when it does not say.
    """

    name: str
    fn: Callable[..., Any]
    sources: tuple[TriggerSource, ...]
    fallback: tuple[str, ...]
    concurrency: int | None
    """How many of its triggers may be claimed or running at once; None: no limit."""
    rate: Rate | None
    """How often one of its attempts may start; None: no limit."""
    limit_by: str | None
    """The parameter, or `session_id`, for each value of which both limits count apart; None: they count all."""
    retry: RetryPolicy | None
    max_attempts: int | None
    timeout: float | None
    deadline: float | None
    is_async: bool
    takes_context: bool
    payload_type: type[msgspec.Struct]
    takes_rest: bool
    state_type: Any
    received_type: Any = Any
    """The type of `ctx.received`: Y of a `ctx: TaskContext[X, Y]`; Any when it does not say."""
    result_type: Any = Any
    """The type of its result, as `read_result_type` has it."""
    executor: str = "thread"
    """Where a plain function runs: `thread`, `inline` or `process`."""
    takes_trigger: str | None = None
    """The keyword that is given the trigger of the attempt, a TriggerView; None: it asks for none."""
    task_when: Callable[[str], bool] | None = None
    """A test of the payload for becoming a task; when it fails, ctx is None. None: every payload, if the function takes
    ctx."""

    def is_task(self, payload_json: str) -> bool:
        """Return whether a trigger with this payload begins a task."""
        return self.takes_context and (self.task_when is None or self.task_when(payload_json))

    @property
    def agents(self) -> tuple[str, ...]:
        """It, and what is tried when it fails; () when there is nothing to fall back to."""
        return (self.name, *self.fallback) if self.fallback else ()

    @property
    def is_inline(self) -> bool:
        """It is a plain function that runs on the event loop."""
        return self.executor == "inline"

    @property
    def in_process(self) -> bool:
        """It runs in a worker process."""
        return self.executor == "process"

    @property
    def is_limited(self) -> bool:
        return self.concurrency is not None or self.rate is not None

    def arguments(self, payload_json: str) -> dict[str, Any]:
        """Return the keyword arguments of a payload, converted to the annotations.

        Raises msgspec.ValidationError when it does not fit, msgspec.DecodeError when it is not JSON.
        """
        payload = msgspec.json.decode(payload_json, type=self.payload_type, dec_hook=decode_custom)
        named = {
            name: value
            for name in self.payload_type.__struct_fields__
            if (value := getattr(payload, name)) is not msgspec.UNSET
        }
        if not self.takes_rest:
            return named
        rest = msgspec.json.decode(payload_json, type=dict[str, Any])
        for own in ("ctx" if self.takes_context else None, self.takes_trigger):
            if own is not None and own in rest:
                raise msgspec.ValidationError(f"Object contains the field `{own}`, which is the workflow's own")
        return {**rest, **named}


class Parameters(NamedTuple):
    """The signature of a workflow: the type of its named parameters, whether it takes other keys, the type of its
    state, and the keyword that receives the trigger."""

    is_async: bool
    takes_context: bool
    payload_type: type[msgspec.Struct]
    takes_rest: bool
    state_type: Any
    received_type: Any
    result_type: Any
    takes_trigger: str | None


def find_option_mistake(rate: object, retry: object, task_when: object) -> str | None:
    """Return what is wrong with the type of an option; None: nothing."""
    for option, value, is_right, expected in (
        ("rate", rate, isinstance(rate, Rate), "a Rate, as in Rate(10, per=60)"),
        ("retry", retry, isinstance(retry, RetryPolicy), "a RetryPolicy, as in RetryPolicy(max_attempts=3)"),
        ("task_when", task_when, callable(task_when), "a function of the payload's JSON"),
    ):
        if value is not None and not is_right:
            return f"{option} {show_value(value)} must be {expected}"
    return None


def read_seconds(workflow: str, name: str, value: Duration | None) -> float | None:
    """Return an option in seconds. Raises ConfigInvalid."""
    what = f"workflow {workflow}: {name}"
    return None if value is None else seconds(what, value, ConfigInvalid, most=LONGEST_WAIT, above=True)


def find_limit_by_mistake(limit_by: object, *, is_limited: bool, read: Parameters) -> str | None:
    """Return what is wrong with the key of a limit; None: nothing."""
    if limit_by is None:
        return None
    if not isinstance(limit_by, str) or not limit_by.isidentifier():
        return f"limit_by {show_value(limit_by)} must be the name of a parameter, or session_id"
    if not is_limited:
        return "limit_by says for what a limit counts; give concurrency or rate with it"
    if limit_by == SESSION or read.takes_rest or limit_by in read.payload_type.__struct_fields__:
        return None
    return f"limit_by {show_value(limit_by)} must be a parameter of it, or session_id"


FALLBACK_MAX = 20
"""How many workflows may be tried after one."""


def order_mistake(workflow: object, fallback: object) -> str | None:
    """Return what is wrong with an order of workflows in which each is tried once; None: nothing."""
    if not isinstance(fallback, tuple) or not all(is_name(name) for name in fallback):
        return f"fallback {fallback!r:.200}, which must be a list of names"
    if workflow is None:
        return f"fallback {', '.join(fallback)} of no workflow"
    if len({workflow, *fallback}) <= len(fallback):
        return f"fallback {', '.join(fallback)} of {workflow}: an agent is listed twice, and each is tried once"
    return (
        f"a fallback of {format_count(len(fallback), 'workflow')}; at most {FALLBACK_MAX}"
        if len(fallback) > FALLBACK_MAX
        else None
    )


_read: WeakKeyDictionary[Callable[..., Any], Parameters] = WeakKeyDictionary()
"""The parameters of functions that were declared before: each start of an engine declares the ready-made workflows."""


def parameters(name: str, fn: Callable[..., Any]) -> Parameters:
    """Read a function's signature, once. Raises ConfigInvalid when no payload or no state could be given to it."""
    if not inspect.isfunction(fn):
        return _read_parameters(name, fn)
    if (read := _read.get(fn)) is None:
        read = _read[fn] = _read_parameters(name, fn)
    return read


def _read_parameters(name: str, fn: Callable[..., Any]) -> Parameters:
    bodies = (fn, getattr(fn, "__call__", None))  # noqa: B004
    if any(inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body) for body in bodies):
        raise ConfigInvalid(
            f"workflow {name}: a generator cannot be a workflow; its body would never run. Return instead"
        )
    try:
        declared = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError) as error:
        raise ConfigInvalid(f"workflow {name}: {show_value(fn)} must be a function") from error
    takes_context = bool(declared) and declared[0].name == "ctx"
    if takes_context:
        if not may_return_awaitable(fn):
            raise ConfigInvalid(f"workflow {name}: a plain function has no ctx; make it async")
        declared = declared[1:]
    if declared and declared[0].name == "self":
        raise ConfigInvalid(
            f"workflow {name}: its first parameter is self: declare the method of an object, as in "
            f'app.declare("{name}", service.method)'
        )
    try:
        hints = typing.get_type_hints(find_annotated_function(fn), include_extras=True)
    except Exception as error:  # an annotation is an expression, and may raise anything
        raise ConfigInvalid(f"workflow {name}: its annotations cannot be read ({error})") from error
    fields: list[Any] = []
    views = [parameter for parameter in declared if _strip_optional(hints.get(parameter.name)) is TriggerView]
    if len(views) > 1 or (views and (takes_context or views[0].kind is not inspect.Parameter.KEYWORD_ONLY)):
        why = "its ctx.trigger is the same" if takes_context else "declare one, after a *: `*, trigger: TriggerView`"
        raise ConfigInvalid(f"workflow {name}: parameter {views[-1].name} cannot be given the trigger: {why}")
    declared = [parameter for parameter in declared if parameter not in views]
    takes_rest = bool(declared) and declared[-1].kind is inspect.Parameter.VAR_KEYWORD
    for parameter in declared[:-1] if takes_rest else declared:
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            raise ConfigInvalid(f"workflow {name}: parameter {parameter.name} cannot be given by name")
        try:
            hint = readable_type(hints.get(parameter.name, Any), f"parameter {parameter.name}")
        except TypeError as error:
            raise ConfigInvalid(f"workflow {name}: {error}") from error
        if parameter.default is parameter.empty:
            fields.append((parameter.name, hint))
        else:
            fields.append((parameter.name, hint | msgspec.UnsetType if hint is not Any else Any, msgspec.UNSET))
    payload_type = msgspec.defstruct("payload", fields, forbid_unknown_fields=not takes_rest, kw_only=True)
    describe_type(payload_type)
    of_context = typing.get_args(_strip_optional(hints.get("ctx"))) if takes_context else ()
    try:
        state_type = readable_type(of_context[0] if of_context else Any, "state")
        received_type = readable_type(of_context[1] if len(of_context) > 1 else Any, "received")
        result_type = read_result_type(hints.get("return", Any))
    except TypeError as error:
        raise ConfigInvalid(f"workflow {name}: {error}") from error
    takes_trigger = views[0].name if views else None
    return Parameters(
        is_async(fn), takes_context, payload_type, takes_rest, state_type, received_type, result_type, takes_trigger
    )


def find_result_type(fn: Callable[..., Any]) -> Any:
    """Return the type of the result of a workflow, as `read_result_type` does."""
    hints = typing.get_type_hints(find_annotated_function(fn), include_extras=True)
    return read_result_type(hints.get("return", Any))


def read_result_type(hint: Any) -> Any:
    """Return the type of the result of a workflow that is annotated so: what it returns besides Continue, and X of a
    `Done[X]`. Any for one that only continues. Raises TypeError for what JSON cannot become."""
    hint = unwrap_awaitable(hint)
    members = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, UnionType) else (hint,)
    results = [_result_member(member) for member in members if Continue not in (member, typing.get_origin(member))]
    return readable_type(typing.Union[tuple(results)], RESULT) if results else Any  # noqa: UP007 - made at run time


def _result_member(member: Any) -> Any:
    if member is Done:
        return Any
    return typing.get_args(member)[0] if typing.get_origin(member) is Done else member


def _strip_optional(hint: Any) -> Any:
    """Return X of `X | None`, any other type as it is."""
    if typing.get_origin(hint) not in (typing.Union, UnionType):
        return hint
    return next((kind for kind in typing.get_args(hint) if kind is not NoneType), hint)
