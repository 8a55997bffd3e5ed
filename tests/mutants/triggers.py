"""Mutants of triggers: their acceptance, claims and attempts."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant, mutant

CLAIMS = ("tests/triggers/test_claim.py", "tests/triggers/test_attempts.py", "tests/triggers/test_reclaim.py")
EMIT = ("tests/triggers/test_emit.py", "tests/triggers/test_validation.py", "tests/triggers/test_operator_commands.py")
CLAIM_STORE, CLAIM_SERVICE, STORE = "triggers/claim_store.py", "triggers/claim_service.py", "triggers/store.py"

TRIGGERS = (
    mutant(
        "start-without-token",
        "only the holder of a lease starts a trigger",
        CLAIM_STORE,
        "       AND lease_token = starting.token\n",
        "",
        *CLAIMS,
    ),
    Mutant(
        "settle-without-token",
        "only the holder of a lease settles a trigger",
        (
            Edit(CLAIM_STORE, "       AND lease_token = move.token\n", ""),
            Edit(CLAIM_STORE, "if (claim.seq, claim.lease_token) in held]", "]"),
        ),
        CLAIMS,
    ),
    mutant(
        "lost-lease-counts-as-settled",
        "an attempt that lost its lease learns it",
        CLAIM_STORE,
        "if (claim.seq, claim.lease_token) in held]",
        "]",
        *CLAIMS,
    ),
    mutant(
        "start-twice",
        "an attempt is counted once",
        CLAIM_STORE,
        "       AND started_at IS NULL\n    RETURNING",
        "    RETURNING",
        *CLAIMS,
    ),
    mutant(
        "reclaim-by-lease-only",
        "a new daemon takes over at once what a dead one held",
        CLAIM_STORE,
        '               AND claimed_epoch <> :epoch\n            """,\n            epoch=epoch,\n',
        '               AND claimed_epoch <> :epoch\n               AND lease_until < :now\n            """,\n'
        "            epoch=epoch,\n            now=tx.now,\n",
        *CLAIMS,
    ),
    mutant(
        "crash-counted-as-attempt",
        "a crash spends no attempt",
        "triggers/settlement.py",
        "spent = claim.attempts - claim.crash_count",
        "spent = claim.attempts",
        *CLAIMS,
        "tests/triggers/test_backoff.py",
    ),
    mutant(
        "poison-never-ends",
        "a trigger that kills its process alone is put aside",
        CLAIM_SERVICE,
        'if blamed and not forgiven and is_poison(row["crash_count"] + 1, bool(row["started_alone"])):',
        "if False:",
        *CLAIMS,
    ),
    mutant(
        "innocent-is-poison",
        "a trigger that ran beside others is not blamed for a crash",
        "triggers/settlement.py",
        "return started_alone and crash_count > CRASHES_BEFORE_ALONE",
        "return crash_count > CRASHES_BEFORE_ALONE",
        *CLAIMS,
    ),
    mutant(
        "cancelled-comes-back",
        "a cancelled trigger does not run again after a crash",
        CLAIM_SERVICE,
        'if row["cancel_requested_at"] is not None:',
        "if False:",
        *CLAIMS,
    ),
    mutant(
        "expired-starts",
        "an expired trigger does not start",
        CLAIM_SERVICE,
        "if claim.expires_at is not None and claim.expires_at <= tx.now:",
        "if False:",
        *CLAIMS,
    ),
    mutant(
        "release-spends-attempt",
        "a shutdown spends no attempt",
        CLAIM_STORE,
        "attempts         = attempts - (started_at IS NOT NULL AND NOT :crashed) - :forgiven * crash_count,",
        "attempts         = attempts,",
        *CLAIMS,
    ),
    mutant(
        "snooze-spends-attempt",
        "a snooze spends no attempt",
        "triggers/settlement.py",
        '"snoozed", not_before=not_before, gives_back=1)',
        '"snoozed", not_before=not_before)',
        *CLAIMS,
    ),
    mutant(
        "stray-claims-stay",
        "a claim whose answer was lost comes back",
        CLAIM_SERVICE,
        "if stray not in held]",
        "if False]",
        *CLAIMS,
    ),
    mutant(
        "epoch-releases-others",
        "a daemon that stops releases its own claims only",
        CLAIM_STORE,
        '               AND claimed_epoch = :epoch\n            """,\n            reason=reason,',
        '            """,\n            reason=reason,',
        *CLAIMS,
    ),
    mutant(
        "dedup-without-scope",
        "an active dedup key is free once its work has ended",
        STORE,
        "               AND (dedup_scope = 'ever' OR status IN ('PENDING', 'CLAIMED'))\n",
        "",
        *EMIT,
    ),
    mutant(
        "dedup-forgets",
        "a dedup key of scope ever holds for ever",
        STORE,
        "(dedup_scope = 'ever' OR status IN ('PENDING', 'CLAIMED'))",
        "status IN ('PENDING', 'CLAIMED')",
        *EMIT,
    ),
    mutant(
        "dedup-ignores-live-task",
        "a live task holds the dedup key of its trigger",
        STORE,
        "               AND tasks.status IN ('RUNNING', 'WAITING')\n             LIMIT 1",
        "               AND tasks.status = 'NEVER'\n             LIMIT 1",
        *EMIT,
        "tests/engine/test_dedup_keys.py",
    ),
    mutant(
        "replace-of-started",
        "a trigger that has started is not replaced",
        STORE,
        '               AND started_at IS NULL\n            """,\n            id=trigger_id,\n            payload_json',
        '            """,\n            id=trigger_id,\n            payload_json',
        *EMIT,
    ),
)
