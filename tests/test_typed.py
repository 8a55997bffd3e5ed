"""Values of user types: they survive a round trip through their text, or are refused with the path."""

from __future__ import annotations

import gc
import json
import math
import sys
import weakref
from collections.abc import Awaitable, Iterator
from dataclasses import InitVar, dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from functools import partial, wraps
from types import FunctionType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NoReturn, Self
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from craftcore.errors import InvalidInput
from craftcore.serialization.annotations import return_type
from craftcore.serialization.canonical import canonicalize
from craftcore.serialization.decode import decode
from craftcore.serialization.encode import MAX_DEPTH, encode
from craftcore.serialization.pydantic_adapter import _make_adapter
from craftcore.serialization.readable_types import _find_reader, _look, readable_type
from craftcore.serialization.roundtrip import encode_roundtrip

if TYPE_CHECKING:
    from argparse import Namespace

NOON = datetime(2026, 5, 1, 12, 0, 0, 250, tzinfo=UTC)
NAIVE = datetime(2026, 5, 1)  # noqa: DTZ001  # a user's moment may have no zone


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 10


class Mood(StrEnum):
    CALM = "calm"


class Pair(Enum):
    ONE = (1, 2)


class Spot(NamedTuple):
    x: Any
    y: float


@dataclass(frozen=True)
class Tag:
    name: str
    weight: int = 1


@dataclass(slots=True)
class Todo:
    owner: Any
    due: datetime | None = None
    tags: set[Tag] = field(default_factory=set)


@dataclass
class State:
    todos: list[Todo] = field(default_factory=list)
    by_number: dict[int, Tag] = field(default_factory=dict)
    extra: Any = None


class Point(msgspec.Struct, rename="camel"):
    on_screen: Any
    note: str | msgspec.UnsetType = msgspec.UNSET


class Circle(msgspec.Struct, tag="circle"):
    radius: int
    at: dict[int, Any]


class Square(msgspec.Struct, tag="square"):
    side: int


class Row(msgspec.Struct, array_like=True, tag=True):
    cells: Any
    total: int = 0


