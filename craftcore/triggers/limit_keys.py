"""Limits that count for each value of a key apart: which key a trigger has, and how many places a key has left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from craftcore.serialization.canonical import canonicalize, sha256_of
from craftcore.triggers.model import Claim

SESSION = "session_id"
"""The key that is the session of the trigger; every other name is a parameter of the workflow."""

KEY_MAX = 200
"""Characters of a key. A longer one is known by its sha256."""


class LimitKey(NamedTuple):
    """A workflow with one value of its key, as canonical JSON."""

    workflow: str
    key: str


class KeyedLimit(NamedTuple):
    """The limits of one workflow for each value of `limit_by`. `concurrency`: how many may be claimed; `rate`: how
    many may start within `seconds`; None: no limit."""

    limit_by: str
    concurrency: int | None
    rate: int | None
    seconds: float


class KeyUse:
    """The use of limited workflows by their keys, while one look adds to it.

    held     how many claims of each key there are, started or not
    waiting  how many of these have not started: each keeps a token
    started  how many of each key have started within the time of the rate
    """

    def __init__(
        self,
        limits: Mapping[str, KeyedLimit],
        held: Counter[LimitKey],
        waiting: Counter[LimitKey],
        started: Mapping[LimitKey, int],
    ) -> None:
        self.limits = limits
        self.held = held
        self.waiting = waiting
        self._started = started

    def places(self, key: LimitKey) -> int:
        """Return how many more of this key may be claimed; negative when there are too many."""
        limit = self.limits[key.workflow]
        left = []
        if limit.concurrency is not None:
            left.append(limit.concurrency - self.held[key])
        if limit.rate is not None:
            left.append(limit.rate - self.waiting[key] - self._started.get(key, 0))
        return min(left)

    def take(self, key: LimitKey) -> bool:
        """Take a place for another claim of this key. False when it has none."""
        if self.places(key) <= 0:
            return False
        self.held[key] += 1
        self.waiting[key] += 1
        return True


class KeyRequest(NamedTuple):
    """The limits by key of one look. `freed`: the keys whose put-off triggers may come back, and how many of each.
    `lists_all`: the look is to list every key that has triggers put off."""

    use: KeyUse
    by_source: Mapping[str, str]
    freed: Mapping[LimitKey, int]
    lists_all: bool

    def find_limit(self, claim: Claim) -> tuple[str, KeyedLimit] | None:
        """Return the limited workflow that a trigger will run, and its limit; None when what it runs has none."""
        workflow = claim.workflow if claim.workflow is not None else self.by_source.get(claim.source)
        limit = self.use.limits.get(workflow) if workflow is not None else None
        return None if workflow is None or limit is None else (workflow, limit)


class KeyAnswer(NamedTuple):
    """The keys that a look has found.

    keys     the key of each claim, by its seq and lease token
    put_off  the keys of triggers that were put off
    emptied  the freed keys that have no trigger put off any more
    all      every key that has triggers put off; None: the look did not list them
    """

    keys: dict[tuple[int, str], LimitKey]
    put_off: frozenset[LimitKey]
    emptied: frozenset[LimitKey]
    all: frozenset[LimitKey] | None


def key_text(limit_by: str, session_id: str | None, payload: str | bytes | None) -> str | None:
    """Return the key of a trigger as a text; None when it has no such value, or a payload that cannot be read."""
    if limit_by == SESSION:
        text = None if session_id is None else canonicalize(session_id)
    else:
        try:
            found = msgspec.json.decode(payload or b"{}", type=dict[str, msgspec.Raw]).get(limit_by)
        except ValueError:
            return None
        text = None if found is None else bytes(found).decode()
    if text is None or text == "null":
        return None
    return text if len(text) <= KEY_MAX else sha256_of(text)
