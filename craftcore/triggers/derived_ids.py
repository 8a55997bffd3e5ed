"""Ids that follow from what makes a trigger, and where: a turn that is repeated makes it under the same id again.

The key of an irreversible action has the id of its task. So a provider that drops a second call with the same key
drops that of a task which was made a second time, after its file was lost.
"""

from __future__ import annotations

import re
from hashlib import sha256

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[78][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def derive_id(maker: str, place: str) -> str:
    """Return the id of the trigger that `maker`, an id, makes at `place`: a UUIDv8 (RFC 9562 §5.8).

    It begins as a UUID that made it does, so that inserts stay at few places of each index.
    """
    digest = sha256(f"{maker} {place}".encode()).hexdigest()
    head = maker[:13] if _UUID.fullmatch(maker) else f"{digest[19:27]}-{digest[27:31]}"
    return f"{head}-8{digest[:3]}-{8 + int(digest[3], 16) % 4:x}{digest[4:7]}-{digest[7:19]}"


def is_derived(id: str) -> bool:
    """Return whether it is the id of something that was made at a place, and not minted."""
    return _UUID.fullmatch(id) is not None and id[14] == "8"


def can_be_used_again(id: str) -> bool:
    """Return whether there may be a second maker with this id, once retention has removed the first. Its id was given,
    or that of what made it."""
    return _UUID.fullmatch(id) is None or is_derived(id)
