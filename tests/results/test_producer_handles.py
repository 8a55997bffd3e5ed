"""Handles of producers, which wait for work in another process."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from craftcore import AsyncProducer, ErrorCode, NotFound, Producer, WorkFailed
from craftcore.errors import CraftcoreError, InvalidInput
from tests.support.processes import APP, PATIENCE, a_daemon, open_files, until
from tests.support.statements import record_statements

TASKS = """
from craftcore import Continue, TaskContext

@app.workflow("waits")
async def waits(ctx: TaskContext) -> str:
    return str(await ctx.wait_for("go"))

@app.workflow("talks")
async def talks(ctx: TaskContext) -> None:
    await ctx.progress("half")
    await ctx.wait_for("go")

@app.workflow("chat", sources=["MESSAGE"])
async def chat(ctx: TaskContext, text: str):
    from pathlib import Path
    import anyio
    said = text if ctx.turn == 1 else ctx.received["text"]
    if said == "reply and hang":
        await ctx.reply(f"re {said}")
    await ctx.progress(said)
    while "hang" in said and not Path("go").exists():
        await anyio.sleep(0.01)
    if said != "reply and hang":
        await ctx.reply(f"re {said}")
    return Continue(None, on="message")

@app.workflow("asks")
async def asks(ctx: TaskContext) -> str:
    return await ctx.ask("Send it?", options=["send", "hold"])
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP + TASKS)
    return tmp_path


@contextmanager
def running_daemon(folder: Path) -> Iterator[Any]:
    with a_daemon(folder, "app:app") as daemon:
        yield daemon.ready()


def test_result_arrives_from_the_daemon(folder):
    with running_daemon(folder), Producer(folder / "agent.db") as producer:
        work = producer.emit("greet", {"name": "Ada"})

        assert work.created
        assert work.result(timeout=PATIENCE) == "Hello Ada"
        assert producer.handle(work.id).result(str, timeout=0) == "Hello Ada"
        assert work.state().status == "DONE"


@pytest.mark.parametrize("text", ["hang and reply", "reply and hang"])
def test_message_has_its_reply_when_its_turn_is_killed_before_or_after_that(folder, text):
    with Producer(folder / "agent.db") as producer, ThreadPoolExecutor() as threads:

        def say(text: str) -> Any:
            return producer.emit(None, {"text": text}, source="MESSAGE", session_id="s")

        with running_daemon(folder) as daemon:
            first = say("hello")
            assert first.result(timeout=PATIENCE) == "re hello"
            hanging = say(text)
            waiting = threads.submit(hanging.result, timeout=PATIENCE)
            until(lambda: first.state().progress_json == f'"{text}"')
            if text == "reply and hang":
                assert waiting.result(PATIENCE) == f"re {text}"
            daemon.kill()
        assert waiting.done() == (text == "reply and hang")
        (folder / "go").touch()
        with running_daemon(folder):
            assert waiting.result(PATIENCE) == f"re {text}"
            assert say("bye").result(timeout=PATIENCE) == "re bye"
            assert hanging.result(timeout=0) == f"re {text}"
            assert first.state().turn == 4


def test_events_follow_the_work_of_the_daemon(folder):
    with running_daemon(folder), Producer(folder / "agent.db") as producer:
        work = producer.emit("talks")
        seen = []
        for update in work.events():
            seen.append(update)
            if update.status == "WAITING":
                producer.signal(work.id, "go", "now")

    assert (seen[-1].status, seen[-1].progress) == ("DONE", "half")
    assert [update.is_over for update in seen] == [False] * (len(seen) - 1) + [True]


@pytest.mark.anyio
async def test_async_producer_follows_the_work_of_the_daemon(folder):
    with running_daemon(folder):
        async with AsyncProducer(folder / "agent.db") as producer:
            work = await producer.emit("talks")
            seen = []
            async for update in work.events():
                seen.append(update)
                if update.status == "WAITING":
                    await producer.signal(work.id, "go", "now")
            with pytest.raises(NotFound):
                async for update in producer.handle("01900000-0000-7000-8000-000000000000").events():
                    seen.append(update)
    assert (seen[-1].status, seen[-1].progress) == ("DONE", "half")


