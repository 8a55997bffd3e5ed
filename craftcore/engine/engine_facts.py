"""The decisions of a start that no row shows, stored in the fact `engine` for `trigger why`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from craftcore.storage.epochs import newest_epoch
from craftcore.storage.facts import get_fact, set_fact
from craftcore.storage.transaction import Reader, Transaction

if TYPE_CHECKING:
    from craftcore.registry.workflow import Workflow


KINDS: dict[str, tuple[type, ...]] = {
    "concurrency": (int, type(None)),
    "count": (int, type(None)),
    "seconds": (float, type(None)),
    "limit_by": (str, type(None)),
    "sources": (list,),
}
"""The description of a limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """The effective settings of an engine. `paused`: it claims and fires nothing until the next start. `places`: how
    many workflows it runs at once. `limits`: `concurrency`, `count` and `seconds` of each limited workflow (None: not
    limited so), and `limit_by` (None: as a whole). Triggers of its `sources` are its own when they name no workflow."""

    epoch: int
    paused: bool
    places: int
    limits: dict[str, dict[str, Any]]


def write_engine_facts(
    tx: Transaction,
    epoch: int,
    workflows: Mapping[str, Workflow],
    by_source: Mapping[str, str],
    *,
    paused: bool,
    places: int,
) -> None:
    """Write the facts, in the commit of the boot."""
    limits = {
        name: {
            "concurrency": workflow.concurrency,
            "count": workflow.rate.count if workflow.rate else None,
            "seconds": workflow.rate.seconds if workflow.rate else None,
            "limit_by": workflow.limit_by,
            "sources": sorted(source for source, goes_to in by_source.items() if goes_to == name),
        }
        for name, workflow in workflows.items()
        if workflow.is_limited
    }
    left = EngineFacts(epoch=epoch, paused=paused, places=places, limits=limits)
    set_fact(tx, "engine", json.dumps(asdict(left), sort_keys=True))


def read_engine_facts(reader: Reader) -> EngineFacts | None:
    """Return what the last start left; None when it cannot be read, as in a file of an older program."""
    text = get_fact(reader, "engine")
    try:
        document = json.loads(text) if text is not None else None
        facts = EngineFacts(**{field.name: document[field.name] for field in fields(EngineFacts)}) if document else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    last = newest_epoch(reader)
    return facts if facts is not None and facts.epoch == last and _is_sound(facts) else None


def _is_sound(facts: EngineFacts) -> bool:
    """Return whether the fact is sound: like any row, it may be damaged."""
    paused: Any = facts.paused
    places: Any = facts.places
    limits: Any = facts.limits
    known = type(paused) is bool and type(places) is int and places > 0
    return known and isinstance(limits, dict) and all(map(_is_limit, limits.values()))


def _is_limit(limit: Any) -> bool:
    return (
        isinstance(limit, dict)
        and limit.keys() == KINDS.keys()
        and all(type(limit[key]) in kinds for key, kinds in KINDS.items())
        and all(type(source) is str for source in limit["sources"])
    )


def is_paused(reader: Reader) -> bool:
    """Return whether the last start was paused: it claims and fires nothing."""
    facts = read_engine_facts(reader)
    return facts is not None and facts.paused
