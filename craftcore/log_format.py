"""From an event to its log line: bounded, and harmless wherever it is read. Pure.

Values come from anywhere (payloads, other people's programs). Each event is one line, whatever its values are: no
value starts a new line, controls a terminal, or exceeds the length of a line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from craftcore.serialization.display import shorten

LINE_MAX_BYTES = 8 * 1024

LEADING = ("timestamp", "level", "event", "exception")
"""These come first, and so are the last to be dropped from a line that is too long."""

_DIM, _RED, _YELLOW, _BOLD, _PLAIN = "\x1b[2m", "\x1b[31m", "\x1b[33m", "\x1b[1m", "\x1b[0m"
_COLOURS = {"debug": _DIM, "warning": _YELLOW, "error": _RED, "critical": _RED}


def json_line(event: dict[str, Any], *, max_bytes: int = LINE_MAX_BYTES) -> str:
    """Return one JSON object in ASCII: `{"timestamp":"…","level":"info","event":"trigger.settled","trigger":"…"}`."""
    ordered = _order_fields(event)
    if _may_fit(ordered, max_bytes):
        line = to_json(ordered)
        if len(line) <= max_bytes and line.startswith("{"):  # a string when the event as a whole is not JSON
            return line
    fields = _cut(ordered, max_bytes, lambda key, value: f"{to_json(str(key))}:{to_json(value)}")
    return "{" + ",".join(fields) + "}"


def text_line(event: dict[str, Any], *, colours: bool = False, max_bytes: int = LINE_MAX_BYTES) -> str:
    """Return text for a person: `2026-01-02T03:04:05Z info     trigger.settled status=DONE`, a traceback indented below
    it."""
    ordered = _order_fields(event)
    parts: list[str] = []
    if _may_fit(ordered, max_bytes):
        parts = [_text_field(key, value, colours) for key, value in ordered.items()]
    if not parts or sum(len(part.encode()) + 1 for part in parts) > max_bytes:
        parts = list(_cut(ordered, max_bytes, lambda key, value: _text_field(key, value, False)))
    below = [part for part in parts if part.startswith("\n")]
    return " ".join(part for part in parts if not part.startswith("\n")) + "".join(below)


def to_json(value: Any) -> str:
    """Return compact ASCII JSON of a value; a value that JSON does not have is its repr, as a string."""
    try:
        return _encode(value)
    except (TypeError, ValueError, RecursionError):
        return _encode(_repr(value))


def escape_control(text: str) -> str:
    r"""Escape characters that do not print: `"a\x1b[31m"` comes out as the characters `a\x1b[31m`."""
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(
        sign if sign.isprintable() and sign != "\\" else sign.encode("unicode_escape").decode() for sign in text
    )


def _order_fields(event: dict[str, Any]) -> dict[str, Any]:
    first = {key: event[key] for key in LEADING if key in event}
    return first | {key: value for key, value in event.items() if key not in first}


def _may_fit(event: dict[str, Any], max_bytes: int) -> bool:
    """Return False when its texts alone are too long: known without rendering what may be megabytes."""
    return sum(len(value) for value in event.values() if isinstance(value, str)) <= max_bytes


def _cut(event: dict[str, Any], max_bytes: int, render: Callable[[str, Any], str]) -> Iterator[str]:
    """Yield the fields of a line that is too long: each within its share, and a count of those that found no room."""
    room = max_bytes - 40  # what encloses the fields, and the count
    dropped = 0
    for key, value in event.items():
        share = max_bytes // 2 if key == "exception" else max_bytes // 8
        field = _fit_into(share, key, value, render)
        size = len(field.encode()) + 1
        if size > min(room, share + 1):
            dropped += 1
        else:
            room -= size
            yield field
    if dropped:
        yield render("fields_cut", dropped)


def _fit_into(share: int, key: str, value: Any, render: Callable[[str, Any], str]) -> str:
    text = value if isinstance(value, str) else to_json(value)
    keep = min(len(text), share)
    field = render(key, value if keep == len(text) else shorten(text, keep))
    while (size := len(field.encode())) > share and keep:
        keep = min(keep - 1, keep * share // size)  # escapes are longer than what they stand for: measured, not guessed
        field = render(key, shorten(text, keep))
    return field


def _text_field(key: str, value: Any, colours: bool) -> str:
    match key:
        case "timestamp":
            return _colour(escape_control(str(value)), _DIM, colours)
        case "level":
            return _colour(f"{escape_control(str(value)):8}", _COLOURS.get(str(value), ""), colours)
        case "event":
            return _colour(escape_control(value if isinstance(value, str) else to_json(value)), _BOLD, colours)
        case "exception":
            return "".join(f"\n    | {escape_control(line)}" for line in str(value).splitlines())
        case _:
            return f"{_text_value(str(key))}={_text_value(value)}"


def _text_value(value: Any) -> str:
    text = value if isinstance(value, str) else to_json(value)
    if not isinstance(value, str) or (text.isprintable() and text and not set(text) & set(' "\\=')):
        return text
    return '"' + escape_control(text).replace('"', '\\"') + '"'


def _colour(text: str, colour: str, colours: bool) -> str:
    return f"{colour}{text}{_PLAIN}" if colours and colour else text


def _repr(value: object) -> str:
    try:
        return repr(value)
    except Exception:  # a value that cannot say what it is must not cost the line
        return f"<{type(value).__name__}>"


_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True, allow_nan=False, default=_repr).encode
