"""The first difference that the error of a conflict shows."""

from __future__ import annotations

from typing import Any

import pytest

from craftcore import App, TaskContext
from craftcore.engine.turn import argument_difference
from craftcore.engine.turn.argument_difference import TEXT_MAX_CHARS, TEXTS_MAX, describe_difference
from craftcore.engine.turn.steps import digest_of
from tests.support.engine_harness import lab

LONG = "The weather in Rome is mild, and it will stay so for the rest of the week, at "


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        ([5], [6], "argument 1 was 5 and is 6"),
        (["a", 5], ["a", "5"], 'argument 2 was 5 and is "5"'),
        ([True], [1], "argument 1 was true and is 1"),
        ([{"at": {"day": 1}}], [{"at": {"day": 2}}], "argument 1.at.day was 1 and is 2"),
        ([{"a": 1}], [{"a": 1, "b": 2}], "argument 1.b is new"),
        ([{"a": 1, "b": 2}], [{"a": 1}], "argument 1.b is gone"),
        ([["x", "y"]], [["x", "z"]], 'argument 1[1] was "y" and is "z"'),
        ([["x"]], [["x", "z"]], "argument 1 had 1 item and has 2"),
        ([1], [1, 2], "it had 1 argument and has 2"),
        ([{"api_key": "sk-1"}], [{"api_key": "sk-2"}], "argument 1.api_key has changed"),
        ([{"auth": {"Token": {"v": 1}}}], [{"auth": {"Token": {"v": 2}}}], "argument 1.auth.Token has changed"),
        ([LONG + "20 degrees"], [LONG + "21 degrees"], 'argument 1 was …st of the week, at 20 degrees" and is …st'),
    ],
)
def test_first_difference_is_shown(before, after, shown):
    assert shown in describe_difference(digest_of(before), digest_of(after))


def test_secret_is_not_shown():
    found = describe_difference(digest_of([{"api_key": "sk-1"}]), digest_of([{"api_key": "sk-2"}]))

    assert "sk-" not in found


def test_arguments_of_an_earlier_process_have_no_difference(monkeypatch):
    unseen = "0" * 32

    assert describe_difference(unseen, digest_of([1])) == ""
    assert describe_difference("", digest_of([1])) == ": it had no arguments"
    assert describe_difference(digest_of([1]), "") == ": it has no arguments now"


def test_kept_texts_are_bounded(monkeypatch):
    monkeypatch.setattr(argument_difference, "_texts", type(argument_difference._texts)())
    large = digest_of(["x" * TEXT_MAX_CHARS])
    digests = [digest_of([number]) for number in range(TEXTS_MAX + 1)]

    assert len(argument_difference._texts) == TEXTS_MAX
    assert large not in argument_difference._texts
    assert digests[0] not in argument_difference._texts


@pytest.mark.anyio
async def test_conflict_of_an_emit_shows_the_difference(tmp_path):
    app = App()

    @app.workflow("add")
    async def add(n: int) -> int:
        return n

    @app.workflow("begin", max_attempts=2)
    async def begin(ctx: TaskContext) -> Any:
        await ctx.emit("add", {"n": ctx.attempt})
        raise ValueError("once more")

    async with lab(app, tmp_path) as harness:
        row = await harness.settled((await app.emit("begin")).id)

    assert row["error_code"] == "STEP_CONFLICT"
    assert "payload.n was 1 and is 2. Give each its own key" in row["error_message"]
