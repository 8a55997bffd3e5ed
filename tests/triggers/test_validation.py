"""Validation of trigger specs: accepted values are stored unchanged, and others are refused before a write."""

from __future__ import annotations

import json
import math
import sys
from base64 import b64encode
from datetime import UTC, datetime, timedelta, timezone, tzinfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from craftcore.errors import InvalidInput, PayloadTooLarge
from craftcore.triggers.model import TriggerSource, TriggerSpec
from craftcore.triggers.validation import accept, moment, payload_text
from tests.support.fakes import NEW_YEAR, a_trigger

LIMIT = 262_144
HUGE = 10**5000
"""An integer that Python refuses to convert to text."""


class ZoneWithoutOffset(tzinfo):
    """A zone without an offset, which makes a datetime as naive as one without a zone."""

    def utcoffset(self, _):
        return None

    def dst(self, _):
        return None

    def tzname(self, _):
        return None


class TextSubclass(str):
    """A subclass of str."""


def make_nested(levels: int) -> dict[str, object]:
    """Return a JSON object with this many levels, alternately lists and objects."""
    inner: object = 1
    for level in range(levels - 1):
        inner = [inner] if level % 2 else {"a": inner}
    return {"a": inner}


def make_circular() -> dict[str, object]:
    payload: dict[str, object] = {}
    payload["me"] = payload
    return payload


def accept_spec(**changes):
    return accept(a_trigger(**changes), NEW_YEAR, "generated", payload_max_bytes=LIMIT)


