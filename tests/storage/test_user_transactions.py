"""User transactions: the rows of the user and the record of craftcore in one commit of their own."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import apsw
import pytest

from craftcore.clock import SystemClock
from craftcore.errors import CannotCreate, InvalidInput, OutcomeUnknown, RowInvalid, StorageError, StorageFull
from craftcore.storage.database import Database
from craftcore.storage.facts import get_fact
from craftcore.storage.transaction import Reader, Transaction
from craftcore.storage.writer import Writer
from craftcore.testing.faulty_disk import FaultyDisk
from tests.storage.test_contention import HOLDER, child, send_line
from tests.support.batches import Answers, Gate, commit_together, held, wait_for_calls
from tests.support.processes import PATIENCE
from tests.support.user_table import a_database, ask, everything, notes, record, records, write, write_then
from tests.support.warm_parent import start

pytestmark = pytest.mark.anyio


@pytest.fixture
def database(tmp_path, clock) -> Database:
    return a_database(tmp_path, clock)


@pytest.fixture
def disk() -> Iterator[FaultyDisk]:
    with FaultyDisk() as disk:
        yield disk


# A single commit


async def test_user_rows_and_their_record_are_a_single_commit(database):
    async with Writer(database) as writer:
        answer = await writer.commit_user_sql(write, (2,), record)
        on_disk = notes(database), records(database)
        commits = writer.group_commit.commits

    assert answer == "recorded 2"
    assert on_disk == ([1, 2], [2])
    assert commits == 1


async def test_unwritable_record_rolls_back_the_user_rows(database):
    def lose(tx: Transaction, id: int) -> None:
        record(tx, id)
        raise LookupError("the lease is lost")

    before = everything(database)
    async with Writer(database) as writer:
        with pytest.raises(LookupError, match="the lease is lost"):
            await writer.commit_user_sql(write, (2,), lose)

        assert everything(database) == before
        assert await writer.commit_user_sql(write, (2,), record) == "recorded 2"


async def test_error_of_user_sql_rolls_back_its_rows_and_records_nothing(database):
    recorded: list[Any] = []

    def fail(tx: Transaction) -> None:
        write(tx, 2)
        tx.run("CREATE TABLE more (x)")
        raise LookupError("no such customer")

    before = everything(database)
    async with Writer(database) as writer:
        with pytest.raises(LookupError, match="no such customer"):
            await writer.commit_user_sql(fail, (), lambda tx, result: recorded.append(result))

        assert everything(database) == before
    assert recorded == []


async def test_user_function_that_raises_system_exit_ends_only_its_transaction(database):
    def leave(tx: Transaction) -> None:
        write(tx, 2)
        raise SystemExit(3)

    async with Writer(database) as writer:
        with pytest.raises(SystemExit):
            await writer.commit_user_sql(leave, (), record)
        await writer.commit_user_sql(write, (3,), record)

    assert notes(database) == [1, 3]


KILLED = """
import sys
import anyio
from craftcore.clock import SystemClock
from craftcore.failpoints import Failpoint, arm, kill_process
from craftcore.storage.database import Database
from craftcore.storage.facts import set_fact
from craftcore.storage.user_sql import guard
from craftcore.storage.writer import Writer

guard.APART_SECONDS = 600  # on the slowest machine

async def main():
    async with Writer(Database(sys.argv[1], SystemClock())) as writer:
        arm(Failpoint(sys.argv[2]), kill_process)
        await writer.commit_user_sql(
            lambda tx: tx.run("INSERT INTO notes (id) VALUES (2)"), (), lambda tx, _: set_fact(tx, "step 2", "recorded")
        )

