"""Limits by key: how many more of each key may be claimed, and which triggers that were put off may come back.

A key has places as a limited workflow has: each look counts what is held, and rates remember starts. A claim
without a place is put off in the table. So a key is known here only while it is held, put off, or within its rate.

A key with triggers put off is looked at before each look while claims hold its places (`_hot`), or once its next token
returns (`_timed`). After some were put back, it waits until a look has claimed one of them, or lists all keys.
All on the loop's thread.
"""

from __future__ import annotations

import math
from bisect import insort
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping

from craftcore.registry.workflow import Workflow
from craftcore.triggers.limit_keys import KeyAnswer, KeyedLimit, KeyRequest, KeyUse, LimitKey
from craftcore.triggers.model import Claim

LIST_SECONDS = 20.0
"""Seconds after which a look lists the keys that have triggers put off, in case one was forgotten."""


class KeyLimits:
    """The limits by key of an app's workflows. False when there are none: then nothing is asked and nothing noted."""

    def __init__(self, workflows: Iterable[Workflow], by_source: Mapping[str, str]) -> None:
        self.limits = {
            workflow.name: KeyedLimit(
                workflow.limit_by,
                workflow.concurrency,
                workflow.rate.count if workflow.rate else None,
                workflow.rate.seconds if workflow.rate else 0.0,
            )
            for workflow in workflows
            if workflow.limit_by is not None
        }
        self._by_source = {source: name for source, name in by_source.items() if name in self.limits}
        self._keys: dict[tuple[int, str], LimitKey] = {}
        self._starts: dict[LimitKey, deque[float]] = {}
        self._started: dict[LimitKey, int] = {}
        self._moments = {name: deque[tuple[float, LimitKey]]() for name in self.limits}
        self._put_off: set[LimitKey] = set()
        self._hot: set[LimitKey] = set()
        self._timed: list[tuple[float, LimitKey]] = []
        self._list_at = -math.inf

    def __bool__(self) -> bool:
        return bool(self.limits)

    @property
    def rates(self) -> dict[str, KeyedLimit]:
        """The limits of each workflow that has a rate."""
        return {name: limit for name, limit in self.limits.items() if limit.rate is not None}

    def remember(self, starts: Iterable[tuple[LimitKey, float]]) -> None:
        """Count starts before this engine, in any order."""
        for key, at in sorted(starts, key=lambda start: start[1]):
            self._note_start(key, at)

    def note_started(self, claims: Iterable[Claim], at: float) -> None:
        if self._keys:
            for claim in claims:
                if (key := self._key_of(claim)) is not None:
                    self._note_start(key, at)

    def is_waited_for(self, claim: Claim) -> bool:
        """Return whether the end of this one makes a place for a trigger that was put off."""
        key = self._key_of(claim)
        return key in self._put_off and self.limits[key.workflow].concurrency is not None

    def begin_look(self, held: Collection[Claim], running: Collection[Claim], now: float) -> KeyRequest | None:
        """Return what a look that begins now may claim of each key; None when nothing is limited by key. A place
        that is free is offered once: `end_look` must follow."""
        if not self.limits:
            return None
        self._forget_starts(now)
        self._forget_settled(held)
        use = self._count(held, running)
        while self._timed and self._timed[0][0] <= now:
            self._hot.add(self._timed.pop(0)[1])
        freed = {key: places for key in self._hot if (places := use.places(key)) > 0}
        self._hot.difference_update(freed)
        for key in [key for key in self._hot if not use.held[key]]:
            self._hot.discard(key)
            insort(self._timed, (self._next_token(key, use), key))
        lists_all = now >= self._list_at
        if lists_all:
            self._list_at = now + LIST_SECONDS
        return KeyRequest(use, self._by_source, freed, lists_all)

    def end_look(self, answer: KeyAnswer | None, held: Collection[Claim], running: Collection[Claim]) -> bool:
        """Take the answer of a look, whose claims are among those held now. Return whether another look may find more:
        the lanes and ranks of what was put off are free for others, or a place was freed meanwhile."""
        if answer is None:
            return False
        self._keys.update(answer.keys)
        self._put_off -= answer.emptied
        self._put_off |= answer.put_off
        if answer.all is not None:
            self._put_off = set(answer.all)
        hot = answer.put_off | (answer.all or frozenset()) | self._put_off.intersection(answer.keys.values())
        self._hot |= hot - {key for _, key in self._timed}
        if answer.put_off or not self._hot:
            return bool(answer.put_off)
        use = self._count(held, running)
        return any(use.places(key) > 0 for key in self._hot)

    def next_token(self, held: Collection[Claim], running: Collection[Claim]) -> float:
        """Return when a key that has triggers put off gets a token back; infinity when none is on its way."""
        if not self._hot and not self._timed:
            return math.inf
        use = self._count(held, running)
        moments = [self._next_token(key, use) for key in self._hot]
        return min([*moments, self._timed[0][0] if self._timed else math.inf], default=math.inf)

    def _key_of(self, claim: Claim) -> LimitKey | None:
        return self._keys.get((claim.seq, claim.lease_token))

    def _count(self, held: Collection[Claim], running: Collection[Claim]) -> KeyUse:
        counted = Counter(key for claim in held if (key := self._key_of(claim)) is not None)
        started = Counter(key for claim in running if (key := self._key_of(claim)) is not None)
        return KeyUse(self.limits, counted, counted - started, dict(self._started))

    def _forget_settled(self, held: Collection[Claim]) -> None:
        self._keys = {(claim.seq, claim.lease_token): key for claim in held if (key := self._key_of(claim)) is not None}

    def _next_token(self, key: LimitKey, use: KeyUse) -> float:
        limit = self.limits[key.workflow]
        if limit.rate is None or (limit.concurrency is not None and use.held[key] >= limit.concurrency):
            return math.inf
        starts = self._starts.get(key, ())
        last = len(starts) + use.waiting[key] - limit.rate  # once this one no longer counts there is a token
        return starts[last] + limit.seconds if 0 <= last < len(starts) else math.inf

    def _note_start(self, key: LimitKey, at: float) -> None:
        limit = self.limits.get(key.workflow)
        if limit is None or limit.rate is None:
            return
        starts = self._starts.setdefault(key, deque(maxlen=limit.rate))
        starts.append(at)
        self._started[key] = len(starts)
        self._moments[key.workflow].append((at, key))

    def _forget_starts(self, now: float) -> None:
        """Forget the starts that no longer count, and the keys of which none is left."""
        for name, moments in self._moments.items():
            while moments and moments[0][0] + self.limits[name].seconds <= now:
                at, key = moments.popleft()
                starts = self._starts.get(key)
                if starts is None or starts[0] > at:
                    continue  # a later one took its place
                starts.popleft()
                self._started[key] = len(starts)
                if not starts:
                    del self._starts[key], self._started[key]
