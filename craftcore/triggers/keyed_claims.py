"""Claims within limits by key: a look puts off what its key has no place for, and brings back what has one again.

All in the commit of the look, so nothing is between the claim and its return. A trigger that is put off is not due, and
costs no later look anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from craftcore.storage.transaction import Transaction
from craftcore.triggers.claim_service import ClaimResult, ClaimService
from craftcore.triggers.limit_keys import OWN, SESSION, KeyAnswer, KeyedLimit, KeyRequest, LimitKey, key_text
from craftcore.triggers.limit_wait_store import LimitWaitStore
from craftcore.triggers.model import Claim


class KeyedClaims:
    """Claims triggers for one engine, with or without limits by key."""

    def __init__(self, claims: ClaimService, *, weight: float) -> None:
        self._claims = claims
        self._weight = weight
        self._store = LimitWaitStore()

    def claim(self, tx: Transaction, request: KeyRequest | None, **how: Any) -> tuple[ClaimResult, KeyAnswer | None]:
        """Claim as `ClaimService.claim` does, of each key no more than it has places for. None: nothing is limited by
        key.

        The first of a freed key are put back before the claim, so nothing that came later overtakes them.
        """
        if request is None:
            return self._claims.claim(tx, **how), None
        emptied = {key for key, places in request.freed.items() if self._store.put_back(tx, key, places) < places}
        window = self._claims.claim(tx, **how)
        kept, keys, refused = self._select(tx, window.claims, request)
        if refused:
            self._store.put_off(tx, refused, weight=self._weight)
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
    """Return whether a trigger goes on with a task that another trigger created."""
    return claim.source in OWN and claim.task_id is not None and claim.task_id != claim.id
