"""Log lines: one line each, bounded, and harmless with any value."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from craftcore.log_format import LINE_MAX_BYTES, json_line, text_line
from craftcore.serialization.display import shorten

HOSTILE = [
    "\n",
    "\r",
    "\x1b[31m",
    "\u2028",
    "\u2029",
    "\u009b31m",
    "\x85",
    "\x00",
    "\x7f",
    "\u202e",
    "\ud800",
    "\\n",
    '"',
]

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=20,
)


def event(**fields: Any) -> dict[str, Any]:
    return {"timestamp": "2026-01-02T03:04:05Z", "level": "info", "event": "trigger.settled", **fields}


def test_json_log_line_begins_with_time_and_level_and_keeps_the_event() -> None:
    line = json_line({"trigger": "t-1", "event": "trigger.settled", "level": "info", "timestamp": "now"})

    assert line == '{"timestamp":"now","level":"info","event":"trigger.settled","trigger":"t-1"}'


def test_text_reads_like_a_sentence() -> None:
    line = text_line(event(trigger="t-1", attempts=2, note="it was late", empty="", nothing=None, keys=["a", "b"]))

    assert line == (
        "2026-01-02T03:04:05Z info     trigger.settled"
        ' trigger=t-1 attempts=2 note="it was late" empty="" nothing=null keys=["a","b"]'
    )


@pytest.mark.parametrize("hostile", HOSTILE, ids=ascii)
@pytest.mark.parametrize("place", ["event", "level", "timestamp", "value", "key", "inner", "object"])
def test_log_value_cannot_forge_a_line_or_control_a_terminal(hostile: str, place: str) -> None:
    class Named:
        def __repr__(self) -> str:
            return hostile

    places: dict[str, dict[str, Any]] = {
        "event": {"event": hostile},
        "level": {"level": hostile},
        "timestamp": {"timestamp": hostile},
        "value": {"value": f"a{hostile}b"},
        "key": {f"a{hostile}b": 1},
        "inner": {"value": [{hostile: hostile}]},
        "object": {"value": Named()},
    }
    fields = places[place]

    text, as_json = text_line(event(**fields)), json_line(event(**fields))

    assert text.isprintable()
    assert as_json.isprintable()
    assert json.loads(as_json)


def test_text_value_differs_from_the_escape_with_the_same_look() -> None:
    assert text_line(event(value="\n")) != text_line(event(value="\\n"))
    assert text_line(event(value="a b=c")).endswith(' value="a b=c"')
    assert text_line(event(value='say "so"')).endswith(' value="say \\"so\\""')


def test_traceback_is_indented_below_its_line_and_cannot_forge_a_line() -> None:
    trace = "Traceback:\nValueError: bad\r2026-01-02T03:04:06Z info forged\x1b[31m\u20282026"

    first, *below = text_line(event(exception=trace, trigger="t-1")).split("\n")

    assert first.endswith("trigger.settled trigger=t-1")
    assert len(below) == 4
    assert all(row.startswith("    | ") and row.isprintable() for row in below)
    assert json.loads(json_line(event(exception=trace)))["exception"] == trace


def test_terminal_gets_only_the_colours_of_craftcore() -> None:
    line = text_line(event(value="\x1b[31m"), colours=True)

    assert line.startswith("\x1b[2m2026")
    assert line.endswith('value="\\x1b[31m"')


def test_value_unknown_to_json_is_logged_as_its_repr() -> None:
    circular: list[Any] = []
    circular.append(circular)

    class Mute:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    seen = json.loads(
        json_line(event(nan=float("nan"), circular=circular, keyed={(1, 2): 3}, mute=Mute(), raw=b"\xff"))
    )

    assert seen["nan"] == "nan"
    assert seen["circular"] == "[[...]]"
    assert seen["keyed"] == "{(1, 2): 3}"
    assert seen["mute"] == "<Mute>"
    assert seen["raw"] == "b'\\xff'"


@pytest.mark.parametrize("character", ["a", "\x00", "é", "𝄞", "\n", '"'], ids=ascii)
@pytest.mark.parametrize("key", ["value", "event", "exception"])
def test_long_log_line_is_cut_with_a_mark(character: str, key: str) -> None:
    huge = event(**{key: character * 1_000_000, "trigger": "t-1"})

    for render in (json_line, text_line):
        line = render(huge)

        assert len(line.encode()) <= LINE_MAX_BYTES
        assert "characters cut ...]" in line
        assert "t-1" in line
    assert json.loads(json_line(huge))["trigger"] == "t-1"


def test_long_value_in_a_short_line_stays_whole() -> None:
    assert json.loads(json_line(event(value="x" * 7000)))["value"] == "x" * 7000


def test_more_fields_than_fit_are_counted() -> None:
    seen = json.loads(json_line(event(**{f"field_{n}": "x" * 500 for n in range(1000)})))

    assert seen["event"] == "trigger.settled"
    assert seen["fields_cut"] == 1003 - (len(seen) - 1)


def test_long_value_keeps_both_ends() -> None:
    assert shorten("abcdefghij", 4) == "ab[... 6 characters cut ...]ij"
    assert shorten("abcdefghij", 10) == "abcdefghij"


@settings(max_examples=12, deadline=None)
@given(st.dictionaries(st.text(), VALUES), st.sampled_from([1024, LINE_MAX_BYTES]))
def test_event_of_any_kind_has_a_line_within_bounds(fields: dict[str, Any], max_bytes: int) -> None:
    text, as_json = text_line(fields, max_bytes=max_bytes), json_line(fields, max_bytes=max_bytes)

    assert len(text.encode()) <= max_bytes
    assert all(row.isprintable() for row in text.split("\n"))
    assert len(as_json) <= max_bytes
    assert isinstance(json.loads(as_json), dict)
