"""The one table of sources: default priority, dedup key and scope of each.

| source         | priority | dedup key                                        | scope  |
|----------------|----------|--------------------------------------------------|--------|
| MESSAGE        | 3        | none unless given (the channel's message id)      | ever   |
| CONTINUATION   | 5        | turn:{task_id}:{turn}, wake:{wait_id}            | ever   |
| RESUME         | 6        | resume:{task_id}                                 | active |
| IMMEDIATE      | 10       | none unless given                                | active |
| SCHEDULED      | 20       | scheduled-once:{schedule_id}[:{generation}]      | ever   |
|                | 30       | scheduled:{schedule_id}:{nominal UTC second}     | ever   |
|                | 30       | scheduled-startup:{schedule_id}:{epoch seconds}  | ever   |
|                | 30       | scheduled-now:{schedule_id}:{epoch seconds}      | ever   |
| LIVING_UI      | 30       | living_ui:{project_id}:{job_kind}                | active |
| PROACTIVE      | 50       | proactive:{frequency}:{slot}                     | ever   |
| MEMORY         | 55       | memory:{slot}                                    | active |
| SKILL_WORKFLOW | 60       | none unless given                                | active |
| ONBOARDING     | 1        | onboarding[:{user}]                              | active |
| SYSTEM         | 1        | system:{kind}:{epoch}                            | ever   |

A schedule with another source than SCHEDULED has the priority of that source. Its PROACTIVE and MEMORY triggers have
the keys of `slot_key`, always with the scope `ever`.

The scope is `ever` where the key names one event: a provider's message, a slot of a schedule, a turn. It is `active`
where the key names a piece of work: the same reminder may be set again once the first one has fired.

A key has a constant prefix and a growing tail and is stored as given, never hashed: neighbours in time are neighbours
in the index.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from craftcore.errors import InvalidInput
from craftcore.serialization.untrusted import safe_repr
from craftcore.triggers.model import DedupScope, TriggerSource


class Defaults(NamedTuple):
    """Options that a spec leaves open are taken from here."""

    priority: int
    scope: DedupScope


NOTIFY = "notify:"
"""The beginning of the dedup keys of notifications."""

ONE_TIME_PRIORITY = 20
"""A one-time schedule's trigger goes before a recurring one's."""

DEFAULTS: dict[str, Defaults] = {
    TriggerSource.MESSAGE: Defaults(3, DedupScope.EVER),
    TriggerSource.CONTINUATION: Defaults(5, DedupScope.EVER),
    TriggerSource.RESUME: Defaults(6, DedupScope.ACTIVE),
    TriggerSource.IMMEDIATE: Defaults(10, DedupScope.ACTIVE),
    TriggerSource.SCHEDULED: Defaults(30, DedupScope.EVER),
    TriggerSource.LIVING_UI: Defaults(30, DedupScope.ACTIVE),
    TriggerSource.PROACTIVE: Defaults(50, DedupScope.EVER),
    TriggerSource.MEMORY: Defaults(55, DedupScope.ACTIVE),
    TriggerSource.SKILL_WORKFLOW: Defaults(60, DedupScope.ACTIVE),
    TriggerSource.ONBOARDING: Defaults(1, DedupScope.ACTIVE),
    TriggerSource.SYSTEM: Defaults(1, DedupScope.EVER),
}


def notify_key(rule: str, notice: int) -> str:
    """Return the dedup key of a notification by a rule: its number in the settings, or a workflow of the app."""
    return f"{NOTIFY}{rule}:{notice}"


def is_delivery_key(key: str | None) -> bool:
    """Return whether it is the key of a notification that the settings ask for: a webhook, a program or a mail."""
    rule, _, notice = (key or "").removeprefix(NOTIFY).partition(":")
    return key is not None and key.startswith(NOTIFY) and rule.isdecimal() and notice.isdecimal()


def turn_key(task_id: str, turn: int) -> str:
    return f"turn:{task_id}:{turn}"


def wake_key(wait_id: str, suspension: str | None = None) -> str:
    """Return `wake:{wait_id}`, with the suspension where a wait stays open for several."""
    return f"wake:{wait_id}" if suspension is None else f"wake:{wait_id}:{suspension}"


def resume_key(task_id: str) -> str:
    """Return `resume:{task_id}`: one live resume of a task, and another after a later restart."""
    return f"resume:{task_id}"


def scheduled_once_key(schedule_id: str, generation: int = 0) -> str:
    """Return `scheduled-once:{schedule_id}`, with its generation once the timing was changed or the id used again.

    An id that looks as if it had one always has: `job:1` must not be taken for the second life of `job`.
    """
    is_versioned = generation or re.search(r":\d+$", schedule_id)
    return f"scheduled-once:{schedule_id}:{generation}" if is_versioned else f"scheduled-once:{schedule_id}"


def scheduled_key(schedule_id: str, nominal_at: float) -> str:
    """Return `scheduled:{schedule_id}:{nominal UTC second}`: the slot, not the moment it fired."""
    return f"scheduled:{schedule_id}:{int(nominal_at)}"


def slot_key(source: str, schedule_id: str, nominal_at: float) -> str:
    """Return the key of a recurring schedule's occurrence by its source, each with the id and the UTC second:
    `proactive:{id}:{second}`, `memory:{id}:{second}`, else `scheduled:{id}:{second}`."""
    match source:
        case TriggerSource.PROACTIVE:
            return f"proactive:{schedule_id}:{int(nominal_at)}"
        case TriggerSource.MEMORY:
            return memory_key(f"{schedule_id}:{int(nominal_at)}")
    return scheduled_key(schedule_id, nominal_at)


def scheduled_startup_key(schedule_id: str, started_at: float) -> str:
    """Return `scheduled-startup:{schedule_id}:{epoch seconds}`: once for each start of the daemon."""
    return f"scheduled-startup:{schedule_id}:{started_at!r}"


def scheduled_now_key(schedule_id: str, asked_at: float) -> str:
    """Return `scheduled-now:{schedule_id}:{epoch seconds}`: what a person asked for at that moment."""
    return f"scheduled-now:{schedule_id}:{asked_at!r}"


def living_ui_key(project_id: str, job_kind: str) -> str:
    """Return `living_ui:{project_id}:{job_kind}`: one live job of a kind for each project. Raises InvalidInput for a
    project whose id has a colon: it could be taken for another."""
    return f"living_ui:{_first_part(project_id)}:{job_kind}"


def proactive_key(frequency: str, slot: str) -> str:
    """Return `proactive:{frequency}:{slot}`: one trigger for each slot, like `proactive_key("hourly",
    "2026-01-02T10")`.

    Raises InvalidInput for a frequency that has a colon: it could be taken for another.
    """
    return f"proactive:{_first_part(frequency)}:{slot}"


def memory_key(slot: str) -> str:
    """Return `memory:{slot}`: one live piece of work on the memory for each slot, like `memory_key("2026-01-02")`."""
    return f"memory:{slot}"


def onboarding_key(user: str | None = None) -> str:
    """Return `onboarding:{user}`; without a user `onboarding`: one live onboarding of this user, or of the file.

    With the scope `ever` it blocks a later one, too, for `retention.keys`: 90 days unless the settings say otherwise.
    """
    return "onboarding" if user is None else f"onboarding:{user}"


def system_key(kind: str, epoch: int) -> str:
    return f"system:{kind}:{epoch}"


def _first_part(part: str) -> str:
    """Return the first part of a key of two."""
    if ":" in part:
        raise InvalidInput(
            f"{safe_repr(part)} is the first part of a dedup key, and has a colon: use another character"
        )
    return part