def test_failure_is_raised_with_its_code(folder):
    with running_daemon(folder), Producer(folder / "agent.db") as producer:
        with pytest.raises(WorkFailed, match="it never will") as failed:
            producer.emit("fails").result(timeout=PATIENCE)

    assert failed.value.code is ErrorCode.VALIDATION_ERROR
    assert failed.value.exit_code == 4


def test_timeout_leaves_the_work_for_the_next_daemon(folder):
    with Producer(folder / "agent.db") as producer:
        work = producer.emit("greet")
        for timeout in (0, 0.05):
            with pytest.raises(TimeoutError, match="it goes on while a daemon runs: craftcore status"):
                work.result(timeout=timeout)
        assert work.state().status == "PENDING"

        with running_daemon(folder):
            assert work.result(timeout=PATIENCE) == "Hello you"


def test_cancel_reaches_the_running_task(folder):
    with running_daemon(folder), Producer(folder / "agent.db") as producer:
        work = producer.emit("waits")
        until(lambda: work.state().status == "WAITING", "the task to wait")
        work.cancel()
        with pytest.raises(WorkFailed, match="cancelled"):
            work.result(timeout=PATIENCE)


def test_handle_of_an_unknown_id_is_not_found(folder):
    with Producer(folder / "agent.db") as producer:
        nothing = producer.handle("01900000-0000-7000-8000-000000000000")
        for call in (nothing.result, nothing.state, nothing.cancel):
            with pytest.raises(NotFound):
                call()


def test_find_returns_handles_of_matching_work(folder):
    with Producer(folder / "agent.db") as producer:
        first = producer.emit("greet", session_id="ada")
        second = producer.emit("greet", session_id="ada", dedup_key="second")

        assert [work.id for work in producer.find(session_id="ada")] == [second.id, first.id]
        assert [work.id for work in producer.find(dedup_key="second")] == [second.id]
        assert producer.find(workflow="other") == []


def test_waiting_caller_reads_no_table_while_nothing_changes(folder):
    with record_statements() as statements, Producer(folder / "agent.db") as producer:
        work = producer.emit("waits")
        with ThreadPoolExecutor() as threads:
            result = threads.submit(work.result, timeout=PATIENCE)
            until(lambda: any("SELECT copies.asked, copies.id" in sql for sql in statements), "the first read")
            time.sleep(0.5)  # the reads of the caller and of the watching thread

            statements.clear()
            time.sleep(2)
            reads = list(statements)
            with running_daemon(folder):
                until(lambda: work.state().status == "WAITING", "the task to wait")
                producer.signal(work.id, "go", "now")
                assert result.result(PATIENCE) == "now"

    assert set(reads) == {'pragma "data_version"'}
    assert len(reads) <= 21, "at most ten reads a second"


def test_watching_thread_ends_with_its_last_caller(folder):
    with Producer(folder / "agent.db") as producer:
        with pytest.raises(TimeoutError):
            producer.emit("greet").result(timeout=0.05)
        until(lambda: "craftcore-results" not in {thread.name for thread in threading.enumerate()}, "the thread to end")

        with pytest.raises(TimeoutError):
            producer.emit("greet").result(timeout=0.05)


def test_refused_thread_refuses_a_wait_and_no_later_wait(folder):
    with Producer(folder / "agent.db") as producer, running_daemon(folder):
        work = producer.emit("waits")
        threading.stack_size(1 << 46)  # exceeds the address space, so no thread can start
        try:
            with pytest.raises(CraftcoreError, match="cannot wait for results: can't start new thread"):
                work.result(timeout=PATIENCE)
        finally:
            threading.stack_size(0)
        producer.signal(work.id, "go", "now")
        assert work.result(timeout=PATIENCE) == "now"


def test_file_that_is_taken_away_ends_the_wait(folder):
    with Producer(folder / "agent.db") as producer, ThreadPoolExecutor() as threads:
        work = producer.emit("greet")
        open_before = len(open_files(os.getpid(), folder / "agent.db"))
        result = threads.submit(work.result)
        until(lambda: "craftcore-results" in {thread.name for thread in threading.enumerate()}, "the thread")
        until(lambda: len(open_files(os.getpid(), folder / "agent.db")) > open_before, "its connection")
        for file in sorted(folder.glob("agent.db*")):  # agent.db first, whose absence is noticed
            file.rename(folder / f"away-{file.name}")

        with pytest.raises(NotFound):
            result.result(PATIENCE)


