"""A declared action: what a workflow does to the world with `ctx.act`, and on which terms."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Protocol, overload

from craftcore.activities.model import ActionTerms, OnUnknown
from craftcore.activities.result_shape import shape_of
from craftcore.errors import ConfigInvalid, InvalidInput
from craftcore.outcome_exceptions import LONGEST_WAIT
from craftcore.registry.call import Call
from craftcore.serialization.annotations import is_async, return_type
from craftcore.serialization.arguments import Duration, to_seconds
from craftcore.serialization.arguments import show_value as shown
from craftcore.triggers.validation import NAME_RULE, is_name

if TYPE_CHECKING:  # Python 3.13 has both with a default of its own: a bare Action is Action[Any, ...]
    from typing_extensions import ParamSpec, TypeVar

    R = TypeVar("R", covariant=True, default=Any)
    P = ParamSpec("P", default=...)
else:
    from typing import ParamSpec, TypeVar

    R = TypeVar("R", covariant=True)
    P = ParamSpec("P")

F = Callable[..., Any]
T = TypeVar("T")

TIMEOUT_MAX_SECONDS = 86_400.0

IRREVERSIBLE_WORDS = {
    *("email", "mail", "message", "sms", "send", "post", "publish"),
    *("pay", "payment", "charge", "refund", "transfer"),
}
"""Words in the names of irreversible actions."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


class Declare(Protocol):
    """The decorator of `@app.action(…)`: it takes the function and returns the Action with the same result type and
    the same arguments, but for the call."""

    @overload
    def __call__(self, fn: Callable[Concatenate[Call, P], Awaitable[T]], /) -> Action[T, P]: ...

    @overload
    def __call__(self, fn: Callable[Concatenate[Call, P], T], /) -> Action[T, P]: ...


