"""The forms of questions: which types have one, and which answers fit."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal

import msgspec
import pytest

from craftcore.errors import InvalidInput
from craftcore.serialization.decode import decode
from craftcore.tasks.answer_form import check_form, describe_form, read_answer, read_fields, restrict_schema


class Speed(Enum):
    SLOW = "slow"
    FAST = "fast"


@dataclass
class Shipping:
    """How to ship."""

    street: Annotated[str, msgspec.Meta(min_length=1, max_length=40, title="Street")]
    count: Annotated[int, msgspec.Meta(ge=1, le=9)] = 1
    express: bool = False
    speed: Speed = Speed.SLOW
    how: Literal["box", "bag"] = "box"
    on: date | None = None
    price: Decimal = Decimal(1)
    weight: Annotated[float, msgspec.Meta(gt=0, lt=10)] = 1.5


FORM = json.dumps(restrict_schema(msgspec.json.schema(Shipping)))


def test_form_has_the_fields_in_order_with_their_rules():
    form = json.loads(FORM)

    assert list(form["properties"]) == ["street", "count", "express", "speed", "how", "on", "price", "weight"]
    assert form["required"] == ["street"]
    assert form["title"] == "Shipping"
    assert form["properties"]["street"] == {"title": "Street", "type": "string", "minLength": 1, "maxLength": 40}
    assert form["properties"]["on"] == {"type": "string", "format": "date"}
    assert form["properties"]["speed"]["enum"] == ["fast", "slow"]
    assert describe_form(form).startswith("street (text), count (a whole number, 1 to 9; default 1), express (true or")
    check_form(FORM)


def test_answer_that_fits_becomes_the_class():
    text = read_answer(FORM, '{"street": "Main Street 5", "on": "2026-01-02", "price": "2.50", "count": 2}')

    assert decode(text, Shipping) == Shipping("Main Street 5", count=2, on=date(2026, 1, 2), price=Decimal("2.50"))
    assert decode(read_answer(FORM, '{"street": "x", "on": null}'), Shipping) == Shipping("x")


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        ({}, {"street": "is missing"}),
        ({"street": ""}, {"street": "must have at least 1 characters"}),
        ({"street": "x" * 41}, {"street": "must have at most 40 characters"}),
        ({"street": 5}, {"street": "must be text"}),
        ({"street": "x", "count": 0}, {"count": "must be 1 or more"}),
        ({"street": "x", "count": 10}, {"count": "must be at most 9"}),
        ({"street": "x", "count": True}, {"count": "must be a whole number"}),
        ({"street": "x", "count": 1.5}, {"count": "must be a whole number"}),
        ({"street": "x", "express": "yes"}, {"express": "must be true or false"}),
        ({"street": "x", "speed": "warp"}, {"speed": "must be one of fast, slow"}),
        ({"street": "x", "on": "tomorrow"}, {"on": "must be a date"}),
        ({"street": "x", "price": "much"}, {"price": "must be a decimal"}),
        ({"street": "x", "weight": 0}, {"weight": "must be more than 0"}),
        ({"street": "x", "weight": 10}, {"weight": "must be less than 10"}),
        ({"count": "two", "town": "Bonn"}, {"town": "is not a field", "count": "must be a whole number"}),
    ],
)
def test_answer_that_does_not_fit_is_refused_with_the_field_and_why(answer: dict[str, Any], wrong: dict[str, str]):
    with pytest.raises(InvalidInput) as refused:
        read_answer(FORM, json.dumps(answer))

    found = refused.value.details["fields"]
    assert all(found[name].startswith(why) for name, why in wrong.items())
    assert all(f"{name} {why}" in refused.value.message for name, why in wrong.items())


@pytest.mark.parametrize("text", ["", "yes", "[]", '{"street": NaN}', "[" * 60_000, "1"])
def test_text_that_is_no_object_is_refused_with_the_fields(text):
    with pytest.raises(InvalidInput, match=r"is not JSON of the form: .*street"):
        read_answer(FORM, text)


def test_answer_of_great_size_is_refused():
    with pytest.raises(InvalidInput, match="the limit is 65,536"):
        read_answer(FORM, json.dumps({"street": "x" * 70_000}))


def test_fields_are_read_by_their_types():
    text = read_fields(FORM, ["street=5 = five", "count=2", "express=Yes", "weight=2.5"])

    assert json.loads(text) == {"street": "5 = five", "count": 2, "express": True, "weight": 2.5}
    assert json.loads(read_fields(FORM, ["count=two", "express=perhaps"])) == {"count": "two", "express": "perhaps"}
    for given, why in ((["street"], "is not NAME=VALUE"), (["count=1", "count=2"], "given twice")):
        with pytest.raises(InvalidInput, match=why):
            read_fields(FORM, given)


class Inner(msgspec.Struct):
    name: str


@dataclass
class Nested:
    inner: Inner


@dataclass
class Listed:
    names: list[str] = field(default_factory=list)


@dataclass
class Either:
    value: int | str


@dataclass
class Numbers:
    number: Literal[1, 2]


@dataclass
class Nothing:
    value: int | None


@dataclass
class Empty:
    pass


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (Nested, "inner is not text"),
        (Listed, "names is not text"),
        (Either, "value may be of several types"),
        (Numbers, "the choices of a form are text"),
        (Nothing, "value may be None: give it a default"),
        (Empty, "not a class with fields"),
        (str, "not a class with fields"),
        (list[Inner], "not a class with fields"),
        (msgspec.defstruct("Wide", [(f"f{number}", str) for number in range(51)]), "at most 50"),
    ],
)
def test_type_that_a_person_cannot_fill_in_has_no_form(kind: Any, why: str):
    with pytest.raises(ValueError, match=why):
        restrict_schema(msgspec.json.schema(kind))


@pytest.mark.parametrize(
    "text", ["[]", "{}", '{"type": "object", "properties": {"a": {"type": "moon"}}, "required": []}', "x"]
)
def test_row_that_is_no_form_is_found(text):
    with pytest.raises(ValueError):
        check_form(text)
