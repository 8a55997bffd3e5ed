"""The SQL of schedules as people look them up: prefixes of ids, and the trigger of an occurrence."""

from __future__ import annotations

IDS_LIKE = """
SELECT id, status = 'REMOVED' AS removed
  FROM schedules
 WHERE id >= :given
   AND id < :end
   AND (id = :given OR :removed OR status <> 'REMOVED')
 ORDER BY id
 LIMIT 11
"""

TRIGGER_STATUS = """
SELECT triggers.status AS trigger_status,
       triggers.reason AS trigger_reason,
       tasks.status    AS task_status,
       tasks.reason    AS task_reason
  FROM triggers
  LEFT JOIN tasks ON tasks.id = triggers.id
 WHERE triggers.id = :id
"""
"""The present state of a trigger, and of the task that it created, which goes on after it."""
