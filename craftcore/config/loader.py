"""The loader of settings from TOML: the keys of each table, and one line for each mistake.

`craftcore.config` says which settings there are: one class per table, whose annotations are the rules here.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from craftcore.config.http_targets import HttpTarget, http_targets
from craftcore.config.web_people import WebPerson, read_people
from craftcore.errors import ConfigInvalid
from craftcore.files import open_regular
from craftcore.serialization.arguments import to_seconds

_FILE_MAX_BYTES = 1 << 20
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")

Kinds = Mapping[str, Any]
"""The class of each table, by its name."""


@dataclass(frozen=True, slots=True)
class Between:
    """A number within these bounds, both included."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Spelt:
    """Text of which this holds; what is allowed, in words. Without any text it is not set."""

    holds: Callable[[str], object]
    explanation: str
    hidden: bool = False
    """The value may be a secret, so no error message shows it."""


Variables = tuple[str, ...]
"""Names of environment variables."""


@dataclass(frozen=True, slots=True)
class Each:
    """A list of texts of each of which this holds; what is allowed, in words."""

    holds: Callable[[str], object]
    explanation: str


Targets = Mapping[str, HttpTarget]
"""Tables of a table, by name."""

People = tuple[WebPerson, ...]
"""A list of tables, one for each person."""

READERS: tuple[tuple[Any, Callable[[str, object, list[str]], Any]], ...] = (
    (Targets, http_targets),
    (People, read_people),
)
"""The kinds of values that are tables themselves."""


SCHEDULE_KEYS = (
    *("id", "when", "workflow", "payload", "command", "timezone", "catch_up", "catch_up_window", "catch_up_max"),
    *("catch_up_spacing", "overlap", "jitter", "expires_after", "start", "until", "max_runs", "session_id", "source"),
    *("deliver", "priority", "description", "max_attempts", "irreversible"),
)
"""The keys of a `[[schedule]]` table. Its values are judged where schedules are declared."""


_KEYS_OF_A_FOLDER = ("host", "port", "security", "username", "password", "folder", "settle", "is_complete")
_REMOVED = dict.fromkeys(
    (f"email.imap_{key}" for key in _KEYS_OF_A_FOLDER),
    "remove it: email.send searches no folder. Declare it in the app with a reconcile function, "
    "as examples/email_sent_folder.py does",
)
"""Settings that did something once, and what to do instead."""