class Model:
    """A model with the part of pydantic's interface that craftcore uses. Its fields are untyped."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]

    def model_dump(self, *, mode: str = "python") -> Any:
        assert mode == "json"
        return {name: dump_like_pydantic(part) for name, part in self.__dict__.items()}

    @classmethod
    def model_validate(cls, data: Any) -> Self:
        if not isinstance(data, dict):
            raise ValueError(f"1 validation error for {cls.__name__}\n  Input should be an object")
        return cls(**data)


def dump_like_pydantic(part: Any) -> Any:
    """Return an untyped value as pydantic dumps it: NaN becomes null, a key text, and a set an unordered list."""
    match part:
        case dict():
            return {str(key): dump_like_pydantic(inner) for key, inner in part.items()}
        case list() | tuple() | set() | frozenset():
            return [dump_like_pydantic(inner) for inner in part]
        case float() if math.isnan(part):
            return None
    return msgspec.to_builtins(part, enc_hook=dump_model, str_keys=True)


def dump_model(part: Any) -> Any:
    if not isinstance(part, Model):
        raise ValueError("Unable to serialize unknown type")
    return part.model_dump(mode="json")


class Owner(Model):
    pass


class Listed(Model):
    """A model like a RootModel of pydantic."""

    __pydantic_root_model__ = True

    def model_dump(self, *, mode: str = "python") -> Any:
        return super().model_dump(mode=mode)["root"]

    @classmethod
    def model_validate(cls, data: Any) -> Self:
        return cls(root=data)


class Open(Model):
    """A model that keeps unknown fields."""

    def __init__(self, **values: Any) -> None:
        self.__pydantic_extra__ = values

    def model_dump(self, *, mode: str = "python") -> Any:
        return dump_like_pydantic(self.__pydantic_extra__)


class Strict(Model):
    """A model like a strict one of pydantic, which accepts the text of a moment only from JSON."""

    @classmethod
    def model_validate(cls, data: Any) -> Self:
        raise AssertionError(given)

    @classmethod
    def model_validate_json(cls, text: str) -> Self:
        return cls(**json.loads(text))


class Aliased(Model):
    """A model with an alias and a computed field, which accepts the names that the caller selects."""

    def model_dump(self, *, mode: str = "python", by_alias: bool = False, round_trip: bool = False) -> Any:
        dumped = {"by" if by_alias else "owner": self.__dict__["owner"]}
        return dumped if round_trip else {**dumped, "computed": True}

    @classmethod
    def model_validate(cls, data: Any, *, by_alias: bool = True, by_name: bool = False) -> Self:
        [(name, owner)] = data.items()
        assert name in ({"by"} if by_alias else set()) | ({"owner"} if by_name else set())
        return cls(owner=owner)


class OldAliased(Aliased):
    """A model of pydantic before 2.11, which accepts a field with an alias only by that alias."""

    @classmethod
    def model_validate(cls, data: Any) -> Self:  # type: ignore[override]
        return cls(owner=data["by"])


@dataclass
class Job:
    owner: Owner
    boss: Owner | None = None


class Socket:
    def __repr__(self) -> str:
        raise RuntimeError("no words")


class Cat(msgspec.Struct):
    name: str
    lives: int


class Dog(msgspec.Struct):
    name: str
    trained: bool = False


class Kitten(msgspec.Struct):
    name: str
    lives: int


ROUND_TRIPS: list[tuple[Any, Any, str]] = [
    (None, type(None), "null"),
    (True, bool, "true"),
    (10**30, int, str(10**30)),
    (1.0, float, "1.0"),
    ("é😀\\ud800", str, '"\\u00e9\\ud83d\\ude00\\\\ud800"'),
    ([1, [2]], list[Any], "[1,[2]]"),
    ({"b": 1, "a": None}, dict[str, int | None], '{"a":null,"b":1}'),
    ((1, "a"), tuple[int, str], '[1,"a"]'),
    (Spot(1, 0.5), Spot, "[1,0.5]"),
    ({3, 1, 2}, set[int], "[1,2,3]"),
    (frozenset({"b", "a"}), frozenset[str], '["a","b"]'),
    (frozenset({frozenset({2, 3}), frozenset({1})}), frozenset[frozenset[int]], "[[1],[2,3]]"),
    ({Tag("b"), Tag("a")}, set[Tag], '[{"name":"a","weight":1},{"name":"b","weight":1}]'),
    (Colour.RED, Colour, '"red"'),
    (Level.HIGH, Level, "10"),
    (Mood.CALM, Mood, '"calm"'),
    ({Colour.BLUE, Colour.RED}, set[Colour], '["blue","red"]'),
    (NOON, datetime, '"2026-05-01T12:00:00.000250Z"'),
    (NAIVE, datetime, '"2026-05-01T00:00:00"'),
    (date(2026, 5, 1), date, '"2026-05-01"'),
    (time(12, 30), time, '"12:30:00"'),
    (timedelta(days=1, microseconds=5), timedelta, '"P1DT0.000005S"'),
    (UUID(int=5), UUID, '"00000000-0000-0000-0000-000000000005"'),
    (Decimal("1.10"), Decimal, '"1.10"'),
    (b"\x00\xff", bytes, '"AP8="'),
    ({1: "a", 10: "b", 9: "c"}, dict[int, str], '{"1":"a","10":"b","9":"c"}'),
    ({Level.LOW: 1}, dict[Level, int], '{"1":1}'),
    ({Colour.RED: 1, Colour.BLUE: 2}, dict[Colour, int], '{"blue":2,"red":1}'),
    ({date(2026, 5, 1): 1}, dict[date, int], '{"2026-05-01":1}'),
    (
        State([Todo("me", NOON, {Tag("b"), Tag("a")})], {7: Tag("c")}),
        State,
        '{"by_number":{"7":{"name":"c","weight":1}},"extra":null,"todos":[{"due":"2026-05-01T12:00:00.000250Z",'
        '"owner":"me","tags":[{"name":"a","weight":1},{"name":"b","weight":1}]}]}',
    ),
    (Point(1), Point, '{"onScreen":1}'),
    (Point({"a": 1}, "b"), Point, '{"note":"b","onScreen":{"a":1}}'),
    (
        [Circle(1, {2: "b"}), Square(3)],
        list[Circle | Square],
        '[{"at":{"2":"b"},"radius":1,"type":"circle"},{"side":3,"type":"square"}]',
    ),
    (Cat("Tom", 9), Cat | Dog, '{"lives":9,"name":"Tom"}'),
    (Dog("Rex"), Cat | Dog, '{"name":"Rex","trained":false}'),
    (None, Cat | Dog | None, "null"),
    ("unknown", Cat | Dog | str, '"unknown"'),
    ([Dog("Rex"), Cat("Tom", 1)], list[Cat | Dog], '[{"name":"Rex","trained":false},{"lives":1,"name":"Tom"}]'),
    ({"a": (Cat("Tom", 1), 7)}, dict[str, tuple[Cat | Dog, int]], '{"a":[{"lives":1,"name":"Tom"},7]}'),
    (Todo("me"), Todo | Tag, '{"due":null,"owner":"me","tags":[]}'),
    (Owner(name="me", n=1), Owner | Tag | Cat, '{"n":1,"name":"me"}'),
    (Row([[1], [2]], 3), Row, '["Row",[[1],[2]],3]'),
    (Owner(name="me", at=[1, {"a": None}]), Owner, '{"at":[1,{"a":null}],"name":"me"}'),
    ([Job(Owner(name="me"))], list[Job], '[{"boss":null,"owner":{"name":"me"}}]'),
    ({"a": Job(Owner(n=1), Owner(n=2))}, dict[str, Job], '{"a":{"boss":{"n":2},"owner":{"n":1}}}'),
    (Listed(root=[1]), Listed, "[1]"),
    (Strict(due=1), Strict, '{"due":1}'),
    (Aliased(owner="me"), Aliased, '{"owner":"me"}'),
    (OldAliased(owner="me"), OldAliased, '{"by":"me"}'),
]


@pytest.mark.parametrize(("value", "kind", "text"), ROUND_TRIPS)
def test_value_survives_a_round_trip_through_its_text(value, kind, text):
    assert encode(value, "state") == text
    kind = readable_type(kind, "kind")
    assert encode_roundtrip(value, kind, "state") == (text, value)
    assert decode(text, kind) == value
    assert type(decode(text, kind)) is type(value)


def test_return_type_with_a_union_of_untagged_classes_is_accepted():
    def pet() -> Cat | Dog: ...  # type: ignore[empty-body]

    assert encode_roundtrip(Dog("Rex", True), return_type(pet), "r")[1] == Dog("Rex", True)


def test_union_with_indistinguishable_members_is_refused():
    """A decoder that guessed might return the other class."""
    with pytest.raises(InvalidInput, match="fits Cat and Kitten: give each a tag, as in class Cat"):
        encode_roundtrip(Kitten("Tom", 9), readable_type(Cat | Kitten, "pet"), "r")


def test_text_that_fits_no_member_of_a_union_is_refused():
    with pytest.raises(InvalidInput, match=r"is not one of Cat \| Dog"):
        decode('{"name":7}', readable_type(Cat | Dog, "pet"))


def test_member_with_an_added_field_is_recognised_by_its_keys():
    assert decode('{"name":"Rex"}', readable_type(Cat | Dog, "pet")) == Dog("Rex")


def test_untyped_value_is_read_as_builtins():
    text = encode(State(by_number={7: Tag("c")}, extra=(NOON, Colour.RED)), "state")

    assert decode(text) == {
        "todos": [],
        "by_number": {"7": {"name": "c", "weight": 1}},
        "extra": ["2026-05-01T12:00:00.000250Z", "red"],
    }


def test_subclasses_of_text_and_numbers_are_encoded_like_their_bases():
    class Name(str):
        __slots__ = ()

        def __str__(self) -> str:
            return "another"

    class Count(int):
        def __repr__(self) -> str:
            return "many"

    class Share(float):
        pass

    value = {Name("key"): [Name("text"), Count(3), Share(0.5), Mood.CALM, {Count(4): Todo(Count(5))}]}

    assert encode(value, "state") == '{"key":["text",3,0.5,"calm",{"4":{"due":null,"owner":5,"tags":[]}}]}'


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
keys = st.text(max_size=5) | st.sampled_from([*Colour, *Mood])


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(keys, inner, max_size=4),
        st.dictionaries(st.integers(), inner, max_size=4),
        st.builds(Todo, inner, st.none() | st.datetimes(timezones=st.just(UTC))),
        st.builds(State, extra=inner),
        st.builds(Point, inner),
        st.builds(Circle, st.integers(), st.dictionaries(st.integers(), inner, max_size=3)),
        st.builds(Row, inner),
        st.builds(Owner, part=inner),
    )


hashable = st.recursive(scalars | st.builds(Tag, st.text()), lambda inner: st.frozensets(inner) | st.tuples(inner))
values = st.recursive(scalars | st.sets(hashable, max_size=4), containers, max_leaves=12)


@pytest.mark.filterwarnings("ignore:Generating overly large repr")  # hypothesis nests the strategy deep
@given(values)
def test_first_result_equals_the_recorded_result(value):
    text, first = encode_roundtrip(value, Any, "state")

    assert first == decode(text)
    assert encode(first, "state") == canonicalize(first) == text


@dataclass
class Everything:
    moment: datetime
    day: date
    clock: time
    length: timedelta
    price: Decimal
    id: UUID
    body: bytes
    colours: set[Colour]
    levels: tuple[Level, ...]
    by_day: dict[date, list[Tag]]
    by_number: dict[int, float | None]
    points: list[tuple[int, str]]
    rest: dict[str, str | int | None]


everything = st.builds(
    Everything,
    moment=st.datetimes(timezones=st.sampled_from([None, UTC, timezone(timedelta(hours=-9, minutes=-30))])),
    price=st.decimals(allow_nan=False),
    by_number=st.dictionaries(st.integers(), st.none() | st.floats(allow_nan=False, allow_infinity=False)),
    length=st.timedeltas(timedelta(days=-100_000), timedelta(days=100_000)),
)


@given(everything)
def test_typed_value_with_any_fields_survives_a_round_trip(value):
    text, first = encode_roundtrip(value, Everything, "state")

    assert first == value
    assert encode(first, "state") == text


invalid = st.sampled_from([math.nan, math.inf, "\ud800", 1j, range(3), Pair.ONE, Pair]) | st.builds(Socket)
invalid_keys = st.sampled_from([1.5, None, True, (1,), "\udc00", Mood.CALM, 1, "1", NOON]) | st.builds(Socket)


def invalid_containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return containers(inner) | st.dictionaries(invalid_keys, inner, max_size=3)


@given(st.recursive(scalars | invalid, invalid_containers))
def test_arbitrary_value_is_refused_or_survives_a_round_trip(value):
    try:
        text = encode(value, "state")
    except InvalidInput:
        return

    assert canonicalize(decode(text)) == text


@given(st.lists(st.frozensets(st.integers(0, 100), max_size=3), max_size=6, unique=True))
def test_set_has_the_same_text_in_any_order(items):
    """A set is iterated in the order of insertion where the hashes of its items collide."""

    def texts(items: list[frozenset[int]]) -> list[str]:
        rows = {(item, 1) for item in items}
        return [
            encode(value, "state")
            for value in (set(items), Todo(set(items)), rows, Todo(rows), Owner(a=set(items)), Point(set(items)))
        ]

    assert texts(items) == texts(items[::-1])


def refusal(value: Any, where: str = "state") -> str:
    with pytest.raises(InvalidInput) as refused:
        encode(value, where)
    return refused.value.message


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Socket(), "state: Socket is not JSON"),
        ({"a": {"b": [Socket()]}}, "state.a.b[0]: Socket is not JSON"),
        (State([Todo(1), Todo(2), Todo(3), Todo(Socket())]), "state.todos[3].owner: Socket is not JSON"),
        (State(extra=Point({"x": Circle(1, {2: Socket()})})), 'state.extra.onScreen.x.at["2"]: Socket is not JSON'),
        (Row([{1: Socket()}]), 'state[1][0]["1"]: Socket is not JSON'),
        ((1, {"a": Spot(Socket(), 1)}), "state[1].a[0]: Socket is not JSON"),
        ({Socket()}, "state[...]: Socket is not JSON"),
        (
            {"type": Socket},
            "state.type: type is not JSON",
        ),
        ({"a": msgspec.UNSET}, "state.a: UnsetType is not JSON"),
        (Row(msgspec.UNSET), "state[1]: UnsetType is not JSON"),
        ({"a b": {"x": math.nan}}, 'state["a b"].x is NaN'),
        ({"a": [1, math.inf]}, "state.a[1] is infinite"),
        (((1, -math.inf),), "state[0][1] is infinite"),
        (math.nan, "state is NaN"),
        (State([Todo(math.nan)]), "state.todos[0].owner is NaN"),
        ({frozenset({math.nan})}, "state[0][0] is NaN"),
        ([1, 10**5000], "state[1] has thousands of digits"),
        ({(1, 2): "x"}, "state: key (1, 2) is not text"),
        ({"a": [{1.5: "x"}]}, "state.a[0]: key 1.5 is not text"),
        ({True: "x"}, "state: key True is not text"),
        (State(extra={None: "x"}), "state.extra: key None is not text"),
        (Point({0.5: 1}), "state.onScreen: key 0.5 is not text"),
        ({Socket(): 1}, "state: key Socket is not text"),
        ({10**5000: 1}, "state: key int is not text"),
        ({"1": "x", 1: "y"}, 'state: two keys become "1"'),
        (Circle(1, {1: {Level.LOW: 0, "1": 1}}), 'state.at["1"]: two keys become "1"'),
        ({"a": ["\ud800"]}, "state.a[0] holds a lone surrogate, which is not a character"),
        ({"a": "😀\udc00"}, "state.a holds a lone surrogate, which is not a character"),
        (State(extra={"\ud800": 1}), 'state.extra: key "\\ud800" holds a lone surrogate, which is not a character'),
        (Owner(a=[Owner(b=math.inf)]), "state.a[0].b is infinite"),
        (State(extra=[Owner(a={"x": math.nan})]), "state.extra[0].a.x is NaN"),
        (Owner(a={1: math.nan}), 'state.a["1"] is NaN'),
        (Owner(a={math.nan}), "state.a[0] is NaN"),
        (Listed(root=[1, math.nan]), "state[1] is NaN"),
        (Open(a=math.nan), "state.a is NaN"),
        (Job(Owner(a="\ud800")), "state.owner.a holds a lone surrogate, which is not a character"),
        ([Job(Owner(a=Socket()))], "state[0].owner: Owner is not JSON (ValueError: Unable to serialize unknown type)"),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_value_outside_json_is_refused_with_its_path(value, message):
    assert refusal(value) == message
    with pytest.raises(InvalidInput):
        encode_roundtrip(value, Any, "state")


def test_path_starts_at_the_given_name():
    assert refusal([Socket()], "the result of step book") == "the result of step book[0]: Socket is not JSON"


def nested(levels: int, inside: Any) -> Any:
    for _ in range(levels):
        inside = [inside]
    return inside


@pytest.mark.parametrize("inside", [[], {}, Tag("a"), {2}, {1: 2}, Owner(name="me"), Row(1)])
def test_value_deeper_than_the_limit_is_refused(inside):
    encode(nested(MAX_DEPTH - 1, inside), "state")

    for levels in (MAX_DEPTH, 2 * MAX_DEPTH):
        assert refusal(nested(levels, inside)) == f"state{'[0]' * MAX_DEPTH} is deeper than 64 levels"


def test_value_deeper_than_any_stack_is_refused():
    assert refusal(nested(100_000, [])) == f"state{'[0]' * MAX_DEPTH} is deeper than 64 levels"


def test_value_containing_itself_is_refused_at_that_place():
    everywhere: dict[str, Any] = {"a": [{}]}
    everywhere["a"][0]["b"] = everywhere
    own = State(extra=[1])
    own.extra.append(Todo(own))

    assert refusal(everywhere) == "state.a[0].b holds itself"
    assert refusal(own) == "state.extra[1].owner holds itself"


def test_value_may_contain_another_value_twice():
    shared = {1: Tag("a")}

    assert encode([shared, Todo(shared)], "state").count('{"1":{"name":"a","weight":1}}') == 2


def test_exception_of_a_type_while_read_is_reported_in_a_single_line():
    class Wordless(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    class Broken(Model):
        def model_dump(self, *, mode: str = "python") -> Any:
            raise self.__dict__["error"]

    class Half:
        def __repr__(self) -> str:
            return "\ud800"

    class Closed(list[Any]):
        def __iter__(self) -> Iterator[Any]:
            raise LookupError("closed")

    assert refusal([Broken(error=OSError("so\n what"))]) == "state[0]: Broken is not JSON (OSError: so what)"
    assert refusal({"a": Broken(error=Wordless())}) == "state.a: Broken is not JSON (Wordless: Wordless)"
    assert refusal({Half(): 1}) == "state: key ? is not text"
    assert refusal({"a": {1: Closed()}}) == 'state.a["1"]: Closed is not JSON (LookupError: closed)'


def test_message_stays_short():
    long = "x" * 10_000
    deep: Any = {}
    for _ in range(MAX_DEPTH):
        deep = {long: deep}

    assert len(refusal({long: {f"{long} {long}": Socket()}})) < 250
    assert len(refusal({(long,): 1})) < 120
    assert len(refusal({long: nested(MAX_DEPTH, {})})) < 450
    assert len(refusal(deep)) < 450
    assert len(refusal({10**100: 1, str(10**100): 1})) < 120


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("[1,2", Any, "state: Input data was truncated"),
        ("", str, "state: Input data was truncated"),
        (
            '{"todos":[{"owner":1},{"owner":1,"due":3}]}',
            State,
            "state.todos[1].due: Expected `datetime | null`, got `int`",
        ),
        ('{"by_number":{"x":{}}}', State, "a key of state.by_number: Expected `int`, got `str`"),
        ('{"by_number":{"1":{"name":2}}}', State, "state.by_number[...].name: Expected `str`, got `int`"),
        ("[]", State, "state: Expected `object`, got `array`"),
        ("3", str, "state: Expected `str`, got `int`"),
        ('"- at `$.x"', Colour, "state: Invalid enum value '- at `$.x'"),
        ('["- at `$.x"]', list[Colour], "state[0]: Invalid enum value '- at `$.x'"),
        ('"x - at `$.x` or so"', Colour, "state: Invalid enum value 'x - at `$.x` or so'"),
        ('[{"owner":2}]', list[Job], "state[0].owner: 1 validation error for Owner Input should be an object"),
        ("[3]", list[range], "state[0]: Expected `range`, got `int`"),
        ("[]", list[int] | set[int], "state: TypeError: Type unions may not contain more than one array-like"),
        ("[{}]", list[Row], "state[0]: Expected `array`, got `object`"),
    ],
)
def test_value_of_the_wrong_type_is_refused_with_its_path(text, kind, message):
    with pytest.raises(InvalidInput) as refused:
        decode(text, kind, "state")

    assert refused.value.message.startswith(message)


@dataclass
class Picky:
    name: str

    def __post_init__(self) -> None:
        raise LookupError(f"no person is called {self.name}")


def test_exception_of_a_type_while_created_is_reported():
    with pytest.raises(InvalidInput, match=r"^the answer: LookupError: no person is called x$"):
        decode('{"name":"x"}', Picky, "the answer")


def test_result_of_the_wrong_type_is_refused_the_first_time():
    with pytest.raises(InvalidInput, match=r"^the result of step n\[1\]: Expected `int`, got `str`$"):
        encode_roundtrip([1, "2"], list[int], "the result of step n")


def test_whole_number_for_a_float_is_returned_as_recorded():
    _, first = encode_roundtrip(3, float, "result")

    assert type(first) is float


def test_first_result_is_a_copy():
    value = {"b": [1], "a": 2}
    _, first = encode_roundtrip(value, Any, "result")

    value["b"].append(2)  # type: ignore[attr-defined]

    assert first == {"b": [1], "a": 2}
    assert list(first) == ["a", "b"]  # the order of a record


async def books(ctx: Namespace) -> list[Tag]:
    raise AssertionError("only its signature is read")


def unknown() -> Namespace:
    raise AssertionError("only its signature is read")


def odd() -> 1 / 0:  # type: ignore[valid-type]
    raise AssertionError("only its signature is read")


def plain(a: int) -> int | None:
    return a


def silent(a):
    return a


def never() -> NoReturn:
    raise AssertionError("only its signature is read")


def nothing() -> None:
    pass


def limited() -> Annotated[int, msgspec.Meta(ge=3)]:
    return 3


def model() -> list[Owner]:
    return []


def later() -> Awaitable[int]:
    raise AssertionError("only its signature is read")


def anything() -> object:
    return {}


def sockets() -> dict[str, list[Socket]]:
    return {}


@dataclass
class Rack:
    plugs: list[Socket | None]


def rack() -> Rack:
    return Rack([])


def tupled() -> Pair:
    return Pair.ONE


@wraps(plain)
def wrapping(*args: Any) -> Any:
    return plain(*args)


elsewhere = wraps(books)(FunctionType(silent.__code__, {}))


class Desk:
    books: list[Tag]

    def one(self) -> Tag:
        raise AssertionError("only its signature is read")

    @classmethod
    def many(cls) -> list[Tag]:
        raise AssertionError("only its signature is read")

    @staticmethod
    def count() -> int:
        return 0

    def __call__(self) -> Colour:
        return Colour.RED

    __hash__ = None  # type: ignore[assignment]


@dataclass
class Node:
    children: list[Node]


@dataclass
class WithInitVar:
    a: InitVar[int]


@pytest.mark.parametrize(
    ("fn", "kind"),
    [
        (books, list[Tag]),
        (plain, int | None),
        (partial(partial(plain), 1), int | None),
        (wrapping, int | None),
        (elsewhere, list[Tag]),
        (nothing, type(None)),
        (later, int),
        (limited, Annotated[int, msgspec.Meta(ge=3)]),
        (model, list[Owner]),
        (Desk().one, Tag),
        (partial(Desk().one), Tag),
        (Desk.many, list[Tag]),
        (Desk.count, int),
        (Desk(), Colour),
        (Tag, Tag),
        (int, int),
        (Owner, Owner),
    ],
)
def test_type_of_a_result_is_the_annotated_return_type(fn, kind):
    assert return_type(fn) == kind
    assert return_type(fn) == kind  # the cached type


@pytest.mark.parametrize("fn", [silent, never, anything, len, str.join, lambda: 1])
def test_type_of_a_result_is_any_without_an_annotation(fn):
    assert return_type(fn) is Any


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (unknown, "its result: its annotation cannot be evaluated (NameError: name 'Namespace' is not defined)"),
        (odd, "its result: its annotation cannot be evaluated (ZeroDivisionError: division by zero)"),
        (Desk, "its result: Desk is not a type that JSON can become"),
        (Socket, "its result: Socket is not a type that JSON can become"),
        (sockets, "its result[...][...]: Socket is not a type that JSON can become"),
        (rack, "its result.plugs[...]: Socket is not a type that JSON can become"),
    ],
)
def test_annotation_that_json_cannot_become_is_refused_with_its_place(fn, message):
    for _ in range(2):  # and from the cache
        with pytest.raises(TypeError) as refused:
            return_type(fn)
        assert str(refused.value).startswith(message)


class Unhashable:
    def __hash__(self) -> int:
        raise RuntimeError("no hash")

    def __call__(self) -> Tag:
        raise AssertionError("only its signature is read")


class Mute(type):
    def __repr__(cls) -> str:
        raise RuntimeError("no words")


@dataclass
class Silent(metaclass=Mute):
    name: str


def test_result_of_a_callable_without_a_hash_and_of_a_type_without_a_repr_is_typed():
    def speak() -> Silent:
        raise AssertionError("only its signature is read")

    speak.__annotations__["return"] = Silent

    assert return_type(Unhashable()) is Tag
    assert return_type(speak) is Silent


def test_reading_a_return_type_keeps_no_closure_and_no_object():
    desk, argument = Desk(), Desk()
    references = [weakref.ref(desk), weakref.ref(argument)]

    assert return_type(desk.one) is Tag
    assert return_type(lambda argument=argument: argument) is Any
    del desk, argument
    gc.collect()

    assert [ref() for ref in references] == [None, None]


@pytest.fixture
def without_pydantic(monkeypatch):
    """Make pydantic a library that is not installed."""
    caches = (_make_adapter, _look, _find_reader)
    monkeypatch.setitem(sys.modules, "pydantic", None)
    for cache in caches:
        cache.clear()
    yield
    for cache in caches:
        cache.clear()


@dataclass
class Ink:
    colour: str


@dataclass
class Lead:
    hardness: str


@dataclass
class Pens:
    all: list[Ink | Lead]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Socket, "^state: Socket is not a type that JSON can become"),
        (dict[str, list[Socket | None]], r"^state\[...\]\[...\]: Socket is not a type that JSON can become"),
        (tuple[int, complex], r"^state\[...\]: complex is not a type .* \(pydantic, which may read it, is not inst"),
        (
            Pens,
            r"^state\.all\[...\]: msgspec: Type unions .*more than one dataclass.*; pydantic, which may",
        ),
        (list[Pair], "all str or all int"),
        (WithInitVar, "InitVar"),
    ],
)
def test_type_outside_json_is_refused_at_any_depth(without_pydantic, kind, message):
    with pytest.raises(TypeError, match=message):
        readable_type(kind, "state")


def test_type_with_an_unknown_name_is_refused():
    @dataclass
    class Local:
        part: Namespace

    with pytest.raises(TypeError, match="'Namespace' is not defined"):
        readable_type(Local, "state")


@pytest.mark.parametrize(
    "kind", [kind for _, kind, _ in ROUND_TRIPS] + [Any, State, Everything, Node, list[State | None]]
)
def test_type_within_json_is_accepted(kind):
    assert decode("null", readable_type(kind | None, "state")) is None


@pytest.mark.parametrize("text", ["\ud83d\ude00", "a \ud83d\ude00 z", "\U0001f600", "\\ud83d", "plain"])
def test_text_with_a_surrogate_pair_is_the_same_before_and_after_a_record(text):
    for type_ in (Any, str):
        stored, first = encode_roundtrip(text, type_, "text")
        assert first == decode(stored, type_)
