"""The questions that completion asks of the database: each reads a few rows by an index, whatever the file holds."""

from __future__ import annotations

MOST = 50
"""Of what is in the database, the newest so many are offered."""

QUERIES = {
    "trigger": """
        SELECT id AS value, coalesce(workflow, source) AS about
        FROM triggers
        WHERE id >= :low
          AND id < :high
        ORDER BY id DESC
        LIMIT :most
    """,
    "dead": """
        SELECT id AS value, coalesce(workflow, source) AS about
        FROM triggers INDEXED BY triggers_dead
        WHERE status = 'DEAD'
          AND id >= :low
          AND id < :high
        ORDER BY settled_at DESC
        LIMIT :most
    """,
    "task": """
        SELECT id AS value, workflow AS about
        FROM tasks
        WHERE id >= :low
          AND id < :high
        ORDER BY id DESC
        LIMIT :most
    """,
    "question": """
        SELECT questions.id AS value, tasks.workflow AS about
        FROM questions INDEXED BY questions_open
        JOIN tasks ON tasks.seq = questions.task_seq
        WHERE questions.status = 'OPEN'
          AND questions.id >= :low
          AND questions.id < :high
        ORDER BY questions.id DESC
        LIMIT :most
    """,
    "key": """
        SELECT substr(idem_key, 10) AS value, action AS about
        FROM activity_log
        WHERE idem_key >= 'activity:' || :low
          AND idem_key < 'activity:' || :high
        ORDER BY idem_key DESC
        LIMIT :most
    """,
    "execution": """
        SELECT id AS value, workflow AS about
        FROM executions
        WHERE id >= :low
          AND id < :high
        ORDER BY id DESC
        LIMIT :most
    """,
    "schedule": """
        SELECT id AS value, workflow AS about
        FROM schedules
        WHERE status <> 'REMOVED'
          AND id >= :low
          AND id < :high
        ORDER BY id
        LIMIT :most
    """,
    "subject": """
        SELECT subject AS value, NULL AS about
        FROM audit_log
        WHERE subject >= :low
          AND subject < :high
        GROUP BY subject
        ORDER BY subject
        LIMIT :most
    """,
    "workflow": """
        SELECT name AS value, NULL AS about
        FROM workflows
        WHERE name >= :low
          AND name < :high
        ORDER BY name
        LIMIT :most
    """,
}
"""What there is of each kind that begins with what was typed, and a word about each. Keys without `activity:`, which
commands take as well: a colon ends a word in bash."""

WITHIN = {
    "choice": (
        "question_id",
        """
        SELECT json_each.value
        FROM questions, json_each(questions.options_json)
        WHERE questions.id >= :low
          AND questions.id < :high
          AND questions.status = 'OPEN'
        LIMIT :most
        """,
    ),
    "event": (
        "task_id",
        """
        SELECT waits.event AS value
        FROM tasks
        JOIN waits ON waits.task_seq = tasks.seq AND waits.status = 'WAITING' AND waits.kind = 'event'
        WHERE tasks.id >= :low
          AND tasks.id < :high
        LIMIT :most
        """,
    ),
}
"""What belongs to a thing that stands on the line already: the options of a question, the event a task waits for."""
