"""`craftcore check` warns of steps that take the messages of a chat as an argument."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from craftcore import App, TaskContext


class ModelMessage:
    """A message of a framework."""

    __module__ = "pydantic_ai.messages"


class Other:
    """Another type of a framework."""

    __module__ = "pydantic_ai.messages"


def count_all(history: list[str]) -> int:
    return len(history)


def ask(prompt: str, said: list[ModelMessage]) -> str:
    return prompt


def ask_any(said: Sequence[ModelMessage | str]) -> str:
    return ""


def add(numbers: list[int]) -> int:
    return sum(numbers)


def join(others: list[Other]) -> str:
    return ""


def name_only(messages: str) -> str:
    return messages


def build(**options: Any) -> App:
    app = App()

    @app.workflow("chat")
    async def chat(ctx: TaskContext[list[str]]) -> None:
        said: list[Any] = []
        numbers, text = [1], ""
        messages = ctx.state or []
        await ctx.step("count", count_all, said)
        await ctx.step("ask", ask, "hi", said)
        await ctx.step("ask any", ask_any, said)
        await ctx.step("model", len, messages)
        await ctx.step("kept", ask_any, said, on_change="keep")
        await ctx.step("add", add, numbers)
        await ctx.step("join", join, said)
        await ctx.step("text", name_only, text)
        await ctx.step("none", print)

    return app


def test_steps_with_lists_of_messages_are_named():
    found = build().list_checks()

    assert [sentence.split(":")[1].strip() for sentence in found] == [
        "step count takes the list history",
        "step ask takes the list said",
        "step ask any takes the list said",
        "step model takes the list messages",
    ]
    assert all('on_change="keep"' in sentence for sentence in found)


def test_workflow_without_source_is_left_out():
    app = App()
    names: dict[str, Any] = {}
    exec("async def silent(ctx): await ctx.step('a', len, messages)", names)
    app.workflow("silent")(names["silent"])

    assert app.list_checks() == []


def test_function_that_is_not_known_before_the_run_is_left_out():
    app = App()

    @app.workflow("late")
    async def late(ctx: TaskContext) -> None:
        chosen: Any = [len][0]
        await ctx.step("a", chosen, [1])
        await ctx.step("b", ctx.unknown.thing, [1])  # type: ignore[attr-defined]

    assert app.list_checks() == []
