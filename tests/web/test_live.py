"""Live topics: rendered once for all listeners, sent after a change, and not read without a listener."""

from __future__ import annotations

import asyncio
import re
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine

import pytest

from craftcore.errors import InvalidInput, StateRefused
from craftcore.storage.database import Database
from craftcore.web.live.topics import LISTENERS_MAX, RETRY_SECONDS, Live, make_frame
from craftcore.web.live.watch import FileWatch
from tests.support.fakes import VirtualCore
from tests.support.trigger_steps import emit

PATIENCE = 30.0


class CountRenderer:
    """A renderer of the number of triggers for two topics; it counts its calls."""

    def __init__(self, core: VirtualCore) -> None:
        self._core = core
        self.rendered: Counter[tuple[str, str]] = Counter()
        self.threads: set[int] = set()
        self.broken = False

    def __call__(self, topic: str, role: str) -> str:
        self.rendered[topic, role] += 1
        self.threads.add(threading.get_ident())
        if self.broken:
            raise ValueError("a fault of the page")
        if topic == "fixed":
            return "<p>always\nthe same</p>"
        with self._core.reading() as reader:
            return f"<p>{role}: {reader.fetch_value('SELECT count(*) FROM triggers')}</p>"


@pytest.fixture
def fragments(core: VirtualCore) -> CountRenderer:
    return CountRenderer(core)


def run(core: VirtualCore, fragments: CountRenderer, work: Callable[[Live], Coroutine[None, None, None]]) -> None:
    async def main() -> None:
        watch = FileWatch(Database(core.database.path, core.clock, read_only=True))
        live = Live(watch, ("count", "fixed"), fragments)
        try:
            await asyncio.wait_for(work(live), PATIENCE)
        finally:
            await live.close()
        assert live.listeners == 0
        assert threads() == []

    asyncio.run(main())


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("craftcore-live")]


async def wait_until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - a counter has no event
        await asyncio.sleep(0.01)


async def next_event(stream: AsyncIterator[bytes]) -> str:
    """Return the next event that is not a comment."""
    async for text in stream:
        if not text.startswith(b": "):
            return text.decode()
    return ""


def test_listener_gets_the_current_fragment_first_and_another_after_a_commit(core, fragments):
    async def work(live: Live) -> None:
        stream = live.stream(["count"], "act")
        retry = re.fullmatch(r"retry: (\d+)\n\n", await next_event(stream))
        assert retry is not None
        assert RETRY_SECONDS[0] * 1000 <= int(retry[1]) <= RETRY_SECONDS[1] * 1000
        assert await next_event(stream) == "event: count\ndata: <p>act: 0</p>\n\n"

        emit(core)

        assert await next_event(stream) == "event: count\ndata: <p>act: 1</p>\n\n"

    run(core, fragments, work)


def test_topic_is_rendered_once_for_all_listeners_of_a_role(core, fragments):
    async def work(live: Live) -> None:
        streams = [live.stream(["count"], ("act", "look")[number % 2]) for number in range(20)]
        for stream in streams:
            await next_event(stream)
        first = {await next_event(stream) for stream in streams}
        assert first == {f"event: count\ndata: <p>{role}: 0</p>\n\n" for role in ("act", "look")}
        assert fragments.rendered == {("count", "act"): 1, ("count", "look"): 1}

        emit(core)

        assert len({await next_event(stream) for stream in streams}) == 2
        assert fragments.rendered == {("count", "act"): 2, ("count", "look"): 2}
        assert len(fragments.threads) == 1

    run(core, fragments, work)


def test_fragment_that_did_not_change_is_not_sent_again(core, fragments):
    async def work(live: Live) -> None:
        stream = live.stream(["count", "fixed"], "act")
        await next_event(stream)
        seen = await next_event(stream)
        while "fixed" not in seen:
            seen += await next_event(stream)
        assert "event: fixed\ndata: <p>always\ndata: the same</p>\n\n" in seen

        emit(core)

        assert (await next_event(stream)).startswith("event: count\n")
        await wait_until(lambda: fragments.rendered["fixed", "act"] >= 2)
        emit(core)
        assert await next_event(stream) == "event: count\ndata: <p>act: 2</p>\n\n"

    run(core, fragments, work)


