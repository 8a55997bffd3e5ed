"""The result of an action that a person reports as done: the shape that its type needs, and valid references."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Annotated, Any, Literal

import msgspec
import pytest

from craftcore.activities.result_shape import describe_required, make_sample, read_result, shape_of
from craftcore.errors import InvalidInput
from craftcore.serialization.decode import decode


@dataclass
class Receipt:
    id: str
    amount: int
    tags: list[str] | None = None


class Node(msgspec.Struct):
    name: str
    below: Node | None = None


class Pair(msgspec.Struct, array_like=True):
    id: str
    amount: int


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    id: str


class Colour(Enum):
    RED = "red"


@pytest.mark.parametrize("type_", [Any, None, str | None, Receipt | None])
def test_type_that_can_be_none_needs_no_result(type_):
    shape = shape_of(type_)
    assert shape is None
    assert describe_required(shape) is None
    assert read_result(shape, None, "pay") is None


@pytest.mark.parametrize(
    ("type_", "needed", "reference", "result"),
    [
        (str, "text", "ref-7", '"ref-7"'),
        (str, "text", "7", '"7"'),
        (int, "JSON: a whole number", "7", "7"),
        (bool, "JSON: true or false", "true", "true"),
        (list[int], "JSON: a list", "[1]", "[1]"),
        (Colour, 'JSON: one of "red"', "red", '"red"'),
        (datetime, "text", "2026-01-02T03:04:05Z", '"2026-01-02T03:04:05Z"'),
        (Pair, "JSON: a list", '["r", 3]', '["r",3]'),
        (bytes, "text", "aGk=", '"aGk="'),
        (Annotated[int, msgspec.Meta(ge=1)], "JSON: a whole number", "1", "1"),
        (Annotated[str, msgspec.Meta(pattern="^tx-")], "text", "tx-7", '"tx-7"'),
        (Receipt, "JSON: an object with id (text), amount (a whole number)", '{"id": "r", "amount": 3}',
         '{"amount":3,"id":"r"}'),
        (Node, "JSON: an object with name (text)", '{"name": "a", "below": {"name": "b"}}',
         '{"below":{"name":"b"},"name":"a"}'),
    ],
)  # fmt: skip
def test_reference_of_the_needed_shape_is_the_result(type_, needed, reference, result):
    shape = shape_of(type_)
    assert describe_required(shape) == needed
    assert read_result(shape, reference, "pay") == result
    decode(result, type_)


@pytest.mark.parametrize(
    ("type_", "reference"),
    [
        (str, None),
        (int, "ref-7"),
        (int, "true"),
        (float, '"x"'),
        (list[int], '["x"]'),
        (Literal["a", "b"], "c"),
        (datetime, "yesterday"),
        (Receipt, '{"id": "r"}'),
        (Receipt, '{"id": 7, "amount": 3}'),
        (Receipt, "r"),
        (dict[str, int], "r"),
        (Node, '{"name": "a", "below": {"name": 7}}'),
        (bytes, "not base64!"),
        (float, "NaN"),
        (float, "1e999"),
        (list[Any], "[1e999]"),
        (Pair, "[]"),
        (Pair, '["r", "x"]'),
        (tuple[str, int], '["r"]'),
        (tuple[str, int], '["r", 1, 2]'),
        (Strict, '{"id": "r", "more": 1}'),
        (Annotated[int, msgspec.Meta(ge=1)], "0"),
        (Annotated[int, msgspec.Meta(lt=10)], "10"),
        (Annotated[str, msgspec.Meta(pattern="^tx-")], "r"),
        (Annotated[str, msgspec.Meta(min_length=3, max_length=4)], "r"),
        (Annotated[list[int], msgspec.Meta(max_length=1)], "[1, 2]"),
    ],
)
def test_answer_without_the_needed_result_is_refused(type_, reference):
    with pytest.raises(InvalidInput, match="the task needs the result of pay: give it as the reference"):
        read_result(shape_of(type_), reference, "pay")


@pytest.mark.parametrize(
    ("reference", "result"),
    [
        (None, "{}"),
        ("ref-7", '{"provider_ref":"ref-7"}'),
        ('{"status": 200}', '{"status":200}'),
    ],
)
@pytest.mark.parametrize("type_", [dict[str, Any], dict[str, str | int]])
def test_object_without_fixed_fields_takes_any_reference(reference, result, type_):
    shape = shape_of(type_)
    assert describe_required(shape) is None
    assert read_result(shape, reference, "email.send") == result


@pytest.mark.parametrize("type_", [str, int, float, bool, list[int], Colour, Receipt, Node, dict[str, Any], int | str])
def test_sample_of_a_type_can_be_decoded(type_):
    sample = make_sample(shape_of(type_) or "{}", "ref")
    decode(msgspec.json.encode(sample).decode(), type_)


def test_sample_of_a_type_with_a_format_is_refused():
    with pytest.raises(InvalidInput, match="no value of its type can be made up"):
        make_sample(shape_of(datetime) or "{}", "ref")