REFUSED = {
    "an unknown source": ({"source": "CRON"}, "source 'CRON' is unknown; it must be one of MESSAGE, "),
    "a source in lower case": ({"source": "message"}, "source 'message' is unknown"),
    "no source": ({"source": None}, "source None is unknown"),
    "a source that is not text": ({"source": ["MESSAGE"]}, "source ['MESSAGE'] is unknown"),
    "an IMMEDIATE without workflow and session": ({"workflow": None}, "needs the name of a workflow"),
    "a naive at": ({"at": datetime(2026, 1, 1)}, "at 2026-01-01T00:00:00 has no time zone"),  # noqa: DTZ001
    "an at in a zone without an offset": ({"at": datetime(2026, 1, 1, tzinfo=ZoneWithoutOffset())}, "has no time zone"),
    "a naive expires_at": ({"expires_at": datetime(2026, 1, 1)}, "expires_at 2026-01-01T00:00:00 has"),  # noqa: DTZ001
    "at is NaN": ({"at": math.nan}, "at nan is not a moment"),
    "at is infinite": ({"at": math.inf}, "at inf is not a moment"),
    "at is minus infinite": ({"at": -math.inf}, "at -inf is not a moment"),
    "at before 1970": ({"at": -1}, "at -1 is not a moment between the years 1970 and 9999"),
    "at in the year 1": ({"at": datetime(1, 1, 1, tzinfo=UTC)}, "is not a moment between"),
    "at in the year 10000 of UTC": ({"at": datetime.max.replace(tzinfo=timezone(-timedelta(hours=1)))}, "not a moment"),
    "at is text": ({"at": "tomorrow"}, "at 'tomorrow' is not a moment: add a time of day: tomorrow at 9am"),
    "at is a boolean": ({"at": True}, "at True must be"),
    "at is huge": ({"at": HUGE}, "at a number of thousands of digits is not a moment"),
    "expires_at is NaN": ({"expires_at": math.nan}, "expires_at nan is not a moment"),
    "at and delay": ({"at": NEW_YEAR, "delay": 1}, "at and delay exclude each other"),
    "delay is negative": ({"delay": -1}, "delay -1 must be seconds from now"),
    "delay is NaN": ({"delay": math.nan}, "delay nan must be"),
    "delay is infinite": ({"delay": math.inf}, "delay inf must be"),
    "delay is text": ({"delay": "soon"}, "delay 'soon' must be"),
    "delay is huge": ({"delay": HUGE}, "delay a number of thousands of digits must be"),
    "delay goes beyond the calendar": ({"delay": 253_402_300_799.0}, "is not a moment"),
    "delay is the longest timedelta": ({"delay": timedelta.max}, "must be seconds from now"),
    "delay is a negative timedelta": ({"delay": timedelta(seconds=-1)}, "must be seconds from now"),
    "a negative priority": ({"priority": -1}, "priority -1 must be a whole number from 0 to 99"),
    "priority 100": ({"priority": 100}, "priority 100 must be"),
    "a fractional priority": ({"priority": 1.5}, "priority 1.5 must be"),
    "a boolean priority": ({"priority": True}, "priority True must be"),
    "a huge priority": ({"priority": HUGE}, "priority a number of thousands of digits must be"),
    "no attempts": ({"max_attempts": 0}, "max_attempts 0 must be a whole number from 1 to 1000"),
    "1001 attempts": ({"max_attempts": 1001}, "max_attempts 1001 must be"),
    "boolean attempts": ({"max_attempts": True}, "max_attempts True must be"),
    "an unknown scope": ({"dedup_key": "k", "dedup_scope": "today"}, "dedup_scope 'today' must be one of ever, active"),
    "an unknown on_duplicate": ({"on_duplicate": "merge"}, "on_duplicate 'merge' must be one of keep, replace, error"),
    "an unknown supersedes": ({"supersedes": "task", "session_id": "s"}, "supersedes 'task' must be one of session"),
    "supersedes without a session": ({"supersedes": "session"}, "supersedes='session' needs a session_id"),
    "a description that is not text": ({"description": b"hi"}, "description must be text, not bytes"),
    "a description of 4,001 characters": ({"description": "x" * 4001}, "description must be text of at most 4,000"),
    "a lone surrogate in the description": ({"description": "hi \ud800"}, "description holds a lone surrogate"),
    "a payload that is a list": ({"payload": [1]}, "payload must be a JSON object, not list"),
    "a payload that is text": ({"payload": "{}"}, "payload must be a JSON object, not str"),
    "no payload": ({"payload": None}, "payload must be a JSON object, not NoneType"),
    "NaN in the payload": ({"payload": {"a": math.nan}}, "payload.a is NaN"),
    "infinity deep in the payload": ({"payload": {"a": [{"b": -math.inf}]}}, "payload.a[0].b is infinite"),
    "a key that is a fraction": ({"payload": {"a": {1.5: 2}}}, "payload.a: key 1.5 is not text"),
    "two keys that become one": ({"payload": {"a": {1: 2, "1": 3}}}, 'payload.a: two keys become "1"'),
    "a key that is None": ({"payload": {None: 2}}, "payload: key None is not text"),
    "an object": ({"payload": {"a": {"b": [0, object()]}}}, "payload.a.b[1]: object is not JSON"),
    "a function": ({"payload": {"a": {len}}}, "payload.a[...]: builtin_function_or_method is not JSON"),
    "a lone surrogate in a value": ({"payload": {"a": ["\ud83d"]}}, "payload.a[0] holds a lone surrogate"),
    "a lone surrogate in a key": ({"payload": {"\udc00": 1}}, 'payload: key "\\udc00" holds a lone surrogate'),
    "33 levels": ({"payload": make_nested(33)}, "payload is deeper than 32 levels at payload.a"),
    "a payload that holds itself": ({"payload": make_circular()}, "payload.me holds itself"),
    "10,001 keys": ({"payload": {str(n): n for n in range(10_001)}}, "more than 10,000 keys"),
    "10,001 keys in all": ({"payload": {"a": [{str(n): n} for n in range(10_000)]}}, "more than 10,000 keys"),
    "an integer of 5,000 digits": ({"payload": {"a": HUGE}}, "payload.a has thousands of digits"),
}


@pytest.mark.parametrize(("changes", "refusal"), REFUSED.values(), ids=REFUSED)
def test_unacceptable_spec_is_refused_in_a_sentence_and_leaves_no_row(core, changes, refusal):
    with pytest.raises(InvalidInput) as refused:
        core.do(core.triggers.emit, a_trigger(**changes))

    assert refusal in refused.value.message
    assert "\n" not in refused.value.message
    assert len(refused.value.message) < 400
    assert core.rows("SELECT id FROM triggers") == []


NAME_FIELDS = ["workflow", "session_id", "task_id", "dedup_key", "id"]
FORBIDDEN = ["", " ", "a b", "a/b", "a\\b", "a'b", 'a"b', "a\nb", "a\n", "\ta", "a\x00b", "a\x7fb", "é", "名", "a😀"]
FORBIDDEN += ["a,b", "a;b", "a=b", "a#b", "a%b", "a?b", "a&b", "a*b", "a(b", "a<b", "a[b", "a{b", "a|b", "a~b", "a$b"]
FORBIDDEN += ["\ud800", "a" * 201]


