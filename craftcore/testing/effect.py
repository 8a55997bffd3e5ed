"""Effects on the world outside of an app under test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """An effect on the world. `key` is the same for every call of one activity, and "" for code that is not an action.

    `at`: epoch seconds; `life`: the number of the engine's life in which it was called, from 1.
    """

    action: str
    key: str
    arguments: Mapping[str, Any]
    at: float
    life: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LateCall:
    """A call that was reset, and acts later. `at`: epoch seconds."""

    action: str
    key: str
    arguments: Mapping[str, Any]
    at: float
    life: int
