"""The checks of what a caller gives to a crash matrix, before anything runs."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import Any

import anyio

from craftcore.errors import InvalidInput
from craftcore.testing.promises import Invariant

BACKENDS = ("asyncio", "trio")


def require_scenario(scenario: object) -> None:
    """Refuse what cannot be called with a lab. Raises InvalidInput."""
    advice = "give an async function of one lab: async def scenario(lab)"
    if not callable(scenario):
        raise InvalidInput(f"the scenario is {_describe(scenario)}, which cannot be called: {advice}")
    if inspect.isasyncgenfunction(scenario):
        raise InvalidInput(f"the scenario {_describe(scenario)} yields: {advice}, which awaits and returns")
    if not _is_called_with_one(scenario):
        raise InvalidInput(f"the scenario {_describe(scenario)} cannot be called with a lab alone: {advice}")


def refuse_scenario(scenario: object, returned: object) -> str:
    """Return why a scenario is refused that returned something else than an awaitable."""
    return (
        f"the scenario {_describe(scenario)} is not async: it returned {_describe(returned)}. Declare it with async def"
    )


def require_invariants(invariants: object) -> Sequence[Invariant]:
    """Return the invariants. Raises InvalidInput for anything but functions of one ScenarioEnd."""
    advice = "give a list of functions of one ScenarioEnd, or leave it out"
    if isinstance(invariants, str) or not isinstance(invariants, Iterable):
        raise InvalidInput(f"invariants is {_describe(invariants)}: {advice}")
    found = tuple(invariants)
    for number, invariant in enumerate(found, 1):
        if not callable(invariant):
            raise InvalidInput(f"invariant {number} is {_describe(invariant)}, which cannot be called: {advice}")
        if inspect.iscoroutinefunction(invariant):
            raise InvalidInput(f"invariant {number}, {_describe(invariant)}, is async: make it a plain function")
        if not _is_called_with_one(invariant):
            raise InvalidInput(f"invariant {number}, {_describe(invariant)}, does not take one argument: {advice}")
    return found


def require_backend(backend: object) -> None:
    """Refuse an event loop that anyio lacks, and import it. Raises InvalidInput."""
    if backend not in BACKENDS:
        raise InvalidInput(f"backend is {_describe(backend)}: give asyncio or trio")
    try:
        anyio.run(anyio.sleep, 0, backend=str(backend))
    except LookupError as error:
        raise InvalidInput(f"backend is {backend}, which is not installed: pip install {backend}") from error


def require_jobs(jobs: object) -> None:
    """Refuse a number of crashes that cannot run at once. Raises InvalidInput."""
    if jobs is not None and (type(jobs) is not int or jobs < 1):
        raise InvalidInput(f"jobs is {jobs!r:.80}: give how many crashes run at once, 1 or more")


def require_progress(progress: object) -> None:
    """Refuse what cannot be called with two numbers. Raises InvalidInput."""
    if progress is not None and not callable(progress):
        raise InvalidInput(f"progress is {_describe(progress)}: give a function of the cells done and the cells known")


def _is_called_with_one(function: Any) -> bool:
    """Return whether a function can be called with one argument, as far as its signature shows."""
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:  # it has no signature
        return True
    return True


def _describe(value: object) -> str:
    """Return a short text for a value: the name of a function, or what it is."""
    name = getattr(value, "__name__", None)
    return name if callable(value) and isinstance(name, str) else f"{value!r:.80}"
