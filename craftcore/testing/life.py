"""One life of the engine in a lab: from its boot to its end or its crash."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial, wraps
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import anyio.abc

from craftcore.app import App
from craftcore.config import Config
from craftcore.daemon.lifespan import running
from craftcore.engine.engine import Engine
from craftcore.errors import InvalidInput
from craftcore.outcome_exceptions import NoEffect
from craftcore.registry.action import Action
from craftcore.registry.call import Call
from craftcore.serialization.encode import encode
from craftcore.serialization.untrusted import is_awaitable
from craftcore.tasks.outcomes import Done
from craftcore.testing.effect import Effect
from craftcore.testing.provider import Provider
from craftcore.testing.virtual_clock import VirtualClock
from craftcore.testing.world import World

BUSY_SECONDS = 60.0
"""Seconds of real time for which an engine may be busy. Then the lab raises TimeoutError."""


class Original(NamedTuple):
    """The functions that the app declares for an action, kept while those of the lab are in their places."""

    fn: Callable[..., Any]
    is_async: bool
    reconciler: Callable[..., Any] | None


class Life:
    """An engine that runs as a task of the lab.

    `is_dead`: the lab crashed it. Its threads may still run, and their effects do not count.
    """

    def __init__(self, app: App, database: Path, config: Config, clock: VirtualClock, world: World) -> None:
        self.app = app
        self.is_dead = False
        self._database = database
        self._config = config
        self._clock = clock
        self._world = world
        self._number = world.life
        self._originals: dict[Action, Original] = {}
        self._scope = anyio.CancelScope()
        self._engine: Engine
        self._is_to_end, self._has_ended = anyio.Event(), anyio.Event()

    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        """Boot, and run until `stop`. Raises the error that ends the engine, unless the engine is dead."""
        try:
            with self._scope:
                async with running(self.app, self._database, self._config, self._clock, held_back=True) as engine:
                    self._engine = engine
                    self.replace_actions()
                    engine.begin()
                    task_status.started()
                    await self._is_to_end.wait()
        except Exception:
            if not self.is_dead:
                raise
        finally:
            for action, original in self._originals.items():
                action.fn, action.is_async, action.reconciler = original
            self._has_ended.set()

    async def stop(self) -> None:
        """End the engine in order, or at once when it is dead. Wait until it has ended."""
        if self.is_dead:
            self._scope.cancel()
        self._is_to_end.set()
        await self._has_ended.wait()

    async def wait_until_idle(self) -> None:
        """Run until nothing is left to do at this moment. Raises TimeoutError after BUSY_SECONDS of real time."""
        self._engine.ring(schedules=True)
        with anyio.move_on_after(BUSY_SECONDS):
            while not self._is_idle():  # noqa: ASYNC110 - an engine has no event for this
                await anyio.sleep(0.0005)
            return
        names = sorted({run.workflow for run in self._engine.consumer.running.values()})
        runs = ", ".join(names) or "nothing"
        raise TimeoutError(f"the engine is still busy after {BUSY_SECONDS:g} s of real time; it runs {runs}")

    def _is_idle(self) -> bool:
        """Return whether nothing is left to do at this moment. Attempts that sleep in virtual time do not count."""
        engine, asleep = self._engine, self._clock.sleeping
        if not asleep:
            return engine.is_idle
        is_drained = engine.scheduler.is_drained and engine.feeder.is_drained and not engine.feeder.is_polling
        return is_drained and len(engine.held_claims) <= asleep and engine.consumer.is_idle_beside(asleep)

    def replace_actions(self) -> None:
        """Replace the functions of every action: a provider of the test takes the calls, or their effects are noted."""
        for name, action in list(self.app.actions.items()):
            if action not in self._originals:
                self._originals[action] = Original(action.fn, action.is_async, action.reconciler)
            provider = self._world.providers.get(name)
            fn, is_async, reconciler = self._originals[action]
            if provider is not None:
                action.fn, action.is_async = _route_calls(fn, provider, self._world), True
                is_typed = action.result_shape is not None
                action.reconciler = reconciler and partial(_look_up, provider, self._world, is_typed)
            else:
                action.fn = self._note_calls(action, fn) if not is_async else self._note_async_calls(action, fn)

    def _note_calls(self, action: Action, fn: Callable[..., Any]) -> Callable[..., Any]:
        async def await_and_note(made: Awaitable[Any], call: Call, arguments: Mapping[str, Any]) -> Any:
            result = await made
            self._note(action, call, arguments, result)
            return result

        @wraps(fn)
        def call_and_note(call: Call, /, **arguments: Any) -> Any:
            result = fn(call, **arguments)
            if is_awaitable(result):
                return await_and_note(result, call, arguments)
            self._note(action, call, arguments, result)
            return result

        return call_and_note

    def _note_async_calls(self, action: Action, fn: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(fn)
        async def call_and_note(call: Call, /, **arguments: Any) -> Any:
            result = await fn(call, **arguments)
            self._note(action, call, arguments, result)
            return result

        return call_and_note

    def _note(self, action: Action, call: Call, arguments: Mapping[str, Any], result: Any) -> None:
        """Note the effect of a call. An idempotent provider has none for a second call with the same key."""
        if self.is_dead:  # the thread of the call went on after the crash
            return
        if action.terms.idempotent_provider and any(effect.key == call.key for effect in self._world.effects):
            return
        try:
            answer = json.loads(encode(result, "result"))
        except InvalidInput:
            answer = None
        self._world.note(
            Effect(action=action.name, key=call.key, arguments=arguments, at=self._clock.now(), life=self._number),
            answer,
        )


async def _look_up(
    provider: Provider, world: World, is_typed: bool, call: Call, /, **_arguments: Any
) -> Done[Any] | NoEffect | None:
    return provider.look_up(call.key, world, is_typed=is_typed)


def _route_calls(fn: Callable[..., Any], provider: Provider, world: World) -> Callable[..., Any]:
    @wraps(fn)
    async def take(call: Call, /, **arguments: Any) -> Any:
        return await provider.take(call, arguments, world)

    return take
