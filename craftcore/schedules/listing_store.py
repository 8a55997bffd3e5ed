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

TRIGGER_STATUS = "SELECT status AS trigger_status, reason AS trigger_reason FROM triggers WHERE id = :id"
