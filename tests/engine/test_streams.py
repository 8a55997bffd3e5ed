"""Streams that turns write: what is on record after waits, retries and refusals."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import anyio
import pytest

from craftcore import (
    App,
    Call,
    Continue,
    PayloadTooLarge,
    RetryPolicy,
    StreamChunk,
    TaskContext,
    TriggerSource,
    current,
)
from craftcore.config import TaskSettings
from craftcore.engine.turn.turn_streams import STREAMS_MAX
from craftcore.errors import InvalidInput, LeaseLost
from tests.support.engine_harness import Lab, lab, look, settings
from tests.support.turns import begin, failure, result, run

pytestmark = pytest.mark.anyio

SMALL = replace(settings(), tasks=TaskSettings(stream_max_bytes=1024))


async def read(harness: Lab, id: str, name: str = "answer", after: int = 0) -> list[StreamChunk]:
    return [chunk async for chunk in harness.app.handle(id).stream(name, after=after)]


def text_of(chunks: list[StreamChunk]) -> str:
    """Return the text that a reader shows after these chunks."""
    shown: dict[int, str] = {}
    for chunk in chunks:
        for number in (number for numbers in chunk.cut for number in numbers):
            shown.pop(number, None)
        shown[chunk.number] = chunk.text
    return "".join(shown.values())


async def test_chunks_are_read_in_order_with_their_numbers(tmp_path):
    async def says(ctx: TaskContext) -> None:
        stream = ctx.stream("answer")
        for chunk in ("Hello", "", ", ", "Ada\x00é"):
            await stream.write(chunk)

    async with lab(App(), tmp_path) as harness:
        task = await begin(harness, says)
        chunks = await read(harness, task)

        assert [tuple(chunk) for chunk in chunks] == [
            (1, "Hello", 1, ()),
            (2, ", ", 1, ()),
            (3, "Ada\x00é", 1, ()),
        ]
        assert await read(harness, task, after=2) == chunks[2:]
        assert await read(harness, task, after=3) == await read(harness, task, "other") == []


async def test_reader_follows_while_the_turn_runs(tmp_path):
    go = anyio.Event()

    async def says(ctx: TaskContext) -> None:
        await ctx.stream().write("one")
        await go.wait()
        await ctx.stream().write("two")

    async with lab(App(), tmp_path) as harness:
        task = await begin(harness, says)
        texts = []
        async for chunk in harness.app.handle(task).stream():
            texts.append(chunk.text)
            go.set()

        assert texts == ["one", "two"]


async def test_message_has_the_stream_of_its_turn_up_to_the_reply(tmp_path):
    """No chunk is missing when the reply is there, although chunks are on disk in groups."""
    app = App()

    @app.workflow("chat", sources=[TriggerSource.MESSAGE])
    async def chat(ctx: TaskContext, text: str) -> Continue[None]:
        said = text if ctx.turn == 1 else ctx.received["text"]
        for word in f"{said} to you".split():
            await ctx.stream().write(word)
        await ctx.reply("said")
        return Continue(None, on="message")

    async with lab(app, tmp_path) as harness:
        sent = [
            await app.emit(None, {"text": text}, source=TriggerSource.MESSAGE, session_id="ada")
            for text in ("hello", "morning")
        ]
        followed = [[(chunk.turn, chunk.text) async for chunk in message.stream()] for message in sent]

        assert followed == [
            [(1, "hello"), (1, "to"), (1, "you")],
            [(2, "morning"), (2, "to"), (2, "you")],
        ]
        assert [chunk.number for chunk in await read(harness, sent[1].id, after=4)] == [5, 6]


async def test_code_before_a_wait_writes_its_chunks_once(tmp_path):
    """The turn is entered three times, and its code writes the first chunk each time."""

    async def says(ctx: TaskContext) -> None:
        stream = ctx.stream()
        await stream.write("a")
        await ctx.wait_for("go")
        await stream.write("b")
        await ctx.wait_for("go")
        await stream.write("c")
        assert not stream.cut

    async with lab(App(), tmp_path) as harness:
        task = await begin(harness, says)
        for _ in range(2):
            await harness.waiting(task)
            await harness.app.signal(task, "go")
        chunks = await read(harness, task)

        assert [(chunk.number, chunk.text) for chunk in chunks] == [(1, "a"), (2, "b"), (3, "c")]


async def test_re_entry_with_other_chunks_cuts_those_on_record(tmp_path):
    entries: list[bool] = []

    async def says(ctx: TaskContext) -> None:
        stream = ctx.stream()
        await stream.write("same")
        await stream.write(f"entry {len(entries)}")
        entries.append(stream.cut)
        await stream.write("end")
        await ctx.wait_for("go")

    async with lab(App(), tmp_path) as harness:
        task = await begin(harness, says)
        await harness.waiting(task)
        before: list[StreamChunk] = []
        async for chunk in harness.app.handle(task).stream():
            before.append(chunk)
            if len(before) == 3:
                await harness.app.signal(task, "go")
        fresh = await read(harness, task)

        assert entries == [False, True]
        assert text_of(before) == text_of(fresh) == "sameentry 1end"
        assert [chunk.cut for chunk in fresh] == [(), (range(2, 4),), (), ()]


async def test_turn_that_writes_less_at_its_last_entry_cuts_the_rest(tmp_path):
    entries: list[int] = []

    async def says(ctx: TaskContext) -> None:
        entries.append(1)
        for chunk in ["a", "b", "c"][: 4 - len(entries)]:
            await ctx.stream().write(chunk)
        await ctx.wait_for("go")

    async with lab(App(), tmp_path) as harness:
        task = await begin(harness, says)
        await harness.waiting(task)
        await harness.app.signal(task, "go")

        assert text_of(await read(harness, task)) == "ab"


async def test_recorded_step_writes_nothing_again(tmp_path):
    async def says(ctx: TaskContext) -> None:
        stream = ctx.stream()

        async def model() -> None:
            for chunk in "xyz":
                await stream.write(chunk)

        await stream.write("<")
        await ctx.step("model", model)
        await stream.write(">")
        await ctx.wait_for("go")

    async with lab(App(), tmp_path) as harness:
        task = await begin(harness, says)
        await harness.waiting(task)
        await harness.app.signal(task, "go")
        chunks = await read(harness, task)

        assert [chunk.text for chunk in chunks] == ["<", "x", "y", "z", ">"]


async def test_step_that_runs_again_cuts_its_chunks(tmp_path):
    runs: list[bool] = []

    async def says(ctx: TaskContext) -> None:
        stream = ctx.stream()

        async def model() -> None:
            runs.append(stream.cut)
            await stream.write(f"try {len(runs)} ")
            await stream.write("goes on")
            if len(runs) == 1:
                raise ConnectionError

        await stream.write("A: ")
        await ctx.step("model", model, retry=RetryPolicy(base=0))

    async with lab(App(), tmp_path) as harness:
        chunks = await read(harness, await begin(harness, says))

        assert runs == [False, True]
        assert text_of(chunks) == "A: try 2 goes on"
        assert [chunk.number for chunk in chunks if chunk.cut] == [4]


async def test_step_that_runs_again_without_a_write_cuts_its_chunks(tmp_path):
    runs: list[int] = []

    async def says(ctx: TaskContext) -> None:
        async def model() -> None:
            runs.append(1)
            if len(runs) == 1:
                await ctx.stream().write("torn")
                raise ConnectionError

        await ctx.step("model", model)

    async with lab(App(), tmp_path) as harness:
        assert text_of(await read(harness, await begin(harness, says))) == ""
        assert len(runs) == 2


async def test_steps_beside_each_other_keep_their_chunks(tmp_path):
    """Of two steps that write to one stream, one fails once: only its own chunks are cut."""
    runs: list[str] = []

    async def says(ctx: TaskContext) -> None:
        async def tool(name: str) -> None:
            runs.append(name)
            await ctx.stream().write(f"{name}1")
            await ctx.stream().write(f"{name}2")
            if runs.count(name) == 1 and name == "b":
                raise ConnectionError

        await asyncio.gather(
            *(ctx.step("tool", tool, name, key=name, retry=RetryPolicy(base=0)) for name in ("a", "b"))
        )

    async with lab(App(), tmp_path) as harness:
        shown = text_of(await read(harness, await begin(harness, says)))

        assert sorted([shown[:4], shown[4:]]) == ["a1a2", "b1b2"]


async def test_plain_step_writes_from_its_thread(tmp_path):
    async def says(ctx: TaskContext) -> None:
        def model() -> None:
            for chunk in "xyz":
                ctx.stream().write_blocking(chunk)

        await ctx.step("model", model)
        with pytest.raises(InvalidInput, match=r"await stream\.write"):
            ctx.stream().write_blocking("!")

    async with lab(App(), tmp_path) as harness:
        task = await begin(harness, says)

        assert [chunk.text for chunk in await read(harness, task)] == ["x", "y", "z"]
        assert result(harness.task(task)) is None


async def test_numbers_grow_over_the_turns_of_a_task(tmp_path):
    async def says(ctx: TaskContext[int]) -> Any:
        await ctx.stream().write(f"turn {ctx.turn}")
        return Continue(ctx.turn) if ctx.turn < 3 else None

    async with lab(App(), tmp_path) as harness:
        task = await begin(harness, says)
        chunks = await read(harness, task)

        assert [tuple(chunk)[:3] for chunk in chunks] == [(n, f"turn {n}", n) for n in (1, 2, 3)]
        assert await read(harness, task, after=1) == chunks[1:]


async def test_stream_is_refused_over_its_limit(tmp_path):
    async def says(ctx: TaskContext) -> None:
        await ctx.stream().write("x" * 1000)
        with pytest.raises(PayloadTooLarge, match=r"1,000 bytes .* 25; the limit is 1,024: .*tasks.stream_max_bytes"):
            await ctx.stream().write("y" * 25)
        await ctx.stream().write("é" * 12)
        await ctx.stream("other").write("z" * 1024)

    async with lab(App(), tmp_path, SMALL) as harness:
        task = await begin(harness, says)

        assert text_of(await read(harness, task)) == "x" * 1000 + "é" * 12
        assert result(await harness.ended(task)) is None


async def test_chunks_that_are_cut_do_not_count_for_the_limit(tmp_path):
    runs: list[int] = []

    async def says(ctx: TaskContext) -> None:
        async def model() -> None:
            runs.append(1)
            await ctx.stream().write("x" * 1000)
            if len(runs) < 5:
                raise ConnectionError

        await ctx.step("model", model, retry=RetryPolicy(base=0))

    async with lab(App(), tmp_path, SMALL) as harness:
        task = await begin(harness, says)

        assert text_of(await read(harness, task)) == "x" * 1000
        [stored] = harness.rows("SELECT sum(length(texts_json)) AS size FROM stream_chunks")
        assert stored["size"] < 1100


@pytest.mark.parametrize(
    ("chunk", "wrong"), [(b"x", "decode bytes"), (1, "must be text"), ("\ud800", "not valid text")]
)
async def test_chunk_that_is_not_text_is_refused(tmp_path, chunk, wrong):
    async def says(ctx: TaskContext) -> None:
        await ctx.stream().write(chunk)

    async with lab(App(), tmp_path) as harness:
        code, message = failure(await run(harness, says))

        assert code == "VALIDATION_ERROR"
        assert wrong in message


async def test_invalid_names_and_too_many_streams_are_refused(tmp_path):
    async def says(ctx: TaskContext) -> None:
        with pytest.raises(InvalidInput, match="stream name 'a b' must be"):
            ctx.stream("a b")
        for number in range(STREAMS_MAX):
            await ctx.stream(f"s{number}").write("x")
        with pytest.raises(InvalidInput, match="the limit is 100"):
            await ctx.stream("more").write("x")

    async with lab(App(), tmp_path) as harness:
        task = await begin(harness, says)
        assert result(await harness.ended(task)) is None
        with pytest.raises(InvalidInput, match="after -1 must be"):
            harness.app.handle(task).stream(after=-1)
        with pytest.raises(InvalidInput, match="stream name"):
            harness.app.handle(task).stream("")


async def test_turn_that_lost_its_lease_writes_nothing_more(tmp_path):
    """The trigger is taken away while the turn streams, as after a clock that was set."""
    go, refused = anyio.Event(), anyio.Event()

    async def says(ctx: TaskContext) -> None:
        await ctx.stream().write("kept")
        await go.wait()
        try:
            while True:
                await ctx.stream().write("lost")
                await anyio.sleep(0.02)
        except LeaseLost:
            refused.set()
            raise

    async with lab(App(), tmp_path) as harness:
        task = await begin(harness, says)
        chunks = harness.app.handle(task).stream()
        assert (await anext(chunks)).text == "kept"
        await harness.engine.writer.commit(
            lambda tx: tx.run("UPDATE triggers SET lease_token = 'other' WHERE id = :id", id=task)
        )
        go.set()
        await refused.wait()

        [row] = harness.rows("SELECT texts_json FROM stream_chunks")
        assert row["texts_json"] == '["kept"]'


async def test_stopped_turn_keeps_its_chunks(tmp_path):
    began = anyio.Event()

    async def says(ctx: TaskContext) -> Any:
        if ctx.turn == 2:
            await ctx.stream().write("half")
            began.set()
            await anyio.sleep_forever()
        return Continue(None, on="message") if ctx.turn < 3 else None

    async with lab(App(), tmp_path) as harness:
        task = await begin(harness, says)
        await harness.waiting(task)
        await harness.app.signal(task, "message", {})
        await began.wait()
        await harness.app.stop_turn(task)
        await harness.waiting(task)

        [row] = harness.rows("SELECT texts_json FROM stream_chunks")
        assert row["texts_json"] == '["half"]'


async def test_damaged_chunks_are_reported_and_replaced(tmp_path):
    """A reader hears where it can read on. The turn goes on, and writes the chunks of its own code anew."""

    async def says(ctx: TaskContext) -> None:
        await ctx.stream().write("a")
        await ctx.wait_for("go")
        await ctx.stream().write("b")

    async with lab(App(), tmp_path) as harness:
        task = await begin(harness, says)
        await harness.waiting(task)
        damaged = "UPDATE stream_chunks SET texts_json = CAST(x'5bff' AS TEXT), part = CAST(x'ff' AS TEXT)"
        await harness.engine.writer.commit(lambda tx: tx.run(damaged))
        with pytest.raises(Exception, match="chunks 1 to 1 of stream answer are damaged; read on with after=1"):
            await read(harness, task)
        await harness.app.signal(task, "go")
        await harness.ended(task)

        assert text_of(await read(harness, task, after=1)) == "ab"


async def test_later_agent_cuts_the_chunks_of_the_agent_that_failed(tmp_path):
    app = App()

    @app.workflow("first", fallback=["second"], max_attempts=1)
    async def first(ctx: TaskContext) -> str:
        await ctx.stream().write("torn")
        raise RuntimeError

    @app.workflow("second")
    async def second(ctx: TaskContext) -> str:
        await ctx.stream().write("whole")
        return "whole"

    async with lab(app, tmp_path) as harness:
        task = (await app.emit("first")).id

        assert text_of(await read(harness, task)) == "whole"
        assert result(await harness.ended(task)) == "whole"


async def test_shutdown_saves_the_chunks_of_an_interrupted_turn(tmp_path):
    began = anyio.Event()

    async def says(ctx: TaskContext) -> None:
        async def model() -> None:
            await ctx.stream().write("half")
            began.set()
            await anyio.sleep_forever()

        await ctx.step("model", model)

    async with lab(App(), tmp_path, settings(shutdown_grace=0.0)) as harness:
        task = await begin(harness, says)
        await began.wait()
        path = harness.path

    [row] = look(path, "SELECT texts_json FROM stream_chunks")
    assert row["texts_json"] == '["half"]'
    assert task


async def test_action_writes_its_chunks_before_its_end(tmp_path):
    app = App()

    @app.action("model", irreversible=True)
    async def model(call: Call) -> str:
        ctx = current()
        assert ctx is not None
        await ctx.stream().write("said")
        return "said"

    async def says(ctx: TaskContext) -> None:
        await ctx.act(model)
        assert harness.rows("SELECT texts_json FROM stream_chunks") == [{"texts_json": '["said"]'}]

    async with lab(app, tmp_path) as harness:
        assert result(await run(harness, says)) is None