anyio.run(main)
"""


@pytest.mark.parametrize(("point", "there"), [("writer.flushing", []), ("writer.flushed", [2])])
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_kill_around_the_flush_leaves_both_or_neither(database, point, there):
    with start(["-c", KILLED, database.path, point]) as process:
        assert process.wait(PATIENCE) == -signal.SIGKILL

    assert (notes(database), records(database)) == ([1, *there], there)


# Order among other transactions


async def test_user_transaction_runs_alone_between_its_neighbours(database):
    seen: list[tuple[str, int, bool]] = []
    commits: Callable[[], int]

    def note(tx: Reader, name: str) -> str:
        seen.append((name, commits(), get_fact(tx, "step 1") is not None))
        return name

    async with Writer(database) as writer:
        commits = lambda: writer.group_commit.commits  # noqa: E731
        await commit_together(
            writer,
            [
                (writer.commit, note, "a"),
                (writer.commit, record, 1),
                (writer.commit_user_sql, note, ("b",), note),
                (writer.commit_user_sql, note, ("c",), note),
                (writer.commit, note, "d"),
                (writer.commit, note, "e"),
            ],
        )
        end = writer.group_commit.commits

    assert seen == [
        ("a", 1, False),  # the first commit is that of the blocking work
        *[("b", 2, True)] * 2,
        *[("c", 3, True)] * 2,
        ("d", 4, True),
        ("e", 4, True),
    ]
    assert end == 5


async def test_neighbours_of_a_failing_user_transaction_are_committed(database):
    async with Writer(database) as writer:
        answers = await commit_together(
            writer,
            [
                (writer.commit, record, 2),
                (writer.commit_user_sql, write_then("DROP TABLE facts"), (3,), record),
                (writer.commit, record, 4),
                (writer.commit_user_sql, write_then("INSERT OR ROLLBACK INTO notes (id) VALUES (1)"), (5,), record),
                (writer.commit_user_sql, write, (6,), record),
                (writer.commit, record, 7),
            ],
        )

    assert [type(answers[number]) for number in range(6)] == [str, InvalidInput, str, RowInvalid, str, str]
    assert notes(database) == [1, 6]
    assert records(database) == [2, 4, 6, 7]


async def test_caller_cancelled_before_the_user_transaction_withdraws_the_item(database):
    async with Writer(database) as writer:
        async with held(writer):
            async with anyio.create_task_group() as callers:
                callers.start_soon(writer.commit_user_sql, write, (2,), record)
                await wait_for_calls(writer, 1)
                callers.cancel_scope.cancel()
        await writer.commit_user_sql(write, (3,), record)

    assert (notes(database), records(database)) == ([1, 3], [3])


async def test_caller_cancelled_during_the_user_transaction_waits_for_its_end(database):
    gate = Gate()
    outcomes: list[str] = []

    def slow_write(tx: Transaction) -> int:
        gate.pass_through(tx)
        return write(tx, 2)

    async def caller() -> None:
        try:
            await writer.commit_user_sql(slow_write, (), record)
            outcomes.append("answered")
        finally:
            outcomes.append("unwound")

    async with Writer(database) as writer:
        async with anyio.create_task_group() as callers:
            callers.start_soon(caller)
            await gate.is_held()
            callers.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                for _ in range(10):
                    await anyio.lowlevel.checkpoint()
                early = list(outcomes)
                gate.open.set()
        on_disk = notes(database), records(database)

    assert early == []
    assert outcomes == ["unwound"]
    assert on_disk == ([1, 2], [2])


async def test_user_transaction_waits_for_another_process_like_the_writer(database):
    async with Writer(database) as writer:
        with child(HOLDER, database) as holder:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(writer.commit_user_sql, write, (2,), record)
                with anyio.fail_after(PATIENCE):
                    while writer.lock_wait.since is None:  # noqa: ASYNC110 - it has no event to wait on
                        await anyio.sleep(0.001)
                commits_meanwhile = writer.group_commit.commits
                send_line(holder)
        waiting = writer.lock_wait.since

    assert (commits_meanwhile, waiting) == (0, None)
    assert notes(database) == [1, 2]


async def test_file_is_whole_without_its_wal_after_user_transactions(database):
    async with Writer(database) as writer:
        await writer.commit_user_sql(write, (2,), record)

    assert not database.path.with_name("agent.db-wal").exists()
    assert notes(database) == [1, 2]


# Disk errors


@pytest.mark.parametrize("size", [10, 1 << 20], ids=["at the commit", "in the middle of the function"])
async def test_user_transaction_on_a_full_disk_writes_nothing_and_the_writer_continues(disk, tmp_path, size):
    fatal: list[StorageError] = []
    database = a_database(tmp_path, SystemClock())

    def fill(tx: Transaction) -> int:
        for x in range(2, 42):
            tx.run("INSERT INTO notes (id, text) VALUES (:x, :text)", x=x, text=str(x) * (size // 2))
        return 2

    async with Writer(database, on_fatal=fatal.append) as writer:
        disk.fill(after_bytes=0 if size == 10 else 1 << 20)
        with pytest.raises(StorageFull, match="nothing was written"):
            await writer.commit_user_sql(fill, (), record)
        full = writer.group_commit.full
        disk.free()
        await writer.commit_user_sql(write, (3,), record)
        full_later = writer.group_commit.full

    assert (full, full_later) == (True, False)
    assert fatal == []
    assert (notes(database), records(database)) == ([1, 3], [3])


async def test_failed_flush_of_a_user_transaction_is_unknown_and_ends_the_writer(disk, tmp_path):
    fatal: list[StorageError] = []
    database = a_database(tmp_path, SystemClock())

    async with Writer(database, on_fatal=fatal.append) as writer:
        disk.fail_syncs()
        with pytest.raises(OutcomeUnknown):
            await writer.commit_user_sql(write, (2,), record)
        disk.free()
        for refused in (writer.commit(record, 3), writer.commit_user_sql(write, (3,), record)):
            with pytest.raises(StorageError):
                await refused

    assert [type(error) for error in fatal] == [OutcomeUnknown]
    assert 3 not in notes(database)


async def test_failed_user_function_needs_no_flush(disk, tmp_path):
    database = a_database(tmp_path, SystemClock())

    async with Writer(database) as writer:
        await writer.commit_user_sql(write, (2,), record)
        disk.fail_syncs()
        with pytest.raises(InvalidInput):
            await writer.commit_user_sql(write_then("DROP TABLE facts"), (3,), record)
        disk.free()
        await writer.commit_user_sql(write, (4,), record)

    assert notes(database) == [1, 2, 4]


async def test_missing_second_connection_fails_only_its_caller(tmp_path, monkeypatch):
    refuse = False

    class NoMoreFiles(FaultyDisk):
        def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
            if refuse:
                raise apsw.CantOpenError("too many open files")
            return super().xOpen(name, flags)

    with NoMoreFiles():
        database = a_database(tmp_path, SystemClock())
        async with Writer(database) as writer:
            refuse = True
            with pytest.raises(CannotCreate):
                await writer.commit_user_sql(write, (2,), record)
            await writer.commit(record, 3)
            refuse = False
            await writer.commit_user_sql(write, (4,), record)

    assert (notes(database), records(database)) == ([1, 4], [3, 4])


# Random mixtures


def note_each(tx: Transaction, items: list[int]) -> list[str | Exception]:
    """Record all items but every third, which gets an error."""
    return [LookupError(item) if item % 3 == 0 else record(tx, item) for item in items]


def note_or_raise(tx: Transaction, item: int) -> str:
    record(tx, item)
    raise LookupError(item)


class Round:
    """Random calls and their expected effects."""

    def __init__(self, chance: random.Random, first: int) -> None:
        self.calls: list[tuple[str, int]] = []
        kinds = ["commit", "raises", "each", "apart", "refused", "ends", "unrecorded", "duplicate", "cancelled"]
        for item in range(first, first + chance.randint(1, 12)):
            self.calls.append((chance.choice(kinds), item))

    def call(self, writer: Writer, kind: str, item: int) -> tuple[Any, ...]:
        match kind:
            case "commit":
                return (writer.commit, record, item)
            case "raises":
                return (writer.commit, note_or_raise, item)
            case "each":
                return (writer.commit_batched, note_each, item)
            case "refused":
                return (writer.commit_user_sql, write_then("DELETE FROM facts"), (item,), record)
            case "ends":
                return (
                    writer.commit_user_sql,
                    write_then("INSERT OR ROLLBACK INTO notes (id) VALUES (1)"),
                    (item,),
                    record,
                )
            case "unrecorded":
                return (writer.commit_user_sql, write, (item,), note_or_raise)
            case "duplicate":
                return (
                    writer.commit_user_sql,
                    write_then("INSERT INTO notes (text) VALUES ('first')"),
                    (item,),
                    record,
                )
            case _:
                return (writer.commit_user_sql, write, (item,), record)

    @property
    def in_notes(self) -> set[int]:
        return {item for kind, item in self.calls if kind == "apart"}

    @property
    def in_records(self) -> set[int]:
        return self.in_notes | {
            item for kind, item in self.calls if kind == "commit" or (kind == "each" and item % 3 != 0)
        }

    @property
    def unsure(self) -> set[int]:
        return {item for kind, item in self.calls if kind == "cancelled"}


async def test_random_mixtures_of_commits_match_their_answers(database):
    chance = random.Random(0)
    rounds: list[Round] = []
    answers = Answers()

    async def cancelled(call: tuple[Any, ...], patience: int) -> None:
        async with anyio.create_task_group() as caller:
            caller.start_soon(*call)
            for _ in range(patience):
                await anyio.lowlevel.checkpoint()
            caller.cancel_scope.cancel()

    async with Writer(database) as writer:
        for number in range(80):
            rounds.append(Round(chance, 1000 + 100 * number))
            async with anyio.create_task_group() as tasks:
                for kind, item in rounds[-1].calls:
                    call = rounds[-1].call(writer, kind, item)
                    if kind == "cancelled":
                        tasks.start_soon(cancelled, call, chance.randint(0, 30))
                    else:
                        tasks.start_soon(answers.of, item, *call)
                    for _ in range(chance.choice((0, 0, 1, 20))):
                        await anyio.lowlevel.checkpoint()
        failed = writer.failed

    unsure = set().union(*(round.unsure for round in rounds))
    found_notes, found_records = set(notes(database)) - {1}, set(records(database))
    assert found_notes & unsure == found_records & unsure
    assert found_notes - unsure == set().union(*(round.in_notes for round in rounds))
    assert found_records - unsure == set().union(*(round.in_records for round in rounds))
    assert {item for item, answer in answers.items() if answer == f"recorded {item}"} == found_records - unsure
    kinds = {"raises": LookupError, "refused": InvalidInput, "ends": RowInvalid, "duplicate": RowInvalid}
    error_types = {
        kind: {type(answers[item]) for round in rounds for k, item in round.calls if k == kind} for kind in kinds
    }
    assert error_types == {kind: {error} for kind, error in kinds.items()}
    assert failed is None
    assert ask(database, "PRAGMA integrity_check") == [("ok",)]