def test_slow_reader_gets_the_newest_frame_only(core, fragments):
    async def work(live: Live) -> None:
        slow, quick = live.stream(["count"], "act"), live.stream(["count"], "act")
        for stream in (slow, quick):
            await next_event(stream)
        await next_event(quick)
        for number in (1, 2, 3):
            emit(core)
            assert f"act: {number}<" in await next_event(quick)

        assert await next_event(slow) == "event: count\ndata: <p>act: 3</p>\n\n"

    run(core, fragments, work)


def test_watch_ends_with_the_last_listener_and_begins_again_with_a_fresh_read(core, fragments):
    async def work(live: Live) -> None:
        stream = live.stream(["count"], "act")
        await next_event(stream)
        await next_event(stream)
        await stream.aclose()
        assert live.listeners == 0
        await wait_until(lambda: threads() == [])
        rendered = fragments.rendered["count", "act"]
        emit(core)
        await asyncio.sleep(0.6)
        assert fragments.rendered["count", "act"] == rendered

        stream = live.stream(["count"], "act")
        await next_event(stream)
        assert await next_event(stream) == "event: count\ndata: <p>act: 1</p>\n\n"

    run(core, fragments, work)


def test_frame_from_before_a_commit_is_not_sent_to_a_later_listener(core, fragments):
    """A person leaves the page, changes a row on another page, and returns."""

    async def work(live: Live) -> None:
        other, first = live.stream(["fixed"], "act"), live.stream(["count"], "act")
        for stream in (other, first):
            await next_event(stream)
            await next_event(stream)
        await first.aclose()
        emit(core)
        await wait_until(lambda: fragments.rendered["fixed", "act"] >= 2)

        again = live.stream(["count"], "act")
        await next_event(again)
        assert await next_event(again) == "event: count\ndata: <p>act: 1</p>\n\n"

    run(core, fragments, work)


def test_listeners_are_limited_and_an_ended_listener_frees_its_place(core, fragments):
    async def work(live: Live) -> None:
        streams = [live.stream(["fixed"], "act") for _ in range(LISTENERS_MAX)]
        for stream in streams:
            await next_event(stream)
        with pytest.raises(StateRefused):
            live.require_place(["fixed"])
        with pytest.raises(StateRefused):
            await next_event(live.stream(["fixed"], "act"))

        await streams[0].aclose()

        live.require_place(["fixed"])

    run(core, fragments, work)


@pytest.mark.parametrize("topics", [[], ["nothing"], ["count", "nothing"]])
def test_unknown_topic_is_refused(core, fragments, topics):
    async def work(live: Live) -> None:
        with pytest.raises(InvalidInput):
            live.require_place(topics)

    run(core, fragments, work)


def test_stream_ends_with_the_login_and_with_the_server(core, fragments):
    async def work(live: Live) -> None:
        allowed = [True]
        first, second = live.stream(["count"], "act", lambda: allowed[0]), live.stream(["count"], "look")
        for stream in (first, second):
            await next_event(stream)
            await next_event(stream)

        allowed[0] = False
        emit(core)
        assert await next_event(first) == ""
        assert live.listeners == 1

        await next_event(second)
        await live.close()
        assert await next_event(second) == ""

    run(core, fragments, work)


def test_fault_of_a_fragment_does_not_end_the_stream(core, fragments):
    async def work(live: Live) -> None:
        stream = live.stream(["count"], "act")
        await next_event(stream)
        fragments.broken = True
        await wait_until(lambda: bool(fragments.rendered))
        fragments.broken = False

        assert await next_event(stream) == "event: count\ndata: <p>act: 0</p>\n\n"

    run(core, fragments, work)


def test_frame_has_each_line_and_no_end_of_an_event():
    frame = make_frame("now", "<p>a\r\nevent: evil\n\ndata: x\u2028y</p>")

    lines = frame.text.decode().split("\n")
    assert lines[0] == "event: now"
    assert all(line.startswith("data: ") for line in lines[1:-2])
    assert lines[-2:] == ["", ""]
    assert b"\r" not in frame.text


def test_frame_of_an_empty_fragment_has_a_line_of_data():
    assert make_frame("coming", "").text == b"event: coming\ndata: \n\n"
