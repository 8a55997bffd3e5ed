"""Questions with a form or an addressee: asked, answered from Python, refused, and asked again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_type

import msgspec
import pytest

from craftcore import App, Ask, Event, TaskContext, Timer
from craftcore.errors import InvalidInput, StateRefused
from tests.support.engine_harness import lab

pytestmark = pytest.mark.anyio


@dataclass
class Shipping:
    street: str
    count: int = 1


class Even(msgspec.Struct):
    number: int

    def __post_init__(self) -> None:
        if self.number % 2:
            raise ValueError("it is odd")


def build_app(seen: list[Any]) -> App:
    app = App()

    @app.workflow("ship")
    async def ship(ctx: TaskContext, timeout: float | None = None) -> str:
        default = None if timeout is None else Shipping("the default")
        answer = await ctx.ask("Where to?", form=Shipping, to="finance", timeout=timeout, default=default)
        assert_type(answer, Shipping | None)
        seen.append(answer)
        return f"{answer.street} {answer.count}" if answer is not None else "nowhere"

    @app.workflow("even")
    async def even(ctx: TaskContext, key: str | None = None) -> int:
        answer = await ctx.ask("Which?", form=Even, key=key)
        assert_type(answer, Even)
        await ctx.sleep(0)
        return answer.number

    @app.workflow("first")
    async def first(ctx: TaskContext) -> list[Any]:
        came = await ctx.wait_any({"even": Ask("Which?", form=Even, to="ada"), "go": Event("go"), "late": Timer("1d")})
        return [came.name, came.value.number]

    return app


async def test_answer_is_an_instance_of_the_form(tmp_path):
    seen: list[Any] = []
    app = build_app(seen)
    async with lab(app, tmp_path) as host:
        for answer in (Shipping("Main Street"), {"street": "Main Street"}, '{"street": "Main Street", "count": 1}'):
            work = await app.emit("ship")
            await host.waiting(work.id)
            [question] = await app.questions()
            assert (question.addressee, question.options) == ("finance", None)
            assert '"street"' in (question.form_json or "")

            await app.answer(question.id, answer, answered_by="bob")

            assert await work.result() == "Main Street 1"
    assert seen == [Shipping("Main Street")] * 3


async def test_answer_that_does_not_fit_leaves_the_question_open(tmp_path):
    app = build_app([])
    async with lab(app, tmp_path) as host:
        work = await app.emit("ship")
        await host.waiting(work.id)
        [question] = await app.questions()
        for wrong, why in (
            ({"street": 5}, "street must be text"),
            ({"count": 2}, "street is missing"),
            ("Main Street", "is not JSON of the form"),
            ({"street": "x", "town": "y"}, "town is not a field"),
        ):
            with pytest.raises(InvalidInput, match=why):
                await app.answer(question.id, wrong, answered_by="bob")
        assert await app.questions() == [question]

        await app.answer(question.id, {"street": "x", "count": 2}, answered_by="bob")
        with pytest.raises(StateRefused, match="too late"):
            await app.answer(question.id, {"street": "y"}, answered_by="bob")
        assert await work.result() == "x 2"


async def test_default_of_a_form_comes_after_the_timeout(tmp_path):
    seen: list[Any] = []
    app = build_app(seen)
    async with lab(app, tmp_path):
        assert await (await app.emit("ship", {"timeout": 0.01})).result() == "the default 1"
    assert seen == [Shipping("the default")]


@pytest.mark.parametrize("key", [None, "k"])
async def test_answer_that_only_the_class_refuses_is_asked_for_again(tmp_path, key):
    app = build_app([])
    async with lab(app, tmp_path) as host:
        work = await app.emit("even", {"key": key})
        for number, asked in ((1, "Which?"), (3, "it is odd"), (4, "it is odd")):
            await host.until(lambda: bool(host.rows("SELECT 1 FROM questions WHERE status = 'OPEN'")))
            [question] = await app.questions()
            assert asked in question.question
            assert question.question.count("An answer was refused") == (number != 1)
            await app.answer(question.id, {"number": number}, answered_by="bob")

        assert await work.result() == 4
        assert len(host.rows("SELECT 1 FROM questions WHERE status = 'ANSWERED'")) == 3


async def test_alternative_with_a_form_brings_its_instance(tmp_path):
    app = build_app([])
    async with lab(app, tmp_path) as host:
        work = await app.emit("first")
        for number in (1, 2):
            await host.until(lambda: bool(host.rows("SELECT 1 FROM questions WHERE status = 'OPEN'")))
            [question] = await app.questions()
            assert question.addressee == "ada"
            await app.answer(question.id, {"number": number}, answered_by="ada")

        assert await work.result() == ["even", 2]


async def test_question_that_cannot_be_asked_is_refused(tmp_path):
    app, refusals = App(), list[str]()

    @dataclass
    class Deep:
        inner: Shipping

    @app.workflow("wrong")
    async def wrong(ctx: TaskContext) -> None:
        calls: list[dict[str, Any]] = [
            {"form": Deep},
            {"form": Shipping, "options": ["a"]},
            {"form": Shipping, "by_message": True},
            {"to": "ada", "by_message": True},
            {"to": "the whole team"},
            {"form": Shipping, "timeout": 1, "default": Even(2)},
            {"form": Shipping, "timeout": 1, "default": {"street": 1}},
            {"form": object()},
        ]
        for call in calls:
            try:
                await ctx.ask("?", **call)
            except InvalidInput as error:
                refusals.append(error.message)

    async with lab(app, tmp_path) as host:
        assert (await host.ended((await app.emit("wrong")).id))["status"] == "DONE"
    for refusal, why in zip(
        refusals,
        [
            "inner is not text",
            "options or a form, not both",
            "by_message is for a question without form and to",
            "by_message is for a question without form and to",
            "must be the name of a person or group",
            "street is missing",
            "street must be text",
            "form",
        ],
        strict=True,
    ):
        assert why in refusal
