"""The parsing of large responses in a thread: the event loop continues, and a cancellation keeps the result."""

from __future__ import annotations

import threading

import anyio
import pytest

from craftcore.actions.http.exchange import Answer
from craftcore.actions.http.response import JSON_MAX_BYTES, SMALL_BYTES, read_in_thread, result
from craftcore.actions.redaction import Scrubber

pytestmark = pytest.mark.anyio


def make_answer(body: bytes, *headers: tuple[str, str]) -> Answer:
    return Answer(status=200, headers=headers, body=body, body_bytes=len(body), body_sha256="", cut=None)


@pytest.mark.parametrize(
    ("answer", "elsewhere"),
    [
        (make_answer(b"." * SMALL_BYTES), False),
        (make_answer(b"." * (SMALL_BYTES + 1)), True),
        (make_answer(b"", ("x-long", "." * SMALL_BYTES)), True),
    ],
)
async def test_response_is_parsed_in_a_thread_only_when_large(answer, elsewhere):
    assert (await read_in_thread(answer, threading.get_ident) != threading.get_ident()) is elsewhere


async def test_event_loop_runs_while_a_large_response_is_parsed():
    """The parser waits for an event that the loop sets."""
    done = threading.Event()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_set, done)
        assert await read_in_thread(make_answer(b"." * 10_000), lambda: done.wait(30))


async def test_cancellation_during_the_parse_keeps_the_result():
    read = []
    with anyio.CancelScope() as scope:
        scope.cancel()
        read.append(await read_in_thread(make_answer(b"." * 10_000), lambda: "it happened"))

    assert (read, scope.cancel_called) == (["it happened"], True)


async def test_parse_error_in_the_thread_is_raised():
    with pytest.raises(ZeroDivisionError):
        await read_in_thread(make_answer(b"." * 10_000), lambda: 1 // 0)


@pytest.mark.parametrize(("size", "reference"), [(JSON_MAX_BYTES, "of-the-body"), (JSON_MAX_BYTES + 1, "of-the-head")])
async def test_provider_reference_is_not_read_from_a_body_over_the_json_limit(size, reference):
    body = b'{"id": "of-the-body"}'.ljust(size)
    parsed = result(make_answer(body, ("request-id", "of-the-head")), keep=10, url="http://here", scrubber=Scrubber([]))

    assert parsed["provider_ref"] == reference


async def _set(done: threading.Event) -> None:
    done.set()
