"""The world outside of an app under test: it outlives the engine, and remembers what was done to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from craftcore.clock import Clock
from craftcore.errors import StateRefused
from craftcore.registry.action import Action
from craftcore.serialization.encode import encode
from craftcore.testing.effect import Effect, LateCall
from craftcore.testing.provider import Provider


class World:
    """The providers of a lab, their calls that are still on the way, and every effect. `life`: the number of the
    engine's life that runs."""

    def __init__(self, clock: Clock, providers: dict[str, Provider]) -> None:
        self.clock = clock
        self.life = 0
        self.effects: list[Effect] = []
        self.providers = providers
        self.late: list[LateCall] = []
        self.results: dict[str, Any] = {}
        """The result of the last call of each key, as far as it is JSON."""
        self.refusal: str | None = None
        """Why a stand-in could not take a call; None: all could."""

    def note(self, effect: Effect, result: Any = None) -> None:
        """Keep an effect. `result`: what was returned for it."""
        self.effects.append(effect)
        self.results[effect.key] = result

    def find_reference(self, key: str | None, actions: Mapping[str, Action]) -> str | None:
        """Return the reference by which a person tells what was returned for an act that happened; None without."""
        effect = next((effect for effect in self.effects if effect.key == key), None)
        if effect is None or (result := self.results.get(effect.key)) is None:
            return None
        if isinstance(result, str):
            return result
        return None if actions[effect.action].result_shape is None else encode(result, "result")

    def refuse(self, message: str) -> None:
        """Let the lab raise InvalidInput."""
        self.refusal = message

    def note_provider(self, provider: Provider) -> None:
        """Keep how many calls a provider has taken. A lab that lives in one process has them in the provider."""

    def note_late(self, call: LateCall) -> None:
        """Keep a call that acts later."""
        self.late.append(call)

    def act_late(self, now: float) -> None:
        """Let the calls act whose time has come."""
        ready = [call for call in self.late if call.at <= now]
        self.late = [call for call in self.late if call.at > now]
        for call in ready:
            self.providers[call.action].act(call.key, call.arguments, call.life, self)


_worlds: list[World] = []


@contextmanager
def world_of_process(world: World) -> Iterator[None]:
    """Let `record_effect` write into this world while the block lasts."""
    _worlds.append(world)
    try:
        yield
    finally:
        _worlds.remove(world)


def record_effect(name: str, **arguments: Any) -> None:
    """Note an effect of code that reaches the world without an action, such as a plain step that sends an email.

    Call it in the stand-in of a test. `lab.effects(name)` and the invariants of a crash matrix see it.
    Raises StateRefused when no lab is open.
    """
    if not _worlds:
        raise StateRefused(f"record_effect({name!r}): no lab is open")
    world = _worlds[-1]
    world.note(Effect(action=name, key="", arguments=arguments, at=world.clock.now(), life=world.life))
