"""The commit queue of the writer: order, single delivery, and answers to all waiting callers."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from craftcore.errors import StorageError, WriterDied
from craftcore.storage.group_commit import WorkItem
from craftcore.storage.writer import BATCH_LIMIT, CommitQueue
from tests.support.processes import PATIENCE

PATH = Path("agent.db")


def build_item(*, is_separate: bool = False) -> WorkItem:
    return WorkItem(lambda tx: None, (), None, is_separate=is_separate)


def wait_for_waiter(queue: CommitQueue) -> None:
    """Block until a thread waits for an item."""
    deadline = time.monotonic() + PATIENCE
    while not queue._is_waiting:
        assert time.monotonic() < deadline
        os.sched_yield()


def test_take_returns_items_in_order():
    queue, items = CommitQueue(PATH), [build_item() for _ in range(3)]
    for item in items:
        queue.put(item)

    assert queue.take(None) == items
    assert queue.take(0.0) == []


def test_take_returns_at_most_a_batch_and_a_separate_item_alone():
    queue, single = CommitQueue(PATH), build_item(is_separate=True)
    for item in [*(build_item() for _ in range(BATCH_LIMIT + 1)), single]:
        queue.put(item)

    taken = [queue.take(None) or [] for _ in range(3)]

    assert [len(batch) for batch in taken] == [BATCH_LIMIT, 1, 1]
    assert taken[2] == [single]


@pytest.mark.parametrize("seconds", [None, PATIENCE])
def test_waiting_take_returns_the_item_that_is_put(seconds):
    queue, item = CommitQueue(PATH), build_item()
    with ThreadPoolExecutor(1) as thread:
        taken = thread.submit(queue.take, seconds)
        wait_for_waiter(queue)
        queue.put(item)

        assert taken.result(PATIENCE) == [item]


def test_waiting_take_returns_none_when_the_queue_is_closed():
    queue = CommitQueue(PATH)
    with ThreadPoolExecutor(1) as thread:
        taken = thread.submit(queue.take, None)
        wait_for_waiter(queue)
        queue.close()

        assert taken.result(PATIENCE) is None


def test_take_continues_to_wait_after_its_item_is_withdrawn():
    """An empty list would mean that no item arrived and that there is time for a checkpoint."""
    queue, first, second = CommitQueue(PATH), build_item(), build_item()
    with ThreadPoolExecutor(1) as thread:
        taken = thread.submit(queue.take, None)
        wait_for_waiter(queue)
        with queue._lock:  # the waiting thread cannot take the item before it is withdrawn
            queue._pending.append(first)
            queue._ring()
            queue._pending.remove(first)
        wait_for_waiter(queue)
        queue.put(second)

        assert taken.result(PATIENCE) == [second]


def test_ring_at_the_end_of_a_wait_counts_as_a_ring():
    queue, item = CommitQueue(PATH), build_item()
    queue._is_waiting = True
    queue.put(item)

    assert queue._wait_for_ring(0.0)
    assert not queue._bell.acquire(blocking=False)
    assert queue.take(0.0) == [item]
    assert queue.take(0.0) == []


def test_item_put_from_several_threads_is_taken_exactly_once():
    queue = CommitQueue(PATH)
    items = [build_item() for _ in range(4_000)]
    taken: list[WorkItem] = []

    def take_all() -> None:
        while (batch := queue.take(0.0001)) is not None:
            taken.extend(batch)

    def put_all(part: list[WorkItem]) -> None:
        for item in part:
            queue.put(item)

    with ThreadPoolExecutor(5) as threads:
        taker = threads.submit(take_all)
        putters = [threads.submit(put_all, items[n::4]) for n in range(4)]
        for putter in putters:
            putter.result(PATIENCE)
        queue.close()
        taker.result(PATIENCE)

    assert sorted(map(id, taken)) == sorted(map(id, items))


def test_closed_queue_refuses_items_and_still_returns_waiting_items():
    queue, item = CommitQueue(PATH), build_item()
    queue.put(item)
    queue.close()

    with pytest.raises(StorageError, match="closed"):
        queue.put(build_item())
    assert queue.take(None) == [item]
    assert queue.take(None) is None


def test_failed_queue_refuses_items_and_answers_waiting_items():
    queue, item, error = CommitQueue(PATH), build_item(), StorageError("the disk")
    queue.put(item)

    assert queue.fail(error) == [item]
    assert "nothing was written: the disk" in str(item.error)
    with pytest.raises(StorageError, match="the disk"):
        queue.put(build_item())


@pytest.mark.parametrize("kind", [WriterDied, StorageError])
def test_waiting_item_is_refused_with_the_kind_of_the_writer_error(kind):
    """The exit code of a daemon depends on the kind: 70 for an error of craftcore, 74 for one of the disk."""
    queue, item = CommitQueue(PATH), build_item()
    queue.put(item)

    queue.fail(kind("it is over"))

    assert type(item.error) is kind
    assert str(item.error) == "nothing was written: it is over"
