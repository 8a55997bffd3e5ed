"""The heads of the chains at one moment, to be kept out of reach of those who can change the file. Pure.

A chain that was cut off at its end looks whole. Only a head that was kept elsewhere shows the loss.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from craftcore.errors import InvalidInput
from craftcore.executions.chain.verify_rules import Area, ChainState, Fault
from craftcore.serialization.canonical import canonicalize

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """`place` and `hash`: of the record that was closed last; 0 and '' when none was. `newest`: the highest number of a
    record; `unchained_to` and `removed` as `record_chain` has them; `at`: when it was read."""

    at: float
    place: int
    hash: str
    newest: int
    unchained_to: int
    removed: int
    audit_place: int
    audit_hash: str


def head_text(head: Head) -> str:
    """Return the manifest as the text of its file."""
    return canonicalize(head_document(head)) + "\n"


def head_document(head: Head) -> dict[str, Any]:
    """Return the head as a part of a larger document."""
    return {"craftcore_head": VERSION, **asdict(head)}


def head_from(text: str) -> Head:
    """Return what `head_text` wrote, by itself or in the manifest of a backup. Raises InvalidInput for anything
    else."""
    try:
        found = json.loads(text)
        if isinstance(found, dict) and "craftcore_backup" in found:
            found = found.get("head")
        if not isinstance(found, dict) or found.pop("craftcore_head", None) != VERSION:
            raise ValueError("it is not one")
        head = Head(**found)
        kinds = {name: str if name in ("hash", "audit_hash") else int for name in found} | {"at": float}
        if wrong := [name for name, kind in kinds.items() if type(getattr(head, name)) is not kind]:
            raise ValueError(f"{wrong[0]} is {getattr(head, wrong[0])!r:.80}")
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidInput(
            f"not a chain head, as craftcore verify --write-head or the manifest of a backup has it: {error!s:.200}"
        ) from error
    return head


def head_faults_since(
    before: Head, now: Head, ends: ChainState, *, there: str | None, audit_there: str | None
) -> Iterator[Fault]:
    """Yield what went wrong since `before`. `there` and `audit_there`: the hashes that stand at its places today, if
    any."""
    if before.place > now.place:
        yield _cut(Area.CHAIN, before.place, f"the chain ends at place {now.place}", f"was at place {before.place}")
    elif before.place >= max(1, ends.anchor_seq) and there != before.hash:
        yield _other_chain_fault(Area.CHAIN, before.place, "record of the chain")
    elif 0 < before.place < ends.anchor_seq and there is not None:
        if there != before.hash:
            yield _other_chain_fault(Area.CHAIN, before.place, "record of the chain")
    elif before.place < ends.anchor_seq and now.removed <= before.removed:
        yield Fault(area=Area.CHAIN, wrong="records were removed since that head, and retention removed none")
    if before.newest > now.newest:
        yield _cut(Area.CHAIN, None, f"the newest record has the number {now.newest}", f"knew number {before.newest}")
    if before.unchained_to != now.unchained_to or before.removed > now.removed:
        yield Fault(area=Area.CHAIN, wrong="a record before the head was changed since the head was written")
    if before.audit_place > now.audit_place:
        end = f"the operators' log ends at row {now.audit_place}"
        yield _cut(Area.AUDIT, before.audit_place, end, f"was at row {before.audit_place}")
    elif before.audit_place >= max(1, ends.audit_anchor_seq) and audit_there != before.audit_hash:
        yield _other_chain_fault(Area.AUDIT, before.audit_place, "row of the operators' log")


def _cut(area: Area, place: int | None, now: str, then: str) -> Fault:
    return Fault(
        area=area,
        place=place,
        wrong=f"{now}, and the head from before {then}: the last ones were cut off, or this is an older copy",
    )


def _other_chain_fault(area: Area, place: int, what: str) -> Fault:
    return Fault(area=area, place=place, wrong=f"{what} {place} is not the one that the head from before knew")
