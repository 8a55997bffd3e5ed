"""The validation of specs, before anything is written. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from craftcore.clock import BEFORE_1970, YEAR_10000
from craftcore.errors import InvalidInput, PayloadTooLarge
from craftcore.serialization.arguments import to_seconds
from craftcore.serialization.canonical import canonicalize_tree
from craftcore.serialization.plain import is_plain
from craftcore.triggers.backoff import ATTEMPTS_MAX
from craftcore.triggers.model import OWN_SOURCES, NewTrigger, TriggerSource, TriggerSpec
from craftcore.triggers.sources import DEFAULTS, Defaults
from craftcore.triggers.workflow_names import bare_name

NAME = re.compile(r"[A-Za-z0-9._:@+-]{1,200}")
"""Keys, ids and names travel as HTTP headers, Message-IDs and workflow ids of other engines."""

NAME_RULE = "1 to 200 characters out of A-Z a-z 0-9 . _ : @ + -"
"""The same for people."""

KEY_OF_OURS = re.compile(r"(turn|wake|resume):[A-Za-z0-9._:@+-]{1,240}")
"""The trigger that continues a task has a key with the whole id, however long that is."""

MAX_DEPTH = 32
MAX_KEYS = 10_000
MAX_DESCRIPTION = 4_000

_Path: TypeAlias = "tuple[_Path | None, str | int]"
"""Where a part lies: in what, and under which key or number. None is the payload itself."""


def accept(spec: TriggerSpec, now: float, minted_id: str, *, payload_max_bytes: int) -> NewTrigger:
    """Return the row for a spec. Raises InvalidInput or PayloadTooLarge, naming the field, the value and what is
    allowed."""
    source: object = spec.source
    defaults = DEFAULTS.get(source) if isinstance(source, str) else None
    if defaults is None:
        raise InvalidInput(f"source {show_value(source)} is unknown; it must be one of {', '.join(TriggerSource)}")
    workflow: object = spec.workflow
    if workflow is not None:
        workflow = _bare_workflow(workflow) if type(workflow) is str else require_name("workflow", workflow)
    scope, priority = (None, defaults.priority) if _has_no_options(spec) else _check_options(spec, defaults)
    if workflow is spec.session_id is spec.task_id is None and source == TriggerSource.IMMEDIATE:
        raise InvalidInput("an IMMEDIATE trigger without a session needs the name of a workflow")
    fire_at = now if spec.at is spec.delay is None else _fire_at(spec, now)
    return NewTrigger(
        spec.id or minted_id,
        str(source),
        spec.dedup_key,
        scope,
        spec.session_id,
        spec.task_id,
        workflow,
        spec.session_id or spec.task_id,
        fire_at,
        fire_at,
        None if spec.expires_at is None else moment("expires_at", spec.expires_at),
        priority,
        spec.description,
        payload_text(spec.payload, payload_max_bytes),
        spec.max_attempts,
        now,
        now,
        spec.id is not None,
        spec.at is not None,
        spec.on_duplicate,
        spec.supersedes is not None,
    )


def _has_no_options(spec: TriggerSpec) -> bool:
    """Return whether a spec leaves all that `_check_options` checks at its default, as most do."""
    return (
        spec.session_id is spec.task_id is spec.dedup_key is spec.dedup_scope is spec.id is None
        and spec.priority is spec.max_attempts is None
        and spec.supersedes is spec.description is None
        and spec.on_duplicate == "keep"
    )


def _check_options(spec: TriggerSpec, defaults: Defaults) -> tuple[str | None, int]:
    """Check the names and options of a spec. Return the scope of its dedup key, and its priority."""
    is_ours = type(spec.dedup_key) is str and KEY_OF_OURS.fullmatch(spec.dedup_key) is not None
    if is_ours and spec.source not in OWN_SOURCES:
        raise InvalidInput(
            f"dedup_key {show_value(spec.dedup_key)} is of those that tasks go on with; give it another name"
        )
    for field, value in (
        ("session_id", spec.session_id),
        ("task_id", spec.task_id),
        ("dedup_key", None if is_ours else spec.dedup_key),
        ("id", spec.id),
    ):
        if value is not None:
            require_name(field, value)
    scope: str | None = None
    if spec.dedup_key is not None:
        given = defaults.scope if spec.dedup_scope is None else spec.dedup_scope
        scope = _require_member("dedup_scope", given, ("ever", "active"))
    elif spec.dedup_scope is not None:
        raise InvalidInput(f"dedup_scope {show_value(spec.dedup_scope)} needs a dedup_key")
    priority = defaults.priority if spec.priority is None else spec.priority
    if type(priority) is not int or not 0 <= priority <= 99:
        raise InvalidInput(f"priority {show_value(priority)} must be a whole number from 0 to 99; lower is sooner")
    if spec.max_attempts is not None and (
        type(spec.max_attempts) is not int or not 1 <= spec.max_attempts <= ATTEMPTS_MAX
    ):
        raise InvalidInput(
            f"max_attempts {show_value(spec.max_attempts)} must be a whole number from 1 to {ATTEMPTS_MAX}"
        )
    if spec.supersedes is not None:
        _require_member("supersedes", spec.supersedes, ("session",))
        if spec.session_id is None:
            raise InvalidInput("supersedes='session' needs a session_id")
    if spec.on_duplicate != "keep":
        _require_member("on_duplicate", spec.on_duplicate, ("keep", "replace", "error"))
    if spec.description is not None:
        if type(spec.description) is not str:
            raise InvalidInput(f"description must be text, not {type(spec.description).__name__}")
        _check_description(spec.description)
    return scope, priority


def require_name(field: str, value: object) -> str:
    """Return a name that can be one. Raises InvalidInput."""
    if type(value) is str and NAME.fullmatch(value) is not None:
        return value
    raise InvalidInput(f"{field} {show_value(value)} must be {NAME_RULE}")


@lru_cache(maxsize=1024)
def _bare_workflow(workflow: str) -> str:
    """Return the text by which a workflow is known: a program emits for few of them."""
    return bare_name(require_name("workflow", workflow))


def is_name(value: object) -> bool:
    """Return whether this can be a key, an id or a name."""
    return type(value) is str and NAME.fullmatch(value) is not None


def payload_text(payload: Mapping[str, Any], max_bytes: int) -> str:
    """Return the canonical text of a payload: a JSON object, with the values of `encode` in it."""
    if type(payload) is not dict:
        if not isinstance(payload, Mapping):
            raise InvalidInput(f"payload must be a JSON object, not {type(payload).__name__}")
        payload = dict(payload)
    text, is_shallow = "", is_plain(payload, MAX_DEPTH)
    if is_shallow:
        with suppress(ValueError):  # a number or a character that JSON has not
            text = canonicalize_tree(payload)
    if not text or "\\ud" in text:
        from craftcore.serialization.encode import encode  # most payloads need no types

        text = encode(payload, "payload")
    if len(text) > max_bytes:
        raise PayloadTooLarge(
            f"payload has {len(text):,} bytes; the limit is {max_bytes:,} (triggers.payload_max_bytes). "
            "Store the body elsewhere and pass a reference"
        )
    if not is_shallow or text.count(":") > MAX_KEYS:
        _check_size(json.loads(text), None, 1, [0])
    return text


class MomentRead(NamedTuple):
    """A moment that was given, in epoch seconds. `is_delay`: as a time from now."""

    at: float
    is_delay: bool


ReadMoment = Callable[[str, object, float, str | None], MomentRead]
"""(field, value, now, time zone, None: not known): the moment that a value means. Raises InvalidInput."""


MOMENT_TEXTS = (str, timedelta)
"""Moments of these types are read with the time zone of the machine."""


def with_moments(spec: TriggerSpec, now: float, zone: str | None, read_moment: ReadMoment) -> TriggerSpec:
    """Return the spec with moments in place of their texts. A time from now is a delay, which follows a clock that is
    set back. `zone`: of the machine. Raises InvalidInput."""
    if spec.expires_at is not None:
        spec = replace(spec, expires_at=read_moment("expires_at", spec.expires_at, now, zone).at)
    if spec.at is None:
        return spec
    given = read_moment("at", spec.at, now, zone)
    if given.is_delay and spec.delay is None:
        return replace(spec, at=None, delay=given.at - now)
    return replace(spec, at=given.at)


def moment(field: str, value: object) -> float:
    """Return the epoch seconds of an aware datetime or a finite number."""
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            raise InvalidInput(f"{field} {value.isoformat()} has no time zone; add one, e.g. Z or tzinfo=UTC")
        value = value.timestamp()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput(f"{field} {show_value(value)} must be an aware datetime or epoch seconds")
    if not 0 <= value < YEAR_10000:
        raise InvalidInput(f"{field} {show_value(value)} is not a moment between the years 1970 and 9999")
    return float(value)


def _fire_at(spec: TriggerSpec, now: float) -> float:
    if spec.at is not None and spec.delay is not None:
        raise InvalidInput("at and delay exclude each other; give one of them")
    if spec.at is not None:
        return moment("at", spec.at)
    if spec.delay is None:
        return now
    delay: Any = to_seconds(spec.delay)
    if not _is_number(delay) or not 0 <= delay < YEAR_10000:
        raise InvalidInput(
            f"delay {show_value(spec.delay)} must be seconds from now, or a text like 10m: "
            "0 or more, and due before the year 10000"
        )
    if now < 0:
        raise InvalidInput(f"delay {show_value(spec.delay)}: {BEFORE_1970}")
    return moment("delay", now + delay)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def show_value(value: object) -> str:
    """Return the value in one short line, whatever was given."""
    try:
        return f"{value!r:.80}"
    except ValueError:  # Python refuses to print an integer of thousands of digits
        return "a number of thousands of digits"


def _require_member(field: str, value: object, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise InvalidInput(f"{field} {show_value(value)} must be one of {', '.join(allowed)}")
    return str(value)


def _check_description(text: str) -> None:
    if len(text) > MAX_DESCRIPTION:
        raise InvalidInput(f"description must be text of at most {MAX_DESCRIPTION:,} characters")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput("description holds a lone surrogate, which is not a character") from error


def _check_size(value: Any, path: _Path | None, depth: int, keys: list[int]) -> None:
    """Raise InvalidInput for a payload that is too deep, or has too many keys.

    Where it is becomes text only when something is refused: a long key above a thousand lists is not copied a thousand
    times.
    """
    if depth > MAX_DEPTH:
        raise InvalidInput(f"payload is deeper than {MAX_DEPTH} levels at {_path_text(path):.120}")
    if isinstance(value, dict):
        keys[0] += len(value)
        if keys[0] > MAX_KEYS:
            raise InvalidInput(f"payload has more than {MAX_KEYS:,} keys")
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    for step, inner in parts:
        if isinstance(inner, dict | list):
            _check_size(inner, (path, step), depth + 1, keys)


def _path_text(path: _Path | None) -> str:
    """Return `payload.cities[3]`."""
    if path is None:
        return "payload"
    above, step = path
    return f"{_path_text(above)}[{step}]" if isinstance(step, int) else f"{_path_text(above)}.{step}"
