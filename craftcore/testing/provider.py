"""A provider for tests: it takes the calls of an action, with the faults that a test asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from craftcore.clock import Clock
from craftcore.outcome_exceptions import NoEffect
from craftcore.registry.call import Call


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """An effect of an action on the world. `key` is the same for every call of one activity; `at`: epoch seconds;
    `life`: the number of the engine's life in which it was called, from 1."""

    action: str
    key: str
    arguments: Mapping[str, Any]
    at: float
    life: int


class Provider:
    """The provider behind one action. Each option is an attribute that a test may change at any time.

    returns        what a call returns: a value, or a function of the arguments
    dedupes        a second call with the same key does nothing, and returns what the first one did
    delay          seconds of virtual time that a call takes before it acts
    fails_before   number of calls from now on that fail before they act: the connection is refused
    resets_before  number of calls that are reset before they act; the caller cannot know
    resets_after   number of calls that act, and are reset then; the caller cannot know
    acts_late      seconds of virtual time after which a call that was reset acts; None: it never does
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

    async def take(self, call: Call, arguments: Mapping[str, Any], world: World) -> Any:
        """Take one call. Raises NoEffect or ConnectionResetError, as the options say."""
        self.calls += 1
        if self.delay:
            await world.clock.sleep(self.delay)
        if self.fails_before:
            self.fails_before -= 1
            raise NoEffect(f"{self.name} refused the connection")
        if self.resets_before:
            self.resets_before -= 1
            if self.acts_late is not None:
                world.call_later(self.acts_late, lambda: self._act(call, arguments, world, is_late=True))
            raise ConnectionResetError(f"{self.name} reset the connection")
        result = self._act(call, arguments, world)
        if self.resets_after:
            self.resets_after -= 1
            raise ConnectionResetError(f"{self.name} reset the connection")
        return result

    def _act(self, call: Call, arguments: Mapping[str, Any], world: World, *, is_late: bool = False) -> Any:
        if self.dedupes and call.key in self._done:
            return self._done[call.key]
        result = self.returns(**arguments) if callable(self.returns) else self.returns
        self._done[call.key] = result
        effect = Effect(
            action=self.name, key=call.key, arguments=dict(arguments), at=world.clock.now(), life=world.life
        )
        self.effects.append(effect)
        world.note(effect, is_late=is_late)
        return result


class World:
    """The part of a lab that providers see: the clock, and a place for effects. `life`: the number of the
    engine's life."""

    def __init__(self, clock: Clock, life: int, note: Note, later: Later) -> None:
        self.clock = clock
        self.life = life
        self.note = note
        self.call_later = later


class Note(Protocol):
    """Keeps an effect. `is_late`: it came after its call had been reset."""

    def __call__(self, effect: Effect, *, is_late: bool = False) -> None: ...


Later = Callable[[float, Callable[[], Any]], None]
"""(seconds of virtual time, function)"""
