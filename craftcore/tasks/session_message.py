"""Messages of a session: what turns append, and what is read of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from craftcore.tasks.model import Task


class NewMessage(NamedTuple):
    """A message before it is stored. `begins`: it is the first one of a call; `group`: of messages that stay together,
    None: those of the call only."""

    message_json: str
    begins: bool
    group: str | None


class StoredMessage(NamedTuple):
    """A message on disk, in the order of the columns that are read."""

    number: int
    begins: int
    group_key: str | None
    task_id: str
    turn: int
    message_json: str
    created_at: float


class Window(NamedTuple):
    """The end of a conversation as a turn reads it: stored messages, and how many that it has appended itself."""

    stored: list[StoredMessage]
    own: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionMessage:
    """A message of a session.

    number   its place in the session, from 1; what was removed leaves its numbers unused while newer messages are there
    task_id  the task whose turn appended it
    turn     the turn, from 1
    at       when that turn ended
    value    the message, as the type that was asked for
    """

    number: int
    task_id: str
    turn: int
    at: datetime
    value: Any


def session_of(task: Task) -> str:
    """Return the session whose messages a task appends to. A task without a session has a conversation of its own."""
    return task.session_id or task.id


def decode_messages(rows: list[StoredMessage], type_: Any) -> list[SessionMessage]:
    """Return stored messages with their values as `type_`. Raises InvalidInput for one that does not fit, and for a
    type that JSON cannot become."""
    from craftcore.serialization.decode import decode  # its library is not needed to list them
    from craftcore.serialization.readable_types import require_type

    reader = require_type(type_, "a message of a session")
    return [
        SessionMessage(
            number=row.number,
            task_id=row.task_id,
            turn=row.turn,
            at=datetime.fromtimestamp(row.created_at, UTC),
            value=decode(row.message_json, reader, f"message {row.number} of the session"),
        )
        for row in rows
    ]
