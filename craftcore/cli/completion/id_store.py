"""Queries for shell completion. Each reads a few rows by an index, however large the database is."""

from __future__ import annotations

MOST = 50
"""How many candidates a query returns: the newest ones."""

QUERIES = {
    "trigger": """
        SELECT id AS value, coalesce(workflow, source) AS about FROM triggers
        WHERE id >= :low AND id < :high ORDER BY id DESC LIMIT :most""",
    "dead": """
        SELECT id AS value, coalesce(workflow, source) AS about FROM triggers INDEXED BY triggers_dead
        WHERE status = 'DEAD' AND id >= :low AND id < :high ORDER BY settled_at DESC LIMIT :most""",
    "task": """
        SELECT id AS value, workflow AS about FROM tasks
        WHERE id >= :low AND id < :high ORDER BY id DESC LIMIT :most""",
    "question": """
        SELECT questions.id AS value, tasks.workflow AS about
        FROM questions INDEXED BY questions_open JOIN tasks ON tasks.seq = questions.task_seq
        WHERE questions.status = 'OPEN' AND questions.id >= :low AND questions.id < :high
        ORDER BY questions.id DESC LIMIT :most""",
    "key": """
        SELECT substr(idem_key, 10) AS value, action AS about FROM activity_log
        WHERE idem_key >= 'activity:' || :low AND idem_key < 'activity:' || :high ORDER BY idem_key DESC LIMIT :most""",
    "execution": """
        SELECT id AS value, workflow AS about FROM executions
        WHERE id >= :low AND id < :high ORDER BY id DESC LIMIT :most""",
    "schedule": """
        SELECT id AS value, workflow AS about FROM schedules
        WHERE status <> 'REMOVED' AND id >= :low AND id < :high ORDER BY id LIMIT :most""",
    "subject": """
        SELECT subject AS value, NULL AS about FROM audit_log
        WHERE subject >= :low AND subject < :high GROUP BY subject ORDER BY subject LIMIT :most""",
    "workflow": """
        SELECT name AS value, NULL AS about FROM workflows
        WHERE name >= :low AND name < :high ORDER BY name LIMIT :most""",
    "choice": """
        SELECT json_each.value AS value, NULL AS about FROM questions, json_each(questions.options_json)
        WHERE questions.status = 'OPEN' AND questions.id >= :low AND questions.id < :high LIMIT :most""",
    "event": """
        SELECT waits.event AS value, NULL AS about FROM tasks
        JOIN waits ON waits.task_seq = tasks.seq AND waits.status = 'WAITING' AND waits.kind = 'event'
        WHERE tasks.id >= :low AND tasks.id < :high LIMIT :most""",
}
"""The rows of each kind whose id begins with a text. Keys are without `activity:`, because a colon ends a word in bash.

`choice` has the options of a question, and `event` the event that a task waits for: the text is the id of their owner.
"""
