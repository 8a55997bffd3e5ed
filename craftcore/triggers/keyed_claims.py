"""Claims within limits by key: a look puts off what its key has no place for, and brings back what has one again.

All in the commit of the look, so nothing is between the claim and its return. A trigger that is put off is not due, and
costs no later look anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from craftcore.storage.transaction import Transaction
from craftcore.triggers.claim_service import ClaimResult, ClaimService
from craftcore.triggers.limit_keys import SESSION, KeyAnswer, KeyedLimit, KeyRequest, LimitKey, key_text
from craftcore.triggers.limit_wait_store import LimitWaitStore, PutOff
from craftcore.triggers.model import LANE, OWN_SOURCES, Claim


class KeyedClaims:
    """Claims triggers for one engine, with or without limits by key."""

    def __init__(self, claims: ClaimService, *, weight: float) -> None:
        self._claims = claims
        self._weight = weight
        self._store = LimitWaitStore()
        self._lanes: dict[str, list[PutOff]] = {}
        """The triggers that are put off, by lane; perhaps some that are back."""

    def claim(self, tx: Transaction, request: KeyRequest | None, **how: Any) -> tuple[ClaimResult, KeyAnswer | None]:
        """Claim as `ClaimService.claim` does, of each key no more than it has places for. None: nothing is limited by
        key.

        The first of a freed key are put back before the claim, so nothing that came later overtakes them. A trigger
        that is put off holds its lane: those after it are put off with it.
        """
        if request is None:
            return self._claims.claim(tx, **how), None
        if request.lists_all:  # the first look does
            self._lanes = {}
            for lane, found in self._store.list_in_lanes(tx):
                self._lanes.setdefault(lane, []).append(found)
        emptied = {key for key, places in request.freed.items() if self._store.put_back(tx, key, places) < places}
        self._put_back_followers(tx)
        window = self._claims.claim(tx, **how)
        kept, keys, refused = self._select(tx, window.claims, request)
        if refused:
            self._store.put_off(tx, refused, weight=self._weight)
            for claim, limit_by, key in refused:
                if claim.lane is not None:
                    one = PutOff(*self._claims.rank(claim), key, limit_by == LANE)
                    self._lanes.setdefault(claim.lane, []).append(one)
        put_off = frozenset(key for _, _, key in refused)
        everything = self._store.list_keys(tx, request.use.limits) if request.lists_all else None
        answer = KeyAnswer(keys, put_off, frozenset(emptied - put_off), everything)
        return ClaimResult(claims=kept, more=window.more, next_due=window.next_due), answer

    def _select(
        self, tx: Transaction, claims: Sequence[Claim], request: KeyRequest
    ) -> tuple[list[Claim], dict[tuple[int, str], LimitKey], list[tuple[Claim, str, LimitKey]]]:
        """Return the claims whose keys have places, best rank first, the keys of these, and what has no place."""
        limits = {claim.seq: found for claim in claims if (found := request.find_limit(claim)) is not None}
        payloads = self._creator_payloads(tx, claims, limits)
        kept: list[Claim] = []
        keys: dict[tuple[int, str], LimitKey] = {}
        refused: list[tuple[Claim, str, LimitKey]] = []
        for claim in sorted(claims, key=self._claims.rank):
            if (earlier := self._find_earlier(tx, claim)) is not None:
                refused.append((claim, LANE, earlier.key))
                continue
            workflow, limit = limits.get(claim.seq, (None, None))
            if workflow is not None and limit is not None:
                payload = payloads.get(claim.task_id or "") if _is_later_turn(claim) else claim.payload_json
                if (text := key_text(limit.limit_by, claim.session_id, payload)) is not None:
                    key = LimitKey(workflow, text)
                    if not request.use.take(key):
                        refused.append((claim, limit.limit_by, key))
                        continue
                    keys[claim.seq, claim.lease_token] = key
            kept.append(claim)
        return kept, keys, refused

    def _find_earlier(self, tx: Transaction, claim: Claim) -> PutOff | None:
        """Return what comes before a claim in its lane and is put off; None: nothing."""
        if claim.lane is None or claim.lane not in self._lanes:
            return None
        self._forget_returned(tx, [claim.lane])
        first = min(self._lanes.get(claim.lane, ()), key=lambda one: one.place, default=None)
        return first if first is not None and first.place < self._claims.rank(claim) else None

    def _put_back_followers(self, tx: Transaction) -> None:
        """Let triggers be due as before that follow one of their lane, where that is not put off now: it has its place
        again, or a person ended it."""
        lanes = [lane for lane, known in self._lanes.items() if any(one.follows for one in known)]
        if not lanes:
            return
        self._forget_returned(tx, lanes)
        free = [one.seq for lane in lanes for one in list_free_followers(self._lanes.get(lane, ()))]
        if free:
            self._store.put_back_these(tx, free)

    def _forget_returned(self, tx: Transaction, lanes: Sequence[str]) -> None:
        """Forget triggers that are back."""
        left = self._store.select_put_off(tx, [one.seq for lane in lanes for one in self._lanes[lane]])
        for lane in lanes:
            if waiting := [one for one in self._lanes[lane] if one.seq in left]:
                self._lanes[lane] = waiting
            else:
                del self._lanes[lane]

    def _creator_payloads(
        self, tx: Transaction, claims: Sequence[Claim], limits: dict[int, tuple[str, KeyedLimit]]
    ) -> dict[str, bytes]:
        tasks = {
            claim.task_id
            for claim in claims
            if claim.task_id is not None
            and claim.seq in limits
            and limits[claim.seq][1].limit_by != SESSION
            and _is_later_turn(claim)
        }
        return self._store.creator_payloads(tx, tasks) if tasks else {}


def _is_later_turn(claim: Claim) -> bool:
    """Return whether a trigger goes on with a task that another trigger created. It has no payload of its own."""
    return claim.source in OWN_SOURCES and claim.task_id is not None and claim.task_id != claim.id


def list_free_followers(lane: Sequence[PutOff]) -> list[PutOff]:
    """Return the followers of a lane that have nothing before them."""
    first = min((one.place for one in lane if not one.follows), default=None)
    return [one for one in lane if one.follows and (first is None or one.place < first)]
