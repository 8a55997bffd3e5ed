"""Types that pydantic reads and msgspec does not: an annotation with one is honoured, or the value is refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

import pydantic
import pytest

from craftcore import App, ConfigInvalid, InvalidInput, TaskContext
from craftcore.activities.result_shape import describe_required, read_result, shape_of
from craftcore.registry.workflow import parameters
from craftcore.serialization.annotations import return_type
from craftcore.serialization.decode import decode
from craftcore.serialization.encode import encode
from craftcore.serialization.readable_types import readable_type
from craftcore.serialization.roundtrip import encode_roundtrip

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


class Usage(pydantic.BaseModel):
    tokens: int
    at: datetime = NOON


@dataclass
class Text:
    content: str
    kind: Literal["text"] = "text"


@dataclass
class ToolCall:
    name: str
    body: bytes
    took: timedelta = timedelta(0)
    kind: Literal["call"] = "call"


@dataclass
class Answer:
    """A response of a model, as the agent frameworks have it."""

    parts: list[Annotated[Text | ToolCall, pydantic.Discriminator("kind")]]
    usage: Usage = field(default_factory=lambda: Usage(tokens=0))


@dataclass
class Loose:
    parts: list[Text | ToolCall]


@dataclass
class Left:
    name: str


@dataclass
class Right:
    name: str


@dataclass
class Sides:
    all: list[Left | Right]


class Plug: ...


ANSWER = Answer(
    [Text("hi"), ToolCall("look", b"\xff\x00", timedelta(days=1, microseconds=5))],
    Usage(tokens=3, at=NOON + timedelta(days=1)),
)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (ANSWER, Answer),
        ({"a": [ANSWER]}, dict[str, list[Answer]]),
        (Loose([ToolCall("look", b"1"), Text("x")]), Loose),
        ([ToolCall("look", b"1")], list[Annotated[Text | ToolCall, pydantic.Discriminator("kind")]]),
        ([Usage(tokens=1), ToolCall("look", b"\xfe")], list[Usage | ToolCall]),
        (PurePosixPath("/srv/a"), PurePosixPath),
        ({PurePosixPath("/srv"): Fraction(1, 3)}, dict[PurePosixPath, Fraction]),
        (None, Answer | None),
    ],
    ids=lambda part: "",
)
def test_annotated_value_comes_back_as_its_type(value, kind):
    reader = readable_type(kind, "value")

    text, first = encode_roundtrip(value, reader, "value")

    assert first == value
    assert decode(text, reader) == value
    assert encode(first, "value") == text


def test_result_of_a_class_with_a_union_in_a_field_is_no_dict():
    def respond() -> Answer:
        return ANSWER

    assert encode_roundtrip(respond(), return_type(respond), "the result")[1] == ANSWER


def test_value_that_would_come_back_as_another_class_is_refused_with_its_place():
    reader = readable_type(Sides, "value")

    assert encode_roundtrip(Sides([Left("a")]), reader, "value")[1] == Sides([Left("a")])
    with pytest.raises(InvalidInput, match=r"^value\.all\[1\]: Right comes back from its JSON as Left\. Give"):
        encode_roundtrip(Sides([Left("a"), Right("b")]), reader, "value")


def test_moment_in_a_union_with_text_is_refused():
    @dataclass
    class Due:
        at: list[str | datetime]

    Due.__annotations__["at"] = list[str | datetime]

    with pytest.raises(InvalidInput, match=r"^due\.at\[0\]: datetime comes back from its JSON as str"):
        encode_roundtrip(Due([NOON]), readable_type(Due, "due"), "due")


def test_text_that_does_not_fit_is_refused_in_a_single_line():
    with pytest.raises(InvalidInput, match=r"^state: ") as refused:
        decode('{"parts":[{"kind":"sound"}]}', readable_type(Answer, "state"), "state")

    assert "\n" not in refused.value.message
    assert "sound" in refused.value.message


def test_type_that_neither_library_reads_is_refused_with_its_place():
    @dataclass
    class Rack:
        rows: dict[str, list[Plug]]

    Rack.__annotations__["rows"] = dict[str, list[Plug]]

    with pytest.raises(TypeError, match=r"^state\.rows\[...\]\[...\]: Plug is not a type that JSON can become"):
        readable_type(Rack, "state")


def test_parameter_state_event_and_result_of_a_workflow_are_of_such_types():
    async def work(ctx: TaskContext[Answer, Loose], answer: Answer, others: list[Loose] = []) -> Answer:  # noqa: B006
        raise AssertionError("only its signature is read")

    read = parameters("work", work)
    payload = decode(encode({"answer": ANSWER}, "payload"), read.payload_type)

    assert payload.answer == ANSWER
    assert decode(encode(ANSWER, "state"), read.state_type) == ANSWER
    assert decode(encode(Loose([Text("a")]), "event"), read.received_type) == Loose([Text("a")])
    assert decode(encode(ANSWER, "result"), read.result_type) == ANSWER


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        ({"ctx": TaskContext[Plug]}, "workflow work: state: Plug is not a type"),
        ({"ctx": TaskContext[int, list[Plug]]}, r"workflow work: received\[...\]: Plug is not a type"),
        ({"answer": Plug}, "workflow work: parameter answer: Plug is not a type"),
        ({"return": dict[str, Plug]}, r"workflow work: its result\[...\]: Plug is not a type"),
    ],
)
def test_declaration_with_an_unreadable_type_is_refused(annotations, message):
    async def work(ctx: TaskContext, answer: Any) -> None:
        raise AssertionError("only its signature is read")

    work.__annotations__ |= annotations

    with pytest.raises(ConfigInvalid, match=f"^{message}"):
        App().declare("work", work)


def test_action_with_an_unreadable_result_is_refused_when_the_app_starts():
    app = App()

    @app.action("plug", irreversible=False)
    def plug(call: Any) -> Plug:
        raise AssertionError("only its signature is read")

    with pytest.raises(ConfigInvalid, match=r"^action plug: its result: Plug is not a type"):
        app.check_actions()


def test_shape_of_such_a_result_is_described_and_checked():
    shape = shape_of(readable_type(Answer, "result"))

    assert describe_required(shape) == "JSON: an object with parts (a list)"
    assert read_result(shape, '{"parts":[]}', "respond") == '{"parts":[]}'
    with pytest.raises(InvalidInput, match="the task needs the result of respond"):
        read_result(shape, '{"usage":{}}', "respond")