@pytest.mark.anyio
async def test_async_producer_awaits_results(folder):
    with running_daemon(folder):
        async with AsyncProducer(folder / "agent.db") as producer:
            work = await producer.emit("greet", {"name": "Ada"})
            assert await work.result(timeout=PATIENCE) == "Hello Ada"
            assert await producer.handle(work.id).result(timeout=0) == "Hello Ada"
            assert [found.id for found in await producer.find(workflow="greet")] == [work.id]
            with pytest.raises(WorkFailed):
                await (await producer.emit("fails")).result(timeout=PATIENCE)


@pytest.mark.anyio
async def test_async_producer_signals_and_cancels_tasks(folder):
    with running_daemon(folder):
        async with AsyncProducer(folder / "agent.db") as producer:
            waiting, asking, endless = [await producer.emit(name) for name in ("waits", "asks", "waits")]
            for work in (waiting, asking, endless):
                with anyio.fail_after(PATIENCE):
                    while (await work.state()).status != "WAITING":  # noqa: ASYNC110 - a table has no event to wait on
                        await anyio.sleep(0.01)
            await producer.signal(waiting.id, "go", "now")
            assert await waiting.result(timeout=PATIENCE) == "now"
            await endless.cancel()
            with pytest.raises(WorkFailed, match="cancelled"):
                await endless.result(timeout=PATIENCE)
            assert (await producer.cancel_all()).tasks == [asking.id]


@pytest.mark.anyio
async def test_async_caller_that_gives_up_leaves_no_thread(folder):
    async with AsyncProducer(folder / "agent.db") as producer:
        work = await producer.emit("greet")
        with pytest.raises(TimeoutError, match="it goes on while a daemon runs: craftcore status"):
            await work.result(timeout=0.05)
        with anyio.move_on_after(0.05) as scope:
            await work.result()
        assert scope.cancelled_caught
        await anyio.to_thread.run_sync(
            until, lambda: "craftcore-results" not in {thread.name for thread in threading.enumerate()}
        )


@pytest.mark.anyio
async def test_async_producer_refuses_calls_outside_its_block(folder):
    producer = AsyncProducer(folder / "agent.db")
    with pytest.raises(InvalidInput, match="async with AsyncProducer"):
        await producer.emit("greet")


STREAMS = """
@app.workflow("streams")
async def streams(ctx: TaskContext) -> None:
    for number in range(3):
        await ctx.stream("answer").write(f"{number} ")
        await ctx.wait_for("go")
"""


def test_stream_is_followed_from_another_process(folder):
    (folder / "app.py").write_text(APP + TASKS + STREAMS)
    with running_daemon(folder), Producer(folder / "agent.db") as producer:
        work = producer.emit("streams")
        texts = []
        for chunk in work.stream("answer"):
            texts.append((chunk.number, chunk.text))
            until(lambda: producer.tasks(status="WAITING"), "the wait")
            producer.signal(work.id, "go")

        assert texts == [(1, "0 "), (2, "1 "), (3, "2 ")]
        assert [chunk.number for chunk in producer.handle(work.id).stream("answer", after=2)] == [3]
        with pytest.raises(NotFound):
            next(producer.handle("01a21e5f-0000-7007-8d6f-e64bc9e9c616").stream("answer"))


def test_stream_is_followed_from_another_process_with_an_event_loop(folder):
    (folder / "app.py").write_text(APP + TASKS + STREAMS)

    async def follow() -> list[int]:
        numbers = []
        async with AsyncProducer(folder / "agent.db") as producer:
            work = await producer.emit("streams")
            async for chunk in work.stream("answer"):
                numbers.append(chunk.number)
                async for update in work.events():
                    if update.status == "WAITING":
                        break
                await producer.signal(work.id, "go")
        return numbers

    with running_daemon(folder):
        assert anyio.run(follow) == [1, 2, 3]
