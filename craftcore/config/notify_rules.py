"""The `[[notify]]` tables of the settings: rules of notifications."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any
from urllib.parse import urlsplit

from craftcore.config.references import ADDRESS_SAID, mailbox

EVENTS = ("question", "in_doubt", "dead", "failed", "schedule_missed", "unhealthy")
DESTINATIONS = ("webhook", "command", "email", "ping")
DIGEST_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifySettings:
    """One rule. `on`: the events; `workflow`: patterns, empty: all; one destination is set. `target`: the
    `[http.target.NAME]` of a webhook; `digest`: more than that many at once become one message."""

    on: tuple[str, ...] = ()
    workflow: tuple[str, ...] = ()
    schedule: str | None = None
    webhook: str | None = None
    target: str | None = None
    command: tuple[str, ...] = ()
    email: tuple[str, ...] = ()
    ping: str | None = None
    digest: int = 5


KEYS = tuple(field.name for field in fields(NotifySettings))
LISTS = ("on", "workflow", "command", "email")


def notify_rules(given: object, mistakes: list[str]) -> tuple[NotifySettings, ...]:
    """Return the rules of a file that have no mistake. A mistake is one line."""
    if not isinstance(given, list) or not all(isinstance(table, dict) for table in given):
        mistakes.append("notify must be written as [[notify]], once for each")
        return ()
    rules = []
    for number, table in enumerate(given, 1):
        if found := [f"notify {number}: {mistake}" for mistake in _mistakes(table)]:
            mistakes.extend(found)
        else:
            rules.append(NotifySettings(**{key: _value(key, value) for key, value in table.items()}))
    return tuple(rules)


def _value(key: str, value: Any) -> Any:
    if key not in LISTS:
        return value
    return (value,) if isinstance(value, str) else tuple(value)


def _mistakes(table: dict[str, Any]) -> Iterator[str]:
    """Yield what keeps a table from being a rule."""
    if unknown := [key for key in table if key not in KEYS]:
        yield f"{unknown[0]:.80} is unknown; allowed: {', '.join(KEYS)}"
        return
    yield from _shape_mistakes(table)
    if len([key for key in DESTINATIONS if key in table]) != 1:
        yield f"give it one of {', '.join(DESTINATIONS)}"
    events = _value("on", table.get("on", ()))
    if "ping" in table:
        if "on" in table or "schedule" not in table:
            yield "a ping is for the successes and failures of one schedule: give it schedule, and no on"
    elif not events or not set(events) <= set(EVENTS):
        yield f"on is {table.get('on')!r:.60}; allowed: a list out of {', '.join(EVENTS)}"
    if "target" in table and "webhook" not in table:
        yield "target is for a webhook"
    for key in ("webhook", "ping"):
        if key in table and not _is_url(table[key]):
            yield f"{key} must be the URL of a server, with https:// or http://"
    if any(mailbox(address) is None for address in _value("email", table.get("email", ()))):
        yield f"email is {table['email']!r:.60}; allowed: {ADDRESS_SAID}"


def _shape_mistakes(table: dict[str, Any]) -> Iterator[str]:
    for key, value in table.items():
        if key in LISTS:
            words = _value(key, value) if isinstance(value, str | list) else ()
            if not words or not all(isinstance(word, str) and word for word in words):
                yield f"{key} is {value!r:.60}; allowed: a list of texts"
        elif key == "digest":
            if type(value) is not int or not 1 <= value <= DIGEST_MAX:
                yield f"digest is {value!r:.60}; allowed: a whole number from 1 to {DIGEST_MAX}"
        elif not isinstance(value, str) or not value:
            yield f"{key} is {value!r:.60}; allowed: a text"


def _is_url(text: object) -> bool:
    try:
        parts = urlsplit(str(text))
    except ValueError:
        return False
    return parts.scheme in ("https", "http") and bool(parts.hostname)