def read(path: Path) -> dict[str, Any]:
    """Return the document of a file. Raises ConfigInvalid, in one line."""
    try:
        with open_regular(path) as file:
            text = file.read(_FILE_MAX_BYTES + 1)
        if len(text) > _FILE_MAX_BYTES:
            raise ConfigInvalid(f"{path}: over {_FILE_MAX_BYTES} bytes, too large for a configuration")
        return tomllib.loads(text.decode("utf-8-sig"))
    except OSError as error:
        raise ConfigInvalid(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigInvalid(f"{path}: is not UTF-8 text, at byte {error.start}") from error
    except (ValueError, RecursionError) as error:  # ValueError also for an integer of thousands of digits
        raise ConfigInvalid(f"{path}: is not TOML: {error}") from error


def table_of(name: str, kinds: Kinds, given: object, mistakes: list[str]) -> Any:
    """Return the settings of one table. A mistake is noted, and its key keeps the default."""
    kind = kinds[name]
    if not isinstance(given, dict):
        mistakes.append(f"{name} is {_show_value(given)}; allowed: a table")
        return kind()
    rules = get_type_hints(kind, include_extras=True)
    values: dict[str, Any] = {}
    for key in (key for key in rules if key in given):
        if read_tables := next((reader for rule, reader in READERS if rule == rules[key]), None):
            values[key] = read_tables(f"{name}.{key}", given[key], mistakes)
            continue
        try:
            values[key] = _check_value(rules[key], given[key])
        except ValueError as refused:
            shown = "not shown" if _is_hidden(rules[key]) else _show_value(given[key])
            mistakes.append(f"{name}.{key} is {shown}; allowed: {refused}")
    mistakes.extend(unknown_name_mistakes(f"{name}.", given, rules, kinds))
    return kind(**values)


def schedules_of(given: object, kinds: Kinds, mistakes: list[str]) -> tuple[dict[str, Any], ...]:
    """Return the `[[schedule]]` tables with nothing in them that is not one of their keys."""
    if not isinstance(given, list) or not all(isinstance(table, dict) for table in given):
        mistakes.append("schedule must be written as [[schedule]], once for each")
        return ()
    for number, table in enumerate(given, 1):
        where = f"schedule {_show_value(table.get('id', number))}"
        mistakes.extend(
            f"{where}: {line}" for line in unknown_name_mistakes("", table, dict.fromkeys(SCHEDULE_KEYS), kinds)
        )
        for key in ("id", "when"):
            if not isinstance(table.get(key), str):
                mistakes.append(f"{where}: {key} is missing, or no text")
        if sum(key in table for key in ("workflow", "command", "deliver")) != 1:
            mistakes.append(f"{where}: give it a workflow, a command or deliver, one of them")
        command = table.get("command", [""])
        if not isinstance(command, list) or not command or not all(isinstance(word, str) for word in command):
            mistakes.append(f"{where}: command is {_show_value(command)}; allowed: a list of words, the program first")
        if type(table.get("irreversible", False)) is not bool:
            mistakes.append(f"{where}: irreversible is {_show_value(table['irreversible'])}; allowed: true or false")
        elif "irreversible" in table and "command" not in table:
            mistakes.append(
                f"{where}: irreversible is for a command; what else a workflow does once, its code says with ctx.act"
            )
        if "command" in table and "payload" in table:
            mistakes.append(f"{where}: a command makes its own payload; give one of them")
    return tuple(given)


def _check_value(rule: Any, value: Any) -> Any:
    """Return the value as its setting keeps it. Raises ValueError that says what is allowed."""
    if get_origin(rule) is Literal:
        choices = get_args(rule)
        if value in choices:
            return value
        raise ValueError(" or ".join(f'"{choice}"' for choice in choices))
    if rule == Variables:
        if isinstance(value, list) and all(isinstance(name, str) and _VARIABLE.fullmatch(name) for name in value):
            return tuple(value)
        raise ValueError("a list of names of environment variables")
    if rule is bool:
        if isinstance(value, bool):
            return value
        raise ValueError("true or false")
    kind, bounds = get_args(rule)
    if isinstance(bounds, Each):
        if isinstance(value, list) and all(isinstance(one, str) and bounds.holds(one) for one in value):
            return tuple(value)
        raise ValueError(bounds.explanation)
    if isinstance(bounds, Spelt):
        if isinstance(value, str) and (not value or bounds.holds(value)):
            return value
        raise ValueError(bounds.explanation)
    # By exact type: True is an int to Python, and no number to a reader of TOML. NaN is within no bounds.
    number = to_seconds(value) if kind is float else value
    if (type(number) is int or type(number) is kind) and bounds.low <= number <= bounds.high:
        return kind(number)
    if kind is int:
        raise ValueError(f"a whole number from {bounds.low} to {bounds.high}")
    raise ValueError(f'a number from {bounds.low} to {bounds.high}, in seconds, or text like "10m"')


def _is_hidden(rule: Any) -> bool:
    return any(isinstance(mark, Spelt) and mark.hidden for mark in get_args(rule))


def unknown_name_mistakes(table: str, given: dict[str, Any], known: Mapping[str, Any], kinds: Kinds) -> Iterator[str]:
    """Yield a line for each unknown name, with the name that was probably meant."""
    for name in given:
        if name in known:
            continue
        if removed := _REMOVED.get(f"{table}{name}"):
            yield f"{table}{name} is unknown; {removed}"
            continue
        homes = [home for home, kind in kinds.items() if name in getattr(kind, "__annotations__", ())]
        if homes:
            hint = f"it belongs in [{homes[0]}]"
        elif near := get_close_matches(name.lower(), known, n=1):
            hint = f"did you mean '{near[0]}'?"
        else:
            hint = f"allowed: {', '.join(known)}"
        shown = name if name.isidentifier() and len(name) <= 80 else _show_value(name)
        yield f"{table}{shown} is unknown; {hint}"


def _show_value(value: object) -> str:
    """Return the value in one short line, whatever a file may hold."""
    try:
        text = repr(value)
    except ValueError:  # Python refuses to print an integer of thousands of digits
        text = "a number of thousands of digits"
    return text if len(text) <= 60 else f"{text[:57]}..."
