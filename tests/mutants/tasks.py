"""Mutants of tasks: turns, steps, waits, questions and messages."""

from __future__ import annotations

from tests.mutants.mutant import mutant

TURNS = ("tests/tasks/test_turns.py", "tests/tasks/test_waits.py", "tests/tasks/test_questions.py")
STEPS = ("tests/engine/test_steps.py", "tests/engine/test_turns.py", "tests/engine/test_tasks.py")

TASKS = (
    mutant(
        "question-answered-twice",
        "a question takes one answer",
        "tasks/question_store.py",
        '             WHERE seq = :seq\n               AND status = \'OPEN\'\n            """,\n            seq=seq,\n'
        "            answer=answer,",
        '             WHERE seq = :seq\n            """,\n            seq=seq,\n            answer=answer,',
        *TURNS,
    ),
    mutant(
        "wait-resolved-twice",
        "a wait is resolved once",
        "tasks/wait_store.py",
        '               AND status = \'WAITING\'\n            """,\n            seq=seq,\n            cause=cause,',
        '            """,\n            seq=seq,\n            cause=cause,',
        *TURNS,
        "tests/engine/test_waits.py",
        "tests/engine/test_wait_any.py",
    ),
    mutant(
        "mail-read-twice",
        "a signal is received once",
        "tasks/mailbox_store.py",
        "SET status = 'READ', wait_seq = :wait_seq WHERE",
        "SET wait_seq = :wait_seq WHERE",
        "tests/tasks/test_mailbox.py",
        *TURNS,
        "tests/engine/test_waits.py",
    ),
    mutant(
        "old-turn-advances-task",
        "only the current turn advances a task",
        "tasks/store.py",
        "       AND tasks.turn = move.turn\n",
        "",
        *TURNS,
    ),
    mutant(
        "ended-task-advances",
        "an ended task stays ended",
        "tasks/store.py",
        "       AND +tasks.status IN ('RUNNING', 'WAITING')\n",
        "",
        *TURNS,
        "tests/tasks",
    ),
    mutant(
        "ended-task-wakes",
        "a wait does not wake an ended task",
        "tasks/store.py",
        "             WHERE seq = :seq\n               AND status IN ('RUNNING', 'WAITING')\n"
        '            """,\n            seq=seq,\n            trigger_id=trigger_id,',
        '             WHERE seq = :seq\n            """,\n            seq=seq,\n            trigger_id=trigger_id,',
        "tests/tasks",
    ),
    mutant(
        "step-runs-again",
        "a completed step does not run again",
        "engine/turn/steps.py",
        "        if self.identity not in memo:\n            return False, None\n",
        "        if self.identity in memo or True:\n            return False, None\n",
        *STEPS,
    ),
    mutant(
        "step-with-other-arguments",
        "a step with other arguments is refused",
        "engine/turn/steps.py",
        'if done.args == self._digest or on_change == "keep":',
        "if True:",
        *STEPS,
    ),
    mutant(
        "step-result-not-recorded",
        "the result of a step is on disk before the workflow receives it",
        "engine/turn/steps.py",
        "    hit(Failpoint.STEP_RAN, name)\n    await turn.record(EventType.STEP_COMPLETED, text, step.memo)\n",
        "    hit(Failpoint.STEP_RAN, name)\n",
        *STEPS,
    ),
    mutant(
        "wake-up-of-another-wait-any",
        "each ctx.wait_any of a turn has a wake-up of its own",
        "tasks/wait_store.py",
        "               AND any_of = :any_of\n",
        "               AND any_of IS NOT NULL\n",
        "tests/engine/test_wait_any.py",
    ),
    mutant(
        "end-of-another-wait-any",
        "each ctx.wait_any of a turn returns its own first",
        "engine/turn/turn.py",
        "if wait.any_of == name), None)",
        "if wait.any_of is not None), None)",
        "tests/engine/test_wait_any.py",
    ),
    mutant(
        "stopped-turn-asks-nothing",
        "an act in doubt of a stopped turn is asked about",
        "tasks/turn_stop.py",
        "        self._acts.ask_at_stop(tx, task.seq)\n",
        "",
        "tests/engine/test_stopped_turns.py",
    ),
    mutant(
        "stopped-turn-withdraws-doubts",
        "the question about an act in doubt stays open when its turn is stopped",
        "tasks/question_store.py",
        "AND coalesce(kind = :kind, kind <> 'activity')",
        "AND coalesce(kind = :kind, true)",
        "tests/engine/test_stopped_turns.py",
    ),
    mutant(
        "dropped-annotation",
        "a result type that JSON cannot become is refused",
        "serialization/annotations.py",
        "    if isinstance(found, _Refused):\n        raise TypeError(found.reason)\n",
        "    if isinstance(found, _Refused):\n        return Any\n",
        "tests/test_typed.py",
        "tests/test_pydantic_types.py",
    ),
    mutant(
        "other-member-of-a-union",
        "a value does not come back as one of another class",
        "serialization/roundtrip.py",
        "        _refuse_other_class(value, back, where)\n",
        "        pass\n",
        "tests/test_pydantic_types.py",
    ),
)
