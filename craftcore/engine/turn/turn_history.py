"""The conversation of a session, as a turn reads and continues it.

A turn keeps in memory what it appends, and the commit that ends it stores that. A turn that is entered again appends
it again, and stores it once. A window is recorded by its numbers, so that a re-entry reads the same.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import Any, TypeVar, overload

from craftcore.engine.turn.steps import EventOf, commit_once
from craftcore.engine.turn.turn import Turn
from craftcore.engine.turn.unawaited_calls import track_await
from craftcore.errors import InvalidInput, PayloadTooLarge
from craftcore.serialization.arguments import require_whole_number
from craftcore.serialization.canonical import canonicalize
from craftcore.serialization.decode import decode
from craftcore.serialization.encode import encode
from craftcore.serialization.readable_types import require_type
from craftcore.tasks.session_message import NewMessage, StoredMessage, Window, session_of
from craftcore.triggers.validation import require_name

T = TypeVar("T")

READ_MAX = 10_000
"""How many messages one call reads."""

MESSAGES_MAX, MESSAGES_MAX_BYTES = 1_000, 16 << 20
"""How much one turn appends: all of it is written in one commit."""


class History:
    """The calls of `ctx.history`. One that is not awaited fails the attempt, as for every call of `ctx`."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._calls_made = turn.calls_made
        self._store = turn.services.tables.messages
        self._session_id = session_of(turn.task)
        self._size = sum(len(message.message_json) for message in turn.messages)

    @track_await("ctx.history.append")
    async def append(self, *messages: Any, group: str | None = None) -> None:
        """Append messages to the session, in this order: stored once, in the commit that ends this turn.

        Messages of one call stay together: no window and no limit separates them. So append a tool call with its
        result, or give both the same `group`, such as the id of the tool call. A turn that waits appends nothing yet,
        one that fails or is stopped nothing at all. A task without a session has a conversation of its own.
        Raises InvalidInput for what is not JSON, inside of a step, and in a task beside the turn's own. Raises
        PayloadTooLarge for a message over `tasks.result_max_bytes`, and for more than 1,000 messages or 16 MiB in a
        turn.
        """
        turn = self._turn
        turn.refuse_when_over()
        if not turn.is_in_order:
            raise InvalidInput(
                "ctx.history.append is called in the turn's own task, and outside of steps: a re-entry must append the "
                "same again. Return the messages to the workflow, and append them there"
            )
        if group is not None:
            require_name("group", group)
        what = f"message {len(turn.messages) + 1} of ctx.history"
        texts = [encode(message, what) for message in messages]
        for text in texts:
            turn.require_small(text, what)
        size = self._size + sum(map(len, texts))
        if len(turn.messages) + len(texts) > MESSAGES_MAX or size > MESSAGES_MAX_BYTES:
            raise PayloadTooLarge(
                f"a turn appends {MESSAGES_MAX:,} messages and {MESSAGES_MAX_BYTES:,} bytes to its session at most. "
                "Return Continue(…) before that"
            )
        self._size = size
        turn.messages += [NewMessage(text, place == 0, group) for place, text in enumerate(texts)]

    @overload
    async def last(self, limit: int = 50, *, type: type[T], key: str | None = None) -> list[T]: ...

    @overload
    async def last(self, limit: int = 50, *, type: Any = ..., key: str | None = None) -> list[Any]: ...

    @track_await("ctx.history.last")
    async def last(self, limit: int = 50, *, type: Any = Any, key: str | None = None) -> list[Any]:
        """Return the newest messages of the session, at most `limit` from 1 to 10,000, the oldest of them first. Each
        is read as `type`. Those that this turn has appended are among them.

        It begins where messages may be separated, so it may have fewer. It has more where the newest ones stay together
        and are more. A re-entry of the turn reads the same ones, but for those that retention has removed since.
        Raises InvalidInput for a message that does not fit `type`, and for a type that JSON cannot become; KeyRequired.
        """
        turn = self._turn
        wanted = require_whole_number("ctx.history.last: limit", limit, 1, READ_MAX, InvalidInput)
        reader = require_type(type, "a message of ctx.history")
        identity = turn.next_ordinal("history", key)
        own = list(turn.messages)

        def read(event_of: EventOf) -> Awaitable[tuple[str, str, Any]]:
            window = (self._session_id, wanted, own)
            return turn.services.tables.read_recorded(self._store.read_window, window, event_of)

        text, window = await commit_once(turn, identity, "history.last", (), _window_text, read)
        if window is None:
            seen = decode(text)
            call = partial(
                self._store.list_between, session_id=self._session_id, first=seen["first"], last=seen["last"]
            )
            window = Window(await turn.services.tables.read(call), seen["own"])
        stored: list[StoredMessage] = window.stored
        texts = [message.message_json for message in stored]
        texts += [message.message_json for message in own[len(own) - window.own :]]
        return [decode(text, reader, "a message of ctx.history") for text in texts]


def _window_text(window: Window) -> str:
    """Return what the record says of a window: the numbers of the messages that it begins and ends with."""
    stored = window.stored
    first, last = (stored[0].number, stored[-1].number) if stored else (1, 0)
    return canonicalize({"first": first, "last": last, "own": window.own})
