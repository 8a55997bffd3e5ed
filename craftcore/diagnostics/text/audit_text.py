"""A row of the operators' log in words: who did it, and its details."""

from __future__ import annotations

from typing import Any

from craftcore.audit.model import Actor, AuditRow
from craftcore.diagnostics.text.printable import Verbatim, show_json
from craftcore.log_format import escape_control
from craftcore.serialization.display import json_or_text
from craftcore.serialization.time_text import clock_time

OF_THE_ACTOR = ("login_uid", "login_name", "person_name", "via", "request")
"""Details that say who acted; the others say what was done."""

AuditLine = tuple[dict[str, Any], tuple[object, ...]]
"""A call of a person as a document, and as the cells of a table."""

CHANNELS = {"web": "by the page"}


def actor_text(row: AuditRow) -> str:
    """Return `ada (uid 1000)`, with the login where that is another; `ada, by the page (craftcore, uid 997)`."""
    details = details_of(row)
    user = Actor(uid=row.uid, name=row.name)
    if "person_name" in details:
        channel = details.get("via", "")
        process = f"{user.name}, uid {user.uid}" if user.name else user.account
        return f"{details['person_name']}, {CHANNELS.get(channel, f'by {channel}')} ({process})"
    if "login_uid" in details:
        return f"{user.account} of {Actor(uid=details['login_uid'], name=details.get('login_name', '')).account}"
    return user.account


def details_of(row: AuditRow) -> dict[str, Any]:
    """Return the details of a row; those of a damaged one are its text, as `damaged`."""
    details = json_or_text(row.details_json)
    return details if isinstance(details, dict) else {"damaged": details}


def other_details(row: AuditRow) -> dict[str, Any]:
    """Return the details without those that say who acted."""
    return {name: value for name, value in details_of(row).items() if name not in OF_THE_ACTOR}


def details_text(details: dict[str, Any]) -> Verbatim:
    """Return the details of an operation in one line."""
    named = (f"{escape_control(name)} {_value(name, value)}" for name, value in details.items() if value is not None)
    return Verbatim("; ".join(named))


def _value(name: str, value: Any) -> str:
    """Return `"a" -> "b"` for what was changed; a moment as a clock shows it."""
    if isinstance(value, dict) and set(value) == {"before", "after"}:
        return f"{_value(name, value['before'])} -> {_value(name, value['after'])}"
    if name.endswith(("_at", "_until")) and isinstance(value, int | float):
        return clock_time(value)
    return show_json(value)
