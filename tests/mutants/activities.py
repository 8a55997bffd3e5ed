"""Mutants of irreversible actions: intents, keys, doubts and decisions."""

from __future__ import annotations

from tests.mutants.mutant import mutant

LEDGER, STORE, MOVES = "activities/ledger.py", "activities/store.py", "activities/ledger_rules.py"
ROWS = (
    "tests/activities/test_ledger.py",
    "tests/activities/test_rows.py",
    "tests/activities/test_restored_database.py",
)
ACTS = ("tests/engine/test_act.py", "tests/engine/test_act_in_doubt.py", "tests/engine/test_act_keys.py")

ACTIVITIES = (
    mutant(
        "no-intent",
        "the intent is on disk before the call",
        STORE,
        '            INSERT,\n            [(*new, *called_at, seq, "INTENT", ABOUT_TO_BE_CALLED) '
        "for seq, new in enumerate(intents, first)],\n",
        "            INSERT,\n            [],\n",
        *ROWS,
    ),
    mutant(
        "interrupted-intent-is-certain",
        "an intent that a crash cut off is in doubt",
        LEDGER,
        "        self._store.settle_all(tx, [(one.last_call, LEFT_BEHIND) for one in left])\n",
        "",
        *ROWS,
    ),
    mutant(
        "key-per-attempt",
        "every entry of a turn uses the same key",
        "engine/turn/act.py",
        'activity_key = f"activity:{turn.task.id}:{place}"',
        'activity_key = f"activity:{turn.task.id}:{place}.{turn.run.claim.starts}"',
        *ACTS,
    ),
    mutant(
        "doubt-called-again",
        "what is in doubt is not called again without a decision",
        MOVES,
        "    return Reentry.TAKE\n",
        "    return Reentry.CALL_AGAIN\n",
        *ROWS,
        *ACTS,
    ),
    mutant(
        "key-for-other-arguments",
        "a key is for one action and its arguments",
        MOVES,
        "if (before.action, before.args_hash) != (intent.action, intent.args_hash):",
        "if False:",
        *ROWS,
        *ACTS,
    ),
    mutant(
        "key-of-another-task",
        "a key belongs to one task",
        MOVES,
        "if before.task_seq != intent.task_seq:",
        "if False:",
        *ROWS,
        *ACTS,
    ),
    mutant(
        "late-answer-settles-newer-call",
        "an answer settles the call that it belongs to",
        STORE,
        "       AND activity_log.calls = ending.calls\n",
        "",
        *ROWS,
    ),
    mutant(
        "late-answer-overwrites-decision",
        "an answer does not overwrite what was settled",
        STORE,
        "       AND activity_log.status = 'INTENT'\n    RETURNING",
        "    RETURNING",
        *ROWS,
    ),
    mutant(
        "restored-act-called-again",
        "after a restore, an activity that may have gone further is in doubt",
        LEDGER,
        "case Reentry.CALL_AGAIN if self._may_have_gone_further(tx, before):",
        "case Reentry.CALL_AGAIN if False:",
        *ROWS,
    ),
    mutant(
        "restored-task-acts-unasked",
        "after a restore, a task of the lost file asks before it acts",
        LEDGER,
        "for intent in [intent for intent in fresh if intent.task_id in doubtful]:",
        "for intent in []:",
        *ROWS,
    ),
    mutant(
        "resend-of-changed-row",
        "a second call begins from the row that was judged",
        STORE,
        "               AND decision IS :decision_before\n",
        "",
        *ROWS,
    ),
    mutant(
        "failure-is-certain-while-in-doubt",
        "a later failure does not end the doubt about an earlier call",
        "engine/turn/ledgered_call.py",
        "        end = outcome_after(end, in_doubt=begun.in_doubt)\n",
        "        end = outcome_after(end, in_doubt=False)\n",
        *ACTS,
        "tests/activities",
    ),
    mutant(
        "unshielded-call",
        "a cancelled turn waits for the call that is on its way",
        "engine/turn/provider_call.py",
        "with anyio.CancelScope(shield=True, deadline=anyio.current_time() + left) as scope, in_step():",
        "with anyio.CancelScope(deadline=anyio.current_time() + left) as scope, in_step():",
        "tests/engine/test_act_interruptions.py",
        *ACTS,
    ),
    mutant(
        "unmarked-call",
        "a call is marked in the lock file before it is made",
        "engine/turn/ledgered_call.py",
        "        if (unmarked := await self._mark_refusal(begun)) is not None:\n            return unmarked\n",
        "",
        "tests/engine/test_call_marks.py",
    ),
)
