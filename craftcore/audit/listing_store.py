"""The SQL by which people look at `audit_log`: the newest rows, of one thing, person, action, span of time."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice

from craftcore.audit.model import AuditRow
from craftcore.storage.damaged_rows import readable_row
from craftcore.storage.row_spans import NO_BOUND
from craftcore.storage.transaction import Reader

_NEWEST = """
SELECT seq,
       CASE typeof(at) WHEN 'real' THEN at ELSE 0.0 END      AS at,
       CASE typeof(uid) WHEN 'integer' THEN uid ELSE -1 END  AS uid,
       CAST(name AS BLOB)                                    AS name,
       CAST(action AS BLOB)                                  AS action,
       CAST(subject AS BLOB)                                 AS subject,
       CAST(reason AS BLOB)                                  AS reason,
       CAST(details_json AS BLOB)                            AS details_json,
       CAST(prev_hash AS BLOB)                               AS prev_hash,
       CAST(hash AS BLOB)                                    AS hash
  FROM audit_log
 WHERE {those}
   AND (:action IS NULL OR action = :action OR (action >= :action || ' ' AND action < :action || '!'))
   AND (
           (:uid IS NULL AND :name IS NULL)
        OR uid = :uid
        OR name = :name
        OR json_extract(iif(json_valid(details_json), details_json, '{{}}'), '$.login_uid') = :uid
        OR json_extract(iif(json_valid(details_json), details_json, '{{}}'), '$.login_name') = :name
        OR json_extract(iif(json_valid(details_json), details_json, '{{}}'), '$.person_name') = :name
       )
   AND (:since IS NULL OR at >= :since)
   AND (:until IS NULL OR at < :until)
   AND seq > :after
   AND seq < :before
 ORDER BY seq DESC
 LIMIT :limit
"""
NEWEST = _NEWEST.format(those="1")
NEWEST_OF = _NEWEST.format(those="subject = :subject")
"""By its index. The clock may be set back, so a span of time does not end the walk: `seq` is the order. A row that a
bad disk damaged is listed with the others: its texts are read as bytes, and a missing number is 0."""

REQUEST = """
SELECT request
  FROM (SELECT json_extract(iif(json_valid(details_json), details_json, '{}'), '$.request') AS request
          FROM (SELECT seq, details_json FROM audit_log ORDER BY seq DESC LIMIT :newest))
 WHERE substr(request || ':', 1, length(:name) + 1) = :name || ':'
 LIMIT 1
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """Which rows. None: whatever it is.

    subject        the whole id of what it was done to
    parts          the whole ids of what belongs to it: what was done to them counts, too
    action         the whole name, or the noun for all its verbs: `schedule`
    uid, name      of the user who did it, or who had logged in; the name also of a person who acted by the page
    since, until   epoch seconds; `until` itself is not included
    after, before  numbers of rows; neither is included
    """

    subject: str | None = None
    parts: Sequence[str] = ()
    action: str | None = None
    uid: int | None = None
    name: str | None = None
    since: float | None = None
    until: float | None = None
    after: int = 0
    before: int = NO_BOUND


class AuditListStore:
    """Reads `audit_log`. Holds nothing."""

    def list_newest(self, tx: Reader, limit: int, filter: AuditFilter) -> list[AuditRow]:
        """Return the newest rows, newest first."""
        if filter.subject is None:
            return self._list_newest(tx, NEWEST, limit, filter)
        of_each = [
            self._list_newest(tx, NEWEST_OF, limit, replace(filter, subject=subject, parts=()))
            for subject in (filter.subject, *filter.parts)
        ]
        return list(islice(heapq.merge(*of_each, key=lambda row: -row.seq), limit))

    def _list_newest(self, tx: Reader, sql: str, limit: int, filter: AuditFilter) -> list[AuditRow]:
        rows = tx.fetch_all(sql, **asdict(filter), limit=limit)
        return [AuditRow(**readable_row(row)) for row in rows]

    def find_request(self, tx: Reader, name: str, newest: int) -> str | None:
        """Return the request of the newest rows that was made by a form with this random name; None: none was."""
        found: str | None = tx.fetch_value(REQUEST, name=name, newest=newest)
        return found

    def subjects_between(self, tx: Reader, first: str, end: str) -> list[str]:
        """Return the ids to which something was done, from `first` on and before `end`."""
        rows = tx.fetch_tuples(
            "SELECT DISTINCT subject FROM audit_log WHERE subject >= ?1 AND subject < ?2", (first, end)
        )
        return [subject for (subject,) in rows]

    def subjects_like(self, tx: Reader, prefix: str) -> list[str]:
        """Return up to two ids that begin with `prefix`: none, the one meant, or proof that it is ambiguous."""
        rows = tx.fetch_all(
            """
            WITH first (subject) AS (SELECT min(subject) FROM audit_log WHERE subject >= :prefix AND subject < :end)
            SELECT subject FROM first
             UNION ALL
            SELECT min(subject) FROM audit_log WHERE subject > (SELECT subject FROM first) AND subject < :end
            """,
            prefix=prefix,
            end=prefix + "\x7f",
        )
        return [row["subject"] for row in rows if row["subject"] is not None]
