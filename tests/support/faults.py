"""Errors injected into functions of the engine that receive a certain trigger.

A first run without errors records every function of craftcore that receives the trigger as an argument, from the first
poll of the feeder to the settlement. The list is never written by hand, so each new function is included in the next
run.
"""

from __future__ import annotations

import functools
import gc
import inspect
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, Literal, NoReturn

import craftcore
from craftcore.engine.attempt import Attempt
from craftcore.engine.turn.turn import Turn

PACKAGE = str(Path(craftcore.__file__).parent) + "/"
STEPS = ("engine/", "triggers/", "tasks/", "executions/", "activities/")
"""The folders whose code starts, routes, runs and settles triggers. Storage has its own tests of faults."""

DEPTH = 6

When = Literal["before", "after"]

Place = tuple[Any, str, Callable[[Any], Any]]
"""A place where callers find a function: the owner, the name, and the wrapper of the function there."""


class Injected(Exception):
    """An error that no code of craftcore expects."""


def mentions(value: Any, name: str, depth: int = DEPTH) -> bool:
    """Return whether a value or a part of it is the id `name`."""
    if isinstance(value, str):
        return value == name
    if depth == 0:
        return False
    if isinstance(value, dict):
        return any(mentions(part, name, depth - 1) for item in value.items() for part in item)
    if isinstance(value, tuple | list | set | frozenset | deque):
        return any(mentions(part, name, depth - 1) for part in value)
    if isinstance(value, Attempt):
        return mentions(getattr(value, "claim", None), name, depth - 1)  # the constructor may still run
    if isinstance(value, Turn):
        return mentions(getattr(value, "run", None), name, depth - 1)
    if type(value).__module__.startswith("craftcore.engine."):
        turns = (getattr(value, attribute, None) for attribute in ("_turn", "turn"))
        if any(isinstance(turn, Turn) and mentions(turn, name, depth - 1) for turn in turns):
            return True
    if is_dataclass(value) and not isinstance(value, type):
        return any(mentions(getattr(value, field, None), name, depth - 1) for field in value.__dataclass_fields__)
    return False


class Recording:
    """A recorder of the functions that are called with a trigger, on this thread and on threads that it starts."""

    def __init__(self) -> None:
        self.name: str | None = None
        """The id of the trigger. The recording begins when a test sets it."""
        self.codes: dict[CodeType, None] = {}

    def __enter__(self) -> Recording:
        threading.setprofile(self._called)
        sys.setprofile(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _called(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or self.name is None or code in self.codes or not code.co_filename.startswith(PACKAGE):
            return
        if not code.co_filename.removeprefix(PACKAGE).startswith(STEPS) or code.co_name.startswith("<"):
            return
        arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        if any(mentions(frame.f_locals.get(each), self.name) for each in arguments):
            self.codes[code] = None

    def functions(self) -> list[FunctionType]:
        """Return the functions that can be replaced: functions of modules and methods of classes."""
        gc.unfreeze()  # pytest froze its objects, and the garbage collector lists no frozen object
        found = [fn for fn in gc.get_objects() if isinstance(fn, FunctionType) and fn.__code__ in self.codes]
        gc.freeze()
        places = _all_places()
        return sorted((fn for fn in found if fn in places), key=_full_name)


def _full_name(fn: Callable[..., Any]) -> str:
    return f"{fn.__module__}.{fn.__qualname__}"


def _places(fn: FunctionType) -> list[Place]:
    """Return the places where callers find a function."""
    return _all_places().get(fn, [])


def _all_places() -> dict[FunctionType, list[Place]]:
    """Return the places of all functions of craftcore."""
    found: dict[FunctionType, list[Place]] = {}
    for module in [module for name, module in sys.modules.items() if name.startswith("craftcore")]:
        for name, value in list(vars(module).items()):
            if isinstance(value, FunctionType):
                found.setdefault(value, []).append((module, name, lambda made: made))
            elif isinstance(value, type) and value.__module__ == module.__name__:
                for key, member in list(vars(value).items()):
                    if isinstance(member, FunctionType):
                        found.setdefault(member, []).append((value, key, lambda made: made))
                    elif isinstance(member, staticmethod | classmethod):
                        found.setdefault(member.__func__, []).append((value, key, type(member)))  # type: ignore[arg-type]
                    elif isinstance(member, property) and isinstance(member.fget, FunctionType):
                        found.setdefault(member.fget, []).append((value, key, property))
    return found


class Fault:
    """One function that raises when it receives the trigger, at most `times` times, while the fault is armed.

    `when`: before the function runs, or after it has run.
    """

    def __init__(self, fn: FunctionType, name: str, times: float, when: When = "before") -> None:
        self.fn = fn
        self.name = name
        self.left = times
        self.when = when
        self.armed = False
        self.raised = 0

    def _is_met(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> bool:
        return self.armed and self.left > 0 and mentions((arguments, named), self.name)

    def _raise(self) -> NoReturn:
        self.left -= 1
        self.raised += 1
        raise Injected(f"injected {self.when} {_full_name(self.fn)}")

    @contextmanager
    def installed(self) -> Iterator[Fault]:
        fn = self.fn

        @functools.wraps(fn)
        def wrapped(*arguments: Any, **named: Any) -> Any:
            is_met = self._is_met(arguments, named)
            if is_met and self.when == "before":
                self._raise()
            answer = fn(*arguments, **named)
            if is_met:
                self._raise()
            return answer

        @functools.wraps(fn)
        async def awaited(*arguments: Any, **named: Any) -> Any:
            is_met = self._is_met(arguments, named)
            if is_met and self.when == "before":
                self._raise()
            answer = await fn(*arguments, **named)
            if is_met:
                self._raise()
            return answer

        made = awaited if inspect.iscoroutinefunction(fn) else wrapped
        before = [(owner, name, vars(owner)[name], how) for owner, name, how in _places(fn)]
        try:
            for owner, name, _, how in before:
                setattr(owner, name, how(made))
            yield self
        finally:
            for owner, name, value, _ in before:
                setattr(owner, name, value)
