"""The answer of a page function: a template with its facts, or another address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page to be drawn. `facts`: the names that its template uses."""

    template: str
    title: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200


@dataclass(frozen=True, slots=True)
class Redirect:
    """The address that the browser asks for next, with GET. It begins with one `/`. `notice`: what the person reads
    there, once."""

    location: str
    notice: str = ""

    def __post_init__(self) -> None:
        assert self.location[:1] == "/" != self.location[1:2], self.location


Answer = Page | Redirect
