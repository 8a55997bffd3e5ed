"""The declaration of a workflow: types of state and payload, read from its function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pytest

from craftcore.errors import ConfigInvalid
from craftcore.registry.workflow import parameters

S = TypeVar("S")


class Context(Generic[S]):
    """A context that declares the type of its state."""


@dataclass
class Chat:
    messages: list[str]


class Socket:
    pass


async def chat(ctx: Context[Chat], text: str) -> None:
    pass


async def bare(ctx: Context, text: str) -> None:  # type: ignore[type-arg]
    pass


async def silent(ctx, text: str) -> None:
    pass


async def connected(ctx: Context[dict[str, Socket]]) -> None:
    pass


@pytest.mark.parametrize(("fn", "state_type"), [(chat, Chat), (bare, Any), (silent, Any)])
def test_state_has_the_type_given_in_the_context(fn, state_type):
    assert parameters("chat", fn).state_type is state_type


def test_workflow_without_a_context_has_untyped_state():
    def plain(text: dict[str, int]) -> None:
        pass

    assert parameters("chat", plain).state_type is Any


def test_state_type_outside_json_is_refused_at_declaration():
    with pytest.raises(ConfigInvalid, match=r"^workflow chat: state\[...\]: Socket is not a type that JSON can become"):
        parameters("chat", connected)


def test_payload_type_outside_json_is_refused_at_declaration():
    async def talk(ctx: Context[Chat], line: list[Socket]) -> None:
        pass

    with pytest.raises(ConfigInvalid, match=r"^workflow chat: parameter line\[...\]: Socket is not a type"):
        parameters("chat", talk)
