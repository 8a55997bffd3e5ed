"""Types that pydantic reads and msgspec does not: an annotation with one is honoured, or the value is refused."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, TypeVar

import pydantic
import pydantic.dataclasses
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


@dataclass
class Ok:
    score: float
    note: str = ""


@dataclass
class Err:
    message: str


@dataclass
class Page:
    meta: dict[str, Any]
    file: PurePosixPath


@dataclass
class Email:
    to: str
    cc: str | None = None


@dataclass
class Sms:
    to: str
    sender: str | None = None


@pydantic.dataclasses.dataclass
class Tool:
    name: str = pydantic.Field(min_length=1)
    args: list[str] = pydantic.Field(default_factory=list)


T = TypeVar("T", bound=pydantic.BaseModel)


def choose(model: type[T]) -> T:
    raise AssertionError("only its signature is read")


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


AtLeastOne = Annotated[int, pydantic.Field(ge=1)]


@pytest.mark.parametrize(
    ("kind", "right", "wrong", "place"),
    [
        (list[AtLeastOne], [1], [1, 0], r"value\[1\]"),
        (dict[str, AtLeastOne], {"a": 1}, {"a": 0}, r"value\[\.\.\.\]"),
        (dict[Annotated[str, pydantic.Field(min_length=2)], int], {"ab": 1}, {"a": 1}, "a key of value"),
        (tuple[AtLeastOne, ...], (1,), (0,), r"value\[0\]"),
        (list[dict[str, list[AtLeastOne]]], [{"a": [1]}], [{"a": [0]}], r"value\[0\]"),
        (AtLeastOne | None, 1, 0, "value"),
    ],
)
def test_terms_of_pydantic_are_checked_inside_containers(kind, right, wrong, place):
    reader = readable_type(kind, "value")

    assert decode(encode(right, "value"), reader) == right
    with pytest.raises(InvalidInput, match=rf"^{place}.*: .* at least|^{place}.*greater than or equal to 1"):
        decode(encode(wrong, "value"), reader)


@pytest.mark.parametrize(
    ("kind", "value", "first"),
    [
        (str | datetime, NOON, "2026-05-01T12:00:00Z"),
        (PurePosixPath | str, "a", "a"),
        (Ok | Err, Ok(1), Ok(1.0)),
        (Ok | Err, {"score": 0.5}, Ok(0.5)),
        (list[PurePosixPath], ["a"], [PurePosixPath("a")]),
        (dict[str, object] | None, {"at": NOON}, {"at": "2026-05-01T12:00:00Z"}),
        (Page, Page({"at": NOON, "by": Ok(1)}, PurePosixPath("a")),
         Page({"at": "2026-05-01T12:00:00Z", "by": {"note": "", "score": 1}}, PurePosixPath("a"))),
    ],
    ids=lambda part: "",
)  # fmt: skip
def test_value_that_its_annotation_permits_is_converted_the_first_time_too(kind, value, first):
    text, got = encode_roundtrip(value, readable_type(kind, "value"), "value")

    assert got == first == decode(text, readable_type(kind, "value"))


def test_member_of_a_union_that_nothing_tells_apart_is_refused():
    for kind in (Email | Sms, Sms | Email):
        with pytest.raises(InvalidInput, match="fits Email and Sms: give each a tag"):
            decode('{"to":"a"}', readable_type(kind, "r"))


@pytest.mark.parametrize("value", [pydantic.SecretStr("key"), re.compile("a", re.IGNORECASE)], ids=lambda part: "")
def test_value_that_pydantic_would_read_back_as_another_is_refused(value):
    with pytest.raises(InvalidInput, match=r"^payload\.key: \w+ is not JSON$"):
        encode({"key": value}, "payload")


def test_dataclass_of_pydantic_is_validated_by_pydantic():
    reader = readable_type(Tool, "tool")

    assert decode('{"name":"look"}', reader) == Tool("look")
    assert decode('{"name":"look"}', reader).args == []
    with pytest.raises(InvalidInput, match=r"^tool: name: String should have at least 1 character$"):
        decode('{"name":""}', reader, "tool")


def test_terms_of_pydantic_in_an_annotation_are_checked():
    async def work(limit: Annotated[int, pydantic.Field(ge=1, le=10)]) -> None:
        raise AssertionError("only its signature is read")

    work.__annotations__["limit"] = Annotated[int, pydantic.Field(ge=1, le=10)]
    payload_type = parameters("work", work).payload_type

    assert decode('{"limit":3}', payload_type).limit == 3
    with pytest.raises(InvalidInput, match=r"payload\.limit: Input should be greater than or equal to 1$"):
        decode('{"limit":-5}', payload_type, "payload")


def test_result_of_a_class_method_or_of_a_type_variable_is_readable():
    assert return_type(Usage.model_validate_json) is Usage
    assert return_type(choose) is Any


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
