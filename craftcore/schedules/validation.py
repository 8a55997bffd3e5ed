"""The validation of schedules, before anything is written. Pure."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from enum import StrEnum
from typing import TypeVar

from craftcore.errors import InvalidInput, ScheduleInvalid
from craftcore.schedules.model import CatchUp, Declared, Overlap, ScheduleSpec
from craftcore.schedules.recurrence.expression import check_zone
from craftcore.serialization.arguments import to_seconds
from craftcore.serialization.canonical import canonicalize, sha256_of
from craftcore.triggers.model import OWN_SOURCES, NewTrigger, TriggerSource
from craftcore.triggers.validation import moment, show_value

ID = re.compile(r"[A-Za-z0-9._:@+-]{1,150}")
"""Shorter than other names: dedup keys are made from it."""

YEAR = 366 * 86_400.0

_ADDED = (("source", TriggerSource.SCHEDULED), ("deliver", None))
"""Options that were added after the first release, with their defaults."""

E = TypeVar("E", bound=StrEnum)


def accept(spec: ScheduleSpec, row: NewTrigger, *, local_zone: str | None) -> Declared:
    """Return the checked form of a spec. `row` is the trigger it would fire now, accepted already. `local_zone` None:
    the machine's is not known, and the zone is UTC for what needs none.

    Raises ScheduleInvalid, naming the option, its value and what is allowed. The expression is not read here.
    """
    if type(spec.when) is not str:
        raise ScheduleInvalid(f"when {spec.when!r:.80} must be text")
    zone = local_zone or "UTC" if spec.timezone is None else spec.timezone
    check_zone(zone)
    start = None if spec.start is None else float(round(_moment("start", spec.start)))
    until = None if spec.until is None else _moment("until", spec.until)
    if start is not None and until is not None and until < start:
        raise ScheduleInvalid("until is before start: nothing would ever fire")
    expiry = spec.expires_after
    expires_after = None if expiry is None else _seconds("expires_after", expiry, 1, 10 * YEAR)
    declared = Declared(
        id=spec.id,
        declared_hash="",
        expression=" ".join(spec.when.split()),
        timezone=zone,
        timezone_given=spec.timezone is not None,
        workflow=spec.workflow,
        payload_json=row.payload_json,
        session_id=spec.session_id,
        priority=spec.priority,
        description=spec.description,
        max_attempts=spec.max_attempts,
        catch_up=_require_member("catch_up", spec.catch_up, CatchUp),
        catch_up_window=_seconds("catch_up_window", spec.catch_up_window, 0, 10 * YEAR),
        catch_up_max=_whole_number("catch_up_max", spec.catch_up_max, 1, 1000),
        catch_up_spacing=_seconds("catch_up_spacing", spec.catch_up_spacing, 0, 86_400),
        overlap=_require_member("overlap", spec.overlap, Overlap),
        jitter=_seconds("jitter", spec.jitter, 0, 7 * 86_400),
        expires_after=expires_after,
        start_at=start,
        until_at=until,
        max_runs=None if spec.max_runs is None else _whole_number("max_runs", spec.max_runs, 1, 1_000_000_000),
        source=TriggerSource(row.source),
        deliver=spec.deliver,
    )
    return _with_hash(declared)


def check_names(spec: ScheduleSpec) -> None:
    """Raise ScheduleInvalid for an id that could not be part of a dedup key, or no name of a workflow."""
    if type(spec.id) is not str or not ID.fullmatch(spec.id):
        raise ScheduleInvalid(f"id {spec.id!r:.80} must be 1 to 150 characters out of A-Z a-z 0-9 . _ : @ + -")
    if spec.source in OWN_SOURCES:
        raise ScheduleInvalid(f"source {spec.source} is craftcore's own; a schedule takes another")
    if spec.deliver is not None:
        _check_delivery(spec)
    elif not isinstance(spec.workflow, str):
        raise ScheduleInvalid(f"workflow {spec.workflow!r:.80} must be the name of a workflow, as text")


def _check_delivery(spec: ScheduleSpec) -> None:
    if spec.deliver != "session":
        raise ScheduleInvalid(f'deliver {spec.deliver!r:.80} must be "session"')
    if spec.session_id is None:
        raise ScheduleInvalid('deliver="session" needs the session, as session_id')
    if spec.workflow is not None:
        raise ScheduleInvalid(
            f'deliver="session" takes no workflow, and has {spec.workflow!r:.80}: when no task of the session is live, '
            "the workflow that takes the source begins one"
        )


def _with_hash(declared: Declared) -> Declared:
    """Return the schedule with the hash of its declaration. A zone that was not given is not part of it, nor is an
    option that older releases did not have, while it has its default."""
    declared_values = {field.name: getattr(declared, field.name) for field in fields(declared)}
    if not declared.timezone_given:
        del declared_values["timezone"]
    for name, default in _ADDED:
        if declared_values[name] == default:
            del declared_values[name]
    return replace(declared, declared_hash=sha256_of(canonicalize(declared_values)))


def _moment(name: str, value: object) -> float:
    try:
        return moment(name, value)
    except InvalidInput as error:
        raise ScheduleInvalid(error.message) from None


def _seconds(name: str, value: object, least: float, most: float) -> float:
    seconds = to_seconds(value)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not least <= seconds <= most:
        raise ScheduleInvalid(f"{name} {show_value(value)} must be {least:.0f} to {most:.0f} seconds")
    return float(seconds)


def _whole_number(name: str, value: object, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ScheduleInvalid(f"{name} {show_value(value)} must be a whole number from {least} to {most}")
    return value


def _require_member(name: str, value: object, kind: type[E]) -> E:
    try:
        return kind(str(value))
    except ValueError:
        raise ScheduleInvalid(f"{name} {value!r:.80} must be one of {', '.join(kind)}") from None
