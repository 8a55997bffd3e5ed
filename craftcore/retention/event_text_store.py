"""SQL of the two texts of events in a record: how retention strips them, and the bytes that this frees."""

from __future__ import annotations


def strip_events(column: str) -> str:
    """Return the expression of a text whose payloads are "". A damaged text becomes ''; the schema permits no other
    change."""
    return f"""CASE
           WHEN {column} IS NULL
           THEN NULL
           WHEN json_valid('[' || {column} || ']')
           THEN (SELECT group_concat(json_replace(value, '$[3]', ''))
                   FROM json_each('[' || {column} || ']')
                  WHERE type = 'array')
           ELSE ''
       END"""  # noqa: S608 - the name of a column


LEFT_BYTES = f"octet_length(concat({strip_events('first_events')}, {strip_events('last_events')}))"
"""The bytes of both texts that stay when the bodies of a record are stripped."""

FREED_BYTES = f"octet_length(concat(first_events, last_events)) - {LEFT_BYTES}"
"""The bytes of both texts that go when the bodies of a record are stripped."""