class Action(Generic[R, P]):
    """An action that was declared with `@app.action`. Call it with `ctx.act(action, …)`, from a workflow.

    `terms_of(arguments)`: the terms of one call, for ready-made actions whose configuration tells. `is_marked`: its
    author said whether it is irreversible.
    """

    def __init__(
        self,
        name: str,
        fn: F,
        terms: ActionTerms,
        *,
        terms_of: Callable[[Mapping[str, Any]], ActionTerms] | None = None,
        is_marked: bool = True,
    ) -> None:
        """Raise ConfigInvalid when a call could not be given to the function, or the terms contradict each other."""
        self.name = name
        self.fn = fn
        self.terms = terms
        self.reconciler: F | None = None
        self.is_async = is_async(fn)
        self._terms_of = terms_of
        self._is_marked = is_marked
        self._signature = _signature(f"action {name}", fn)
        self._names = frozenset(_named_parameters(self._signature))
        self._required = _required_names(self._signature)
        self._takes_rest = _has_any_keyword(self._signature)
        of_call = next(iter(inspect.signature(fn).parameters.values()))
        self._call_name = of_call.name if of_call.kind is of_call.POSITIONAL_OR_KEYWORD else None
        if not is_name(name):
            raise ConfigInvalid(f"action {name!r:.80}: a name is {NAME_RULE}")
        if mistakes := [*contradictions(terms)]:
            raise ConfigInvalid("\n".join(f"action {name}: {mistake}" for mistake in mistakes))

    if not TYPE_CHECKING:

        def __class_getitem__(cls, _types: Any) -> type[Action]:
            """Return the class: `Action[int]` means a result, and any arguments."""
            return cls

    def __call__(self, *call: Call, **arguments: Any) -> Any:
        """Return the function itself, given a Call of your own: outside the ledger, for a test of it.

        Raises InvalidInput without one: a workflow that means `await ctx.act(pay, …)` and says `await pay(…)`.
        """
        if len(call) != 1 or not isinstance(call[0], Call):
            raise InvalidInput(
                f"action {self.name} was not called: in a workflow say `await ctx.act(…)` with it, which keeps it from "
                "being done twice; called as a function its first argument is a Call"
            )
        return self.fn(*call, **arguments)

    def reconcile(self, fn: F) -> F:
        """Declare how to ask the provider what became of a call. `fn(call, **arguments)` gets the arguments of the
        action. It returns Done(reference) when the call happened, NoEffect when it did not and will not, and None when
        that is unknown. With RECONCILE the answer settles the doubt; with any other policy a person who is asked sees
        it.

        Raises ConfigInvalid.
        """
        if not self.terms.irreversible:
            raise ConfigInvalid(f"action {self.name}: only an irreversible action can be in doubt and be reconciled")
        if self.reconciler is not None:
            raise ConfigInvalid(f"action {self.name}: reconcile is declared twice")
        theirs = _signature(f"reconcile of action {self.name}", fn)
        if not _has_any_keyword(theirs) and (missing := self._signature.parameters.keys() - theirs.parameters.keys()):
            raise ConfigInvalid(
                f"reconcile of action {self.name}: it takes no {', '.join(sorted(missing))}, which the action does"
            )
        required = _required_names(theirs)
        if not self._takes_rest and (strange := required - self._names):
            raise ConfigInvalid(
                f"reconcile of action {self.name}: it needs {', '.join(sorted(strange))}, which that does not take"
            )
        self.reconciler = fn
        return fn

    @cached_property
    def result_type(self) -> Any:
        """The annotated result type. Looked at when the app starts: a class may be declared below it.

        Raises ConfigInvalid for one that cannot be evaluated, or that JSON cannot become.
        """
        try:
            return return_type(self.fn)
        except TypeError as error:
            raise ConfigInvalid(f"action {self.name}: {error}") from error

    @cached_property
    def result_shape(self) -> str | None:
        """The shape of its result, as the ledger keeps it. None: a task needs none."""
        return shape_of(self.result_type)

    @property
    def parameters(self) -> list[str]:
        """The names of its arguments, in order; without the call."""
        return list(self._signature.parameters)

    def terms_for(self, arguments: Mapping[str, Any]) -> ActionTerms:
        """Return the terms of a call with these arguments."""
        return self.terms if self._terms_of is None else self._terms_of(arguments)

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Raise InvalidInput for arguments that the function does not take, or lacks."""
        given = arguments.keys()
        if self._call_name in given:
            raise InvalidInput(
                f"action {self.name}: {self._call_name} is its name for the call; no argument is called so"
            )
        missing = self._required - given
        strange = frozenset() if self._takes_rest else given - self._names
        if missing and strange:
            wrong = f"needs {_join_names(missing)}; it was given {_join_names(strange)}, which it does not take"
        elif missing:
            wrong = f"needs {_join_names(missing)}"
        elif strange:
            takes = ", ".join(self._signature.parameters) or "no arguments"
            wrong = f"takes {takes}; it was given {_join_names(strange)}"
        else:
            return
        raise InvalidInput(f"action {self.name} {wrong}")

    @property
    def lacks_reconciler(self) -> bool:
        """It is to be reconciled, and nothing says how."""
        return self.terms.on_unknown is OnUnknown.RECONCILE and self.reconciler is None and self._terms_of is None

    @property
    def is_doubtful(self) -> bool:
        """By its name it cannot be taken back, and its author has not said whether it can."""
        return not self._is_marked and is_irreversible_name(self.name)


def is_irreversible_name(name: str) -> bool:
    """Return whether one of its words is one of those: `send_email` and `postMessage`, but not `postgres.query`."""
    words = {word.lower() for word in _WORD.findall(name)}
    return not IRREVERSIBLE_WORDS.isdisjoint(words | {word.removesuffix("s") for word in words})


def terms_of(
    name: str,
    *,
    irreversible: bool,
    on_unknown: OnUnknown | str | None,
    idempotent_provider: bool,
    idempotency_window: Duration | None,
    timeout: Duration,
    settle_after: Duration | None,
) -> ActionTerms:
    """Return the arguments of `@app.action` as terms. Raises ConfigInvalid for one that a reversible action cannot
    have."""
    in_doubt_only = {
        "on_unknown": on_unknown,
        "idempotent_provider": None if idempotent_provider is False else idempotent_provider,
        "idempotency_window": idempotency_window,
        "settle_after": settle_after,
    }
    if not irreversible and (given := [option for option, value in in_doubt_only.items() if value is not None]):
        raise ConfigInvalid(f"action {name}: {given[0]} is for an irreversible action: say irreversible=True")
    try:
        policy = OnUnknown.ASK if on_unknown is None else OnUnknown(on_unknown)
    except ValueError:
        raise ConfigInvalid(
            f"action {name}: on_unknown {shown(on_unknown)} must be one of {', '.join(OnUnknown)}"
        ) from None
    limit = to_seconds(timeout)
    return ActionTerms(
        irreversible=irreversible,
        on_unknown=policy,
        idempotent_provider=idempotent_provider,
        idempotency_window=None if idempotency_window is None else to_seconds(idempotency_window),
        timeout=limit,
        settle_after=limit if settle_after is None else to_seconds(settle_after),
    )


def contradictions(terms: ActionTerms) -> list[str]:
    """Return what cannot be meant."""
    mistakes = []
    switches: dict[str, object] = {"irreversible": terms.irreversible, "idempotent_provider": terms.idempotent_provider}
    for name, switch in switches.items():
        if not isinstance(switch, bool):
            return [f"{name} {shown(switch)} must be True or False"]
    given: dict[str, object] = {"timeout": terms.timeout, "settle_after": terms.settle_after}
    if terms.idempotency_window is not None:
        given["idempotency_window"] = terms.idempotency_window
    for name, seconds in given.items():
        if isinstance(seconds, bool) or not isinstance(seconds, int | float):
            return [f'{name} {shown(seconds)} must be seconds, a timedelta, or text like "10m"']
    if not 0 < terms.timeout <= TIMEOUT_MAX_SECONDS:
        mistakes.append(f"timeout {shown(terms.timeout)} must be more than 0 seconds, and at most a day")
    if not 0 <= terms.settle_after <= TIMEOUT_MAX_SECONDS:
        mistakes.append(f"settle_after {shown(terms.settle_after)} must be 0 seconds or more, and at most a day")
    if terms.on_unknown is OnUnknown.RESEND and not terms.idempotent_provider:
        mistakes.append(
            "on_unknown=RESEND repeats it, unless the provider drops a second call with the same key: "
            "say idempotent_provider=True if it does, or let a person decide"
        )
    window = terms.idempotency_window
    if window is not None and not terms.idempotent_provider:
        mistakes.append(
            "an idempotency_window is how long an idempotent_provider remembers; this provider is not idempotent"
        )
    if window is not None and window > LONGEST_WAIT:
        mistakes.append(f"idempotency_window {shown(window)} must be at most ten years; None means for ever")
    if window is not None and not window > terms.timeout:
        mistakes.append(
            f"idempotency_window {shown(window)} must be longer than the timeout of {terms.timeout:g} seconds"
        )
    return mistakes


def _signature(whose: str, fn: F) -> inspect.Signature:
    """Return the parameters beside the call. Raises ConfigInvalid."""
    bodies = (fn, getattr(fn, "__call__", None))  # noqa: B004
    if any(inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body) for body in bodies):
        raise ConfigInvalid(f"{whose}: a generator cannot be an action; its body would never run. Return instead")
    declared = list(inspect.signature(fn).parameters.values())
    if not declared or declared[0].kind not in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    ):
        raise ConfigInvalid(f"{whose}: its first parameter is the call, as in `async def send(call, *, to: str)`")
    rest = declared[1:]
    for parameter in rest:
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            raise ConfigInvalid(f"{whose}: parameter {parameter.name} cannot be given by name")
        if parameter.name == "key":
            raise ConfigInvalid(f"{whose}: no parameter may be called key, which ctx.act takes itself")
    return inspect.Signature(rest)


def _named_parameters(signature: inspect.Signature) -> dict[str, inspect.Parameter]:
    return {name: one for name, one in signature.parameters.items() if one.kind is not one.VAR_KEYWORD}


def _required_names(signature: inspect.Signature) -> frozenset[str]:
    return frozenset(name for name, one in _named_parameters(signature).items() if one.default is one.empty)


def _join_names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _has_any_keyword(signature: inspect.Signature) -> bool:
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values())