@pytest.mark.parametrize("field", NAME_FIELDS)
@pytest.mark.parametrize("name", [*FORBIDDEN, b"a", 7, HUGE], ids=lambda name: ascii(name)[:20] if name != HUGE else "")
def test_names_keys_and_ids_with_forbidden_characters_are_refused(field, name):
    with pytest.raises(InvalidInput, match=f"^{field} .*1 to 200 characters"):
        accept_spec(**{field: name})


@pytest.mark.parametrize("field", NAME_FIELDS)
@pytest.mark.parametrize("name", ["a", "A-Z.a_z:0@9+", "x" * 200])
def test_names_keys_and_ids_of_the_allowed_characters_are_accepted(field, name):
    assert getattr(accept_spec(**{field: name}), field) == name


@pytest.mark.parametrize("name", ["not a name", TextSubclass("a")], ids=["forbidden", "subclass of str"])
def test_workflow_name_is_refused_each_time(name):
    assert accept_spec(workflow="a").workflow == "a"
    for _ in range(2):
        with pytest.raises(InvalidInput, match=r"^workflow .*1 to 200 characters"):
            accept_spec(workflow=name)


def test_workflow_name_of_the_first_version_is_shortened_each_time():
    assert [accept_spec(workflow="a@1.0").workflow for _ in range(2)] == ["a", "a"]


def test_options_that_repeat_the_defaults_change_nothing():
    assert accept_spec(priority=10) == accept_spec()


def test_trigger_without_an_id_gets_the_generated_id():
    assert accept_spec().id == "generated"
    assert not accept_spec().id_given
    assert accept_spec(id="mine").id_given


@pytest.mark.parametrize("at", [NEW_YEAR + 60, datetime(2026, 1, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))])
def test_emit_at_accepts_each_form_of_a_moment(at):
    assert accept_spec(at=at).fire_at == NEW_YEAR + 60


@pytest.mark.parametrize("delay", [60, 60.0, timedelta(minutes=1)])
def test_delay_counts_from_now(delay):
    assert accept_spec(delay=delay).fire_at == NEW_YEAR + 60


def test_trigger_without_a_time_is_due_now():
    assert accept_spec().fire_at == NEW_YEAR


def test_first_and_last_moment_of_the_calendar_are_accepted():
    assert moment("at", 0) == 0.0
    assert moment("at", datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)) == 253_402_300_799.0


def test_bounds_of_priority_attempts_and_description_are_accepted():
    assert [accept_spec(priority=bound).priority for bound in (0, 99)] == [0, 99]
    assert [accept_spec(max_attempts=bound).max_attempts for bound in (1, 1000)] == [1, 1000]
    assert accept_spec(description="é" * 4000).description == "é" * 4000


def test_32_levels_and_10_000_keys_pass():
    assert payload_text(make_nested(32), LIMIT)
    assert payload_text({str(n): n for n in range(10_000)}, LIMIT)
    assert payload_text({"a": [{str(n): n} for n in range(9_999)]}, LIMIT)


@pytest.mark.parametrize("filler", ["x", "é", "😀"])
def test_payload_of_exactly_the_limit_is_accepted(filler):
    payload = {"a": filler * 100}
    size = len(json.dumps(payload, separators=(",", ":")))

    assert len(payload_text(payload, size)) == size
    with pytest.raises(PayloadTooLarge, match=f"payload has {size:,} bytes; the limit is {size - 1:,}"):
        payload_text(payload, size - 1)


def test_payload_limit_comes_from_the_configuration(core):
    fits = {"a": "x" * (core.config.triggers.payload_max_bytes - len('{"a":""}'))}

    emitted = core.do(core.triggers.emit, a_trigger(payload=fits))

    assert emitted.created
    with pytest.raises(PayloadTooLarge, match="Store the body elsewhere"):
        core.do(core.triggers.emit, a_trigger(payload={"a": fits["a"] + "x"}))


ROUND_TRIPS = {
    "nothing": {},
    "null": {"a": None, "b": [None, {"c": None}]},
    "unicode": {"é": "日本語", "عربى": "ﷺ", "combining": "e\u0301", "last": "\U0010ffff"},
    "emoji and other pairs": {"a": "😀", "👨‍👩‍👧": "𝄞", "flag": "🇩🇪"},
    "controls": {"a": "\x00\x01\n\r\t\x7f\x80\u2028", "\x00": 1},
    "text like an escape": {"a": "\\ud800", "\\": '"'},
    "text like columns and SQL": {"status": "DONE", "__proto__": {}, "$ref": "a'; DROP TABLE triggers; --"},
    "numbers": {"a": [0, -0.0, 0.1, 1e-320, 1.7976931348623157e308, 2**53 + 1, -(2**63), 10**100]},
    "booleans beside numbers": {"a": [True, 1, False, 0]},
    "empty keys and containers": {"": {"": [[], {}, ""]}},
    "key order": {"b": 1, "a": {"d": 1, "c": 2}},
    "deep": make_nested(32),
    "large": {str(n): "é" * 10 for n in range(3_000)},
}


