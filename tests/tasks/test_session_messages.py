"""Messages of sessions outside of a turn: programs, the command line, retention and damage."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from craftcore import App, InvalidInput, Producer, TaskContext
from craftcore.config import Config, RetentionSettings
from craftcore.services import Services
from craftcore.tasks.quarantine_store import find_corrupt
from craftcore.tasks.session_message import NewMessage
from craftcore.tasks.session_message_store import SessionMessageStore
from tests.support.engine_harness import lab
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.retention_harness import DAY, only, sweep

pytestmark = pytest.mark.anyio


@dataclass
class Said:
    text: str


def say(core: VirtualCore, *texts: str, session: str = "s", group: str | None = None) -> None:
    """Append texts as one call."""
    said = [NewMessage(json.dumps({"text": text}), place == 0, group) for place, text in enumerate(texts)]
    core.do(SessionMessageStore().append_all, session, "task", 1, said, kept=1_000)


def texts(core: VirtualCore, session: str = "s") -> list[str]:
    with core.reading() as reader:
        found = reader.fetch_tuples(
            "SELECT message_json ->> 'text' FROM session_messages WHERE session_id = ?1 ORDER BY number", (session,)
        )
        return [text for (text,) in found]


async def test_conversation_is_read_by_the_app_and_by_a_producer(tmp_path):
    app = App()

    @app.workflow("chat")
    async def chat(ctx: TaskContext, count: int) -> None:
        await ctx.history.append(*(Said(f"m{number}") for number in range(1, count + 1)))

    async with lab(app, tmp_path) as harness:
        emitted = await app.emit("chat", {"count": 5}, session_id="s")
        await emitted.result()

        said = await app.history("s", limit=2, type=Said)
        assert [(one.number, one.value, one.task_id, one.turn) for one in said] == [
            (4, Said("m4"), emitted.id, 1),
            (5, Said("m5"), emitted.id, 1),
        ]
        assert [one.number for one in await app.history("s", after=1, before=4)] == [2, 3]
        assert await app.history("nobody") == []
        with pytest.raises(InvalidInput, match="message 1 of the session"):
            await app.history("s", before=2, type=int)
        with pytest.raises(InvalidInput, match="limit 0 must be"):
            await app.history("s", limit=0)
        with Producer(harness.path) as producer:
            assert [one.value for one in producer.history("s", before=3)] == [{"text": "m1"}, {"text": "m2"}]
            assert producer.forget_history("s") == 5
        assert await app.history("s") == []


def test_messages_are_removed_at_their_age_and_units_stay_whole(tmp_path):
    core = VirtualCore(tmp_path / "agent.db", clock := VirtualClock())
    say(core, "a", "b")
    say(core, "call", group="1")
    say(core, "c", session="t")
    clock.advance(hours=48)
    say(core, "result", group="1")
    say(core, "d")
    clock.advance(hours=48)

    sweep(core, only(messages=3 * DAY))
    assert (texts(core), texts(core, "t")) == (["call", "result", "d"], [])

    clock.advance(hours=48)
    sweep(core, only(messages=0))
    assert texts(core) == ["call", "result", "d"]
    sweep(core, only(messages=3 * DAY))
    assert texts(core) == []
    core.close()


def test_messages_are_kept_for_a_year_by_default():
    assert RetentionSettings().messages == 365 * DAY


@pytest.mark.parametrize("damage", ["message_json = 'no json'", "message_json = CAST(x'ff41' AS TEXT)"])
async def test_turn_and_program_read_on_without_a_damaged_message(tmp_path, damage):
    app = App()

    @app.workflow("chat")
    async def chat(ctx: TaskContext, text: str) -> Any:
        said = await ctx.history.last(10)
        await ctx.history.append(text)
        return said

    async with lab(app, tmp_path) as harness:
        for text in ("a", "b", "c"):
            await (await app.emit("chat", {"text": text}, session_id="s")).result()
        with Services(harness.path, Config()).transaction() as tx:
            tx.run(f"UPDATE session_messages SET {damage} WHERE number = 2")

        assert await (await app.emit("chat", {"text": "d"}, session_id="s")).result() == ["a", "c"]
        assert [one.number for one in await app.history("s")] == [1, 3, 4]


@pytest.mark.parametrize("damage", ["message_json = 'no json'", "message_json = CAST(x'ff41' AS TEXT)"])
def test_damaged_message_is_set_aside_and_the_conversation_goes_on(tmp_path, damage):
    core = VirtualCore(tmp_path / "agent.db", VirtualClock())
    for text in ("a", "b", "c"):
        say(core, text)
    with core.transaction() as tx:
        tx.run(f"UPDATE session_messages SET {damage} WHERE number = 2")

    with core.transaction() as tx:
        found = find_corrupt(tx)
        assert [(table.kind, corrupt.message.startswith("message of a session 2: ")) for table, corrupt in found] == [
            ("message of a session", True)
        ]
        for table, corrupt in found:
            assert table.repair(tx, corrupt) == 1
        assert find_corrupt(tx) == []

    with core.reading() as reader:
        window = SessionMessageStore().read_window(reader, "s", 10, [])
    assert [message.number for message in window.stored] == [1, 3]
    core.close()
