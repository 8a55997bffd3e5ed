"""A provider for tests: it takes the calls of an action, with the faults that a test asks for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from inspect import signature
from typing import Any, Literal, NamedTuple, Protocol

from craftcore.actions.email.email_action import EMAIL
from craftcore.actions.http.http_action import HTTP_REQUEST
from craftcore.activities.result_shape import make_sample
from craftcore.clock import Clock
from craftcore.errors import InvalidInput
from craftcore.outcome_exceptions import Fail, NoEffect
from craftcore.registry.action import Action
from craftcore.registry.call import Call
from craftcore.tasks.outcomes import Done
from craftcore.testing.effect import Effect, LateCall

NETWORKED = {
    EMAIL: {"provider_ref": "lab", "message_id": "<lab@craftcore.invalid>", "reply": "250 ok"},
    HTTP_REQUEST: {"status": 200, "headers": {}, "body": None},
}
"""The ready-made actions that a lab never lets onto the network, and what their calls return."""

Fault = Literal["fails_before", "resets_before", "resets_after"]


class Notes(Protocol):
    """The part of the world that a provider needs: the clock, the calls that act later, and a place for effects."""

    clock: Clock
    life: int
    late: list[LateCall]

    def note(self, effect: Effect, result: Any = None) -> None:
        """Keep an effect."""

    def refuse(self, message: str) -> None:
        """Let the lab raise InvalidInput."""

    def note_provider(self, provider: Provider) -> None:
        """Keep the counts of a provider."""

    def note_late(self, call: LateCall) -> None:
        """Keep a call that acts later."""


class Provider:
    """The provider behind one action. Each option is an attribute that a test may change at any time.

    returns        what a call returns: a value, or a function of the arguments. A lab makes one up that has the type
                   of the action
    dedupes        a second call with the same key does nothing, and returns what the first one did
    delay          seconds of virtual time that a call takes before it acts
    fails_before   number of calls from now on that fail before they act: the connection is refused
    resets_before  number of calls that are reset before they act; the caller cannot know
    resets_after   number of calls that act, and are reset then; the caller cannot know
    acts_late      seconds of virtual time after which a call that was reset acts; None: it never does

    Raises InvalidInput for an option of another type.
    """

    def __init__(
        self,
        name: str,
        *,
        returns: Any = None,
        dedupes: bool = False,
        delay: float = 0.0,
        fails_before: int = 0,
        resets_before: int = 0,
        resets_after: int = 0,
        acts_late: float | None = None,
    ) -> None:
        counts = {"fails_before": fails_before, "resets_before": resets_before, "resets_after": resets_after}
        _require_options(name, dedupes, counts, {"delay": delay, "acts_late": 0.0 if acts_late is None else acts_late})
        self.name = name
        self.returns = returns
        self.dedupes = dedupes
        self.delay = delay
        self.fails_before = fails_before
        self.resets_before = resets_before
        self.resets_after = resets_after
        self.acts_late = acts_late
        self.effects: list[Effect] = []
        """Its effects, in order."""
        self.calls = 0
        """How often it was called, whatever came of it."""
        self._done: dict[str, Any] = {}

    async def take(self, call: Call, arguments: Mapping[str, Any], world: Notes) -> Any:
        """Take one call. Raises NoEffect or ConnectionResetError, as the options say."""
        life = world.life
        fault = self._next_fault()
        world.note_provider(self)
        if self.delay:
            await world.clock.sleep(self.delay)
        if fault == "fails_before":
            raise NoEffect(f"{self.name} refused the connection")
        if fault == "resets_before":
            if self.acts_late is not None:
                at = world.clock.now() + self.acts_late
                world.note_late(LateCall(action=self.name, key=call.key, arguments=dict(arguments), at=at, life=life))
            raise ConnectionResetError(f"{self.name} reset the connection")
        result = self.act(call.key, arguments, life, world)
        if fault == "resets_after":
            raise ConnectionResetError(f"{self.name} reset the connection")
        return result

    def _next_fault(self) -> Fault | None:
        """Count a call, and return the fault that it meets."""
        self.calls += 1
        if self.fails_before:
            self.fails_before -= 1
            return "fails_before"
        if self.resets_before:
            self.resets_before -= 1
            return "resets_before"
        if self.resets_after:
            self.resets_after -= 1
            return "resets_after"
        return None

    def act(self, key: str, arguments: Mapping[str, Any], life: int, world: Notes) -> Any:
        """Note the effect of a call, unless the key is known and `dedupes`. Return what the call returns."""
        if self.dedupes and key in self._done:
            return self._done[key]
        if isinstance(self.returns, NoReturns):
            world.refuse(self.returns.message)
            raise Fail("NO_RETURNS", self.returns.message)
        result = self.returns(**arguments) if callable(self.returns) else self.returns
        effect = Effect(action=self.name, key=key, arguments=dict(arguments), at=world.clock.now(), life=life)
        self.remember(effect, result)
        world.note(effect, result)
        return result

    def look_up(self, key: str, world: Notes, *, is_typed: bool = False) -> Done[Any] | NoEffect | None:
        """Return what became of the calls of a key, as an action's reconcile function does; None: one acts later.

        `is_typed`: the action declares what it returns, and the answer has the result.
        """
        if key in self._done:
            result = self._done[key]
            return Done(result if is_typed and result is not None else f"{self.name}:{key}")
        if any(call.key == key for call in world.late):
            return None
        return NoEffect(f"{self.name} knows no call {key}")

    def remember(self, effect: Effect, result: Any) -> None:
        """Keep an effect, and the result by which a second call with its key is answered."""
        self._done[effect.key] = result
        self.effects.append(effect)

    @property
    def counts(self) -> dict[str, int]:
        """The attributes that calls change."""
        return {name: getattr(self, name) for name in ("calls", "fails_before", "resets_before", "resets_after")}


def make_networked_providers() -> dict[str, Provider]:
    """Return the providers of the actions that would reach a network."""
    return {name: Provider(name, returns=returns) for name, returns in NETWORKED.items()}


def _require_options(name: str, dedupes: object, counts: Mapping[str, object], lengths: Mapping[str, object]) -> None:
    """Refuse options that calls cannot count or wait for. Raises InvalidInput."""
    begin = f"provider {name!r:.80}"
    if not isinstance(dedupes, bool):
        raise InvalidInput(f"{begin}: dedupes is {dedupes!r:.80}: give True or False")
    for option, value in counts.items():
        if type(value) is not int or value < 0:
            raise InvalidInput(f"{begin}: {option} is {value!r:.80}: give a number of calls, 0 or more")
    for option, value in lengths.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
            raise InvalidInput(f"{begin}: {option} is {value!r:.80}: give seconds, 0 or more")


def require_action(name: str, known: Iterable[str]) -> None:
    """Refuse a provider of an action that an app lacks, because it would take no call. Raises InvalidInput."""
    names = sorted({*known, *NETWORKED})
    if name not in names:
        raise InvalidInput(f"provider {name!r:.80}: there is no such action; there are {', '.join(names)}")


class NoReturns(NamedTuple):
    """In place of what a stand-in returns: its action declares a type of which no value can be made up."""

    message: str


def make_default_returns(name: str, actions: Mapping[str, Action]) -> Any:
    """Return the result of a stand-in without `returns`: a value of the type that the action declares."""
    if name in NETWORKED:
        return NETWORKED[name]
    shape = actions[name].result_shape
    try:
        return None if shape is None else make_sample(shape, f"{name}-ref")
    except InvalidInput as error:
        given = f"give --provider {name}:returns=JSON, or returns=… in a test"
        return NoReturns(f"provider {name!r:.80}: {error.message}: {given}")


def require_option(action: str, name: str) -> None:
    """Refuse an option that no provider has. Raises InvalidInput."""
    if name not in OPTIONS:
        options = ", ".join(OPTIONS)
        raise InvalidInput(f"provider {action!r:.80}: there is no option {name!r:.80}; there are {options}")


OPTIONS = tuple(name for name, option in signature(Provider).parameters.items() if option.kind is option.KEYWORD_ONLY)
"""The names of the options of a provider."""
