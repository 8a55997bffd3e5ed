"""Messages of sessions: the oldest ones go at their age, whole units only."""

from __future__ import annotations

from craftcore.retention.scan_store import OldRows, build_removal

DUE = """
SELECT seq
  FROM session_messages AS message
 WHERE seq > :after
   AND seq <= :last
   AND created_at <= :messages
   AND NOT EXISTS (SELECT 1
                     FROM session_messages AS later
                    WHERE later.session_id = message.session_id
                      AND later.number > message.number
                      AND later.number < coalesce((SELECT unit.number
                                                     FROM session_messages AS unit
                                                    WHERE unit.session_id = message.session_id
                                                      AND unit.number > message.number
                                                      AND unit.begins
                                                    ORDER BY unit.number
                                                    LIMIT 1), later.number + 1)
                      AND later.created_at > :messages)
 ORDER BY seq
 LIMIT :most
"""
"""A group may grow over several turns: its first message stays as long as its last one."""

OLD_MESSAGES = OldRows(
    table="session_messages",
    since=lambda old: old.messages,
    due=DUE,
    remove=build_removal(session_messages="DELETE FROM session_messages WHERE seq = :seq"),
)