@pytest.mark.parametrize("payload", ROUND_TRIPS.values(), ids=ROUND_TRIPS)
def test_payload_is_read_back_unchanged(core, payload):
    emitted = core.do(core.triggers.emit, a_trigger(payload=payload))

    stored = json.loads(core.do(core.triggers.get, emitted.id).payload_json)
    assert json.dumps(stored, sort_keys=True) == json.dumps(payload, sort_keys=True)


def test_row_has_every_field_of_the_spec(core, clock):
    spec = TriggerSpec(
        workflow="greet",
        payload={"name": "Ada"},
        source=TriggerSource.MEMORY,
        at=NEW_YEAR + 60,
        expires_at=NEW_YEAR + 120,
        priority=42,
        session_id="session-1",
        task_id="task-1",
        dedup_key="memory:1",
        description="say “hello” \x00 and\nmore 😀",
        max_attempts=7,
        id="my-id",
    )

    core.do(core.triggers.emit, spec)

    stored = core.do(core.triggers.get, "my-id")
    assert stored.workflow == "greet"
    assert stored.payload_json == '{"name":"Ada"}'
    assert (stored.source, stored.priority, stored.max_attempts) == ("MEMORY", 42, 7)
    assert (stored.fire_at, stored.due_at, stored.expires_at) == (NEW_YEAR + 60, NEW_YEAR + 60, NEW_YEAR + 120)
    assert (stored.session_id, stored.task_id, stored.lane) == ("session-1", "task-1", "session-1")
    assert (stored.dedup_key, stored.dedup_scope) == ("memory:1", "active")
    assert stored.description == spec.description
    assert (stored.status, stored.attempts, stored.starts, stored.crash_count) == ("PENDING", 0, 0, 0)
    assert (stored.created_at, stored.updated_at, stored.settled_at) == (clock.now(), clock.now(), None)


@pytest.mark.parametrize(
    ("given", "lane"),
    [({"session_id": "s", "task_id": "t"}, "s"), ({"task_id": "t"}, "t"), ({}, None)],
)
def test_lane_is_the_session_or_the_task_or_none(given, lane):
    assert accept_spec(**given).lane == lane


CHARACTERS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | CHARACTERS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(CHARACTERS, inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=40)
@given(st.dictionaries(CHARACTERS, JSON, max_size=6))
def test_any_json_object_that_is_accepted_reads_back_equal(payload):
    text = payload_text(payload, LIMIT)

    assert json.loads(text) == payload
    assert payload_text(json.loads(text), LIMIT) == text
    assert text.isascii()


@settings(max_examples=50)
@given(
    st.text(max_size=300), st.sampled_from([*NAME_FIELDS, "source", "description", "dedup_scope", "supersedes", "at"])
)
def test_any_text_in_any_field_is_accepted_or_refused_without_a_crash(text, field):
    try:
        row = accept_spec(**{field: text})
    except InvalidInput:
        return
    assert field == "dedup_scope" or getattr(row, field) == text


@given(st.dictionaries(st.text() | st.integers(), st.text() | st.binary() | st.floats(), max_size=4))
def test_any_mapping_is_accepted_or_refused_without_a_crash(payload):
    try:
        text = payload_text(payload, LIMIT)
    except InvalidInput:
        return
    assert json.loads(text) == {
        str(key): b64encode(value).decode() if isinstance(value, bytes) else value for key, value in payload.items()
    }


@given(st.integers() | st.floats() | st.datetimes(timezones=st.just(UTC)) | st.datetimes())
def test_any_moment_is_accepted_as_a_finite_time_or_refused(at):
    try:
        fire_at = accept_spec(at=at).fire_at
    except InvalidInput:
        return
    assert math.isfinite(fire_at)
    assert datetime.fromtimestamp(fire_at, UTC).year >= 1970


def test_payload_of_the_deepest_recursion_is_refused_without_a_crash():
    with pytest.raises(InvalidInput, match="deeper than"):
        payload_text(make_nested(sys.getrecursionlimit() * 2), LIMIT)
