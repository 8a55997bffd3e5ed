"""The queries of `db stats`: rows and bytes of each table, pages, and the oldest row of each kind."""

from __future__ import annotations

ROWS = """
SELECT (SELECT count(*) FROM triggers)   AS triggers,
       (SELECT count(*) FROM executions) AS executions,
       (SELECT count(*) FROM event_rows) AS event_rows,
       (SELECT count(*) FROM epochs)     AS epochs
"""
SIZES = """
SELECT dbstat.name, coalesce(sqlite_schema.type, 'table') AS type, dbstat.pgsize AS bytes, dbstat.payload
  FROM dbstat
  LEFT JOIN sqlite_schema ON sqlite_schema.name = dbstat.name
 WHERE dbstat.aggregate = TRUE
 ORDER BY dbstat.pgsize DESC, dbstat.name
"""
PAGES = """
SELECT (SELECT page_count FROM pragma_page_count())         AS pages,
       (SELECT freelist_count FROM pragma_freelist_count()) AS free_pages,
       (SELECT page_size FROM pragma_page_size())           AS page_size
"""

OLDEST = """
SELECT (SELECT created_at FROM triggers ORDER BY seq LIMIT 1)             AS triggers,
       (SELECT created_at FROM executions ORDER BY seq LIMIT 1)           AS executions,
       (SELECT created_at FROM tasks ORDER BY seq LIMIT 1)                AS tasks,
       (SELECT created_at FROM activity_log ORDER BY seq LIMIT 1)         AS activity_log,
       (SELECT created_at FROM questions ORDER BY seq LIMIT 1)            AS questions,
       (SELECT created_at FROM waits ORDER BY seq LIMIT 1)                AS waits,
       (SELECT created_at FROM mailbox ORDER BY seq LIMIT 1)              AS mailbox,
       (SELECT decided_at FROM schedule_occurrences ORDER BY seq LIMIT 1) AS schedule_occurrences,
       (SELECT at FROM audit_log ORDER BY seq LIMIT 1)                    AS audit_log
"""
