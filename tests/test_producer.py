"""The synchronous producer in a process without an engine: each accepted trigger is on disk."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from craftcore import Producer, TriggerSpec
from craftcore.config import Config, StorageSettings, TriggerSettings
from craftcore.errors import (
    DatabaseInvalid,
    DuplicateTrigger,
    InvalidInput,
    NotFound,
    PayloadTooLarge,
    StateRefused,
    StorageBusy,
    StorageError,
    UnknownWorkflow,
)
from craftcore.storage.doorbell_client import doorbell_path
from tests.support.fakes import a_trigger
from tests.support.idle_database import a_task, at_rest
from tests.support.processes import PATIENCE
from tests.support.warm_parent import start

ONE_KEY = """
import sys
from craftcore.producer import Producer

print("ready", flush=True)
sys.stdin.readline()
with Producer(sys.argv[1]) as producer:
    emitted = producer.emit("greet", {"n": 1}, dedup_key="the-key")
print(emitted.id, emitted.created, flush=True)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


def rows(producer: Producer, sql: str) -> list[dict[str, object]]:
    with producer.backend.services.reading() as reader:
        return reader.fetch_all(sql)


def declare(producer: Producer, *workflows: str) -> None:
    """Declare workflows as a daemon does."""
    with producer.backend.services.transaction() as tx:
        for name in workflows:
            tx.run("INSERT INTO workflows (name, epoch) VALUES (:name, 1)", name=name)


def test_emitted_trigger_is_visible_to_the_next_process(path):
    with Producer(path) as producer:
        emitted = producer.emit("greet", {"name": "Ada"}, description="say hello")

    with Producer(path) as other:
        [row] = rows(other, "SELECT id, workflow, payload_json, description, status FROM triggers")
    assert row == {
        "id": emitted.id,
        "workflow": "greet",
        "payload_json": '{"name":"Ada"}',
        "description": "say hello",
        "status": "PENDING",
    }


def test_argument_of_emit_reaches_the_row(path):
    at = datetime(2030, 1, 1, tzinfo=UTC)
    with Producer(path) as producer:
        producer.emit(
            "greet",
            source="MEMORY",
            dedup_key="k",
            dedup_scope="ever",
            session_id="s",
            at=at,
            expires_at=at.timestamp() + 60,
            priority=7,
            description="d",
            supersedes="session",
            on_duplicate="error",
            max_attempts=3,
        )
        [row] = rows(producer, "SELECT * FROM triggers")

    assert (row["source"], row["dedup_key"], row["dedup_scope"], row["session_id"]) == ("MEMORY", "k", "ever", "s")
    assert (row["fire_at"], row["expires_at"]) == (at.timestamp(), at.timestamp() + 60)
    assert (row["priority"], row["description"], row["max_attempts"]) == (7, "d", 3)
    assert row["payload_json"] == "{}"


def test_missing_file_is_created_for_its_owner_only(tmp_path):
    path = tmp_path / "new" / "deep" / "agent.db"

    with Producer(path) as producer:
        producer.emit("greet")

    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_file_that_is_no_database_is_refused_and_unchanged(path):
    path.write_text("dear diary, " * 100)

    with pytest.raises(DatabaseInvalid):
        Producer(path)

    assert path.read_text() == "dear diary, " * 100


def test_closed_producer_opens_again_when_used(path):
    producer = Producer(path)
    producer.emit("greet")
    producer.close()
    producer.close()

    producer.emit("greet")

    assert len(rows(producer, "SELECT id FROM triggers")) == 2
    producer.close()


# Batches


def test_many_are_emitted_in_the_order_given(path):
    with Producer(path) as producer:
        emitted = producer.emit_many(a_trigger(payload={"n": n}) for n in range(100))

        stored = rows(producer, "SELECT id, payload_json FROM triggers ORDER BY seq")

    assert [row["id"] for row in stored] == [one.id for one in emitted]
    assert [json.loads(str(row["payload_json"]))["n"] for row in stored] == list(range(100))
    assert [one.id for one in emitted] == sorted(one.id for one in emitted)


@pytest.mark.parametrize(
    ("last", "refusal"),
    [
        (TriggerSpec(workflow="greet", payload={"a": float("nan")}), InvalidInput),
        (TriggerSpec(workflow="greet", dedup_key="taken", on_duplicate="error"), DuplicateTrigger),
        (TriggerSpec(workflow="great"), UnknownWorkflow),
    ],
    ids=["bad payload", "duplicate", "unknown workflow"],
)
def test_batch_is_accepted_completely_or_not_at_all(path, last, refusal):
    with Producer(path) as producer:
        declare(producer, "greet")
        producer.emit("greet", dedup_key="taken")

        with pytest.raises(refusal):
            producer.emit_many([a_trigger(), a_trigger(), last])

        assert len(rows(producer, "SELECT id FROM triggers")) == 1


def test_empty_batch_is_accepted(path):
    with Producer(path) as producer:
        assert producer.emit_many([]) == []


# Refusals


def test_unknown_workflow_can_be_named_before_the_first_daemon(path):
    with Producer(path) as producer:
        assert producer.emit("whatever").created


def test_undeclared_name_is_refused_with_the_closest_declared_name(path):
    with Producer(path) as producer:
        declare(producer, "greet", "water.plants")

        with pytest.raises(UnknownWorkflow, match="no workflow is named great; did you mean greet"):
            producer.emit("great")
        with pytest.raises(UnknownWorkflow, match=r"declared are greet, water\.plants"):
            producer.emit("xyzzy")

        assert producer.emit("greet").created
        assert producer.emit(None, source="MEMORY").created
        assert len(rows(producer, "SELECT id FROM triggers")) == 2


def test_configured_limits_hold_for_a_producer(path):
    config = Config(triggers=TriggerSettings(payload_max_bytes=1024))

    with Producer(path, config=config) as producer:
        with pytest.raises(PayloadTooLarge):
            producer.emit("greet", {"a": "x" * 1024})

        assert rows(producer, "SELECT id FROM triggers") == []


def test_permanent_lock_raises_busy_and_writes_nothing(path):
    config = Config(storage=StorageSettings(busy_timeout=0.05))
    with Producer(path) as holder, Producer(path, config=config) as producer:
        with holder.backend.services.transaction():
            with pytest.raises(StorageBusy, match="nothing was written"):
                producer.emit("greet")

        assert rows(producer, "SELECT id FROM triggers") == []
        assert producer.emit("greet").created


# The bell


def test_doorbell_rings_after_the_commit(path):
    with Producer(path) as producer, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bell:
        bell.bind(doorbell_path(path))
        bell.setblocking(False)
        emitted = producer.emit("greet")

        assert bell.recv(64) is not None
        assert [row["id"] for row in rows(producer, "SELECT id FROM triggers")] == [emitted.id]
        with pytest.raises(InvalidInput):
            producer.emit("not a name")
        with pytest.raises(BlockingIOError):
            bell.recv(64)


# Tasks


def test_task_is_signalled_from_another_process(path):
    task_id = a_task(path, "wait")

    with Producer(path) as producer:
        assert not producer.signal(task_id, "other", {"n": 1}, sent_by="ada"), "no task waits for the signal"
        assert producer.signal(task_id, "approved", [1, 2])
        mails = rows(producer, "SELECT event, payload_json, sent_by, status FROM mailbox ORDER BY seq")

    assert mails[0] == {"event": "other", "payload_json": '{"n":1}', "sent_by": "ada", "status": "UNREAD"}
    assert mails[1] == {"event": "approved", "payload_json": "[1,2]", "sent_by": None, "status": "READ"}
    assert run_to_end(path, task_id) == ("DONE", "[1,2]")


def test_question_is_answered_once_from_another_process(path):
    task_id = a_task(path, "ask")

    with Producer(path) as producer:
        [question] = rows(producer, "SELECT id FROM questions")
        with pytest.raises(InvalidInput, match="choose one of: send, hold"):
            producer.answer(str(question["id"]), "maybe", answered_by="ada")
        producer.answer(str(question["id"]), "send", note="why not", answered_by="ada")
        with pytest.raises(StateRefused, match='was answered by ada with "send"'):
            producer.answer(str(question["id"]), "hold", answered_by="grace")
        [stored] = rows(producer, "SELECT answer, note, answered_by FROM questions")

    assert stored == {"answer": "send", "note": "why not", "answered_by": "ada"}
    assert run_to_end(path, task_id) == ("DONE", '"send"')


def test_task_is_cancelled_from_another_process(path):
    task_id = a_task(path, "nap")

    with Producer(path) as producer:
        producer.cancel_task(task_id)
        with pytest.raises(StateRefused, match="CANCELLED"):
            producer.cancel_task(task_id)
        with pytest.raises(StateRefused, match="CANCELLED"):
            producer.signal(task_id, "approved")

    assert run_to_end(path, task_id) == ("CANCELLED", None)


def test_unknown_task_or_question_is_not_found(path):
    plain = a_task(path, "plain")

    with Producer(path) as producer:
        for unknown in (plain, "unknown"):
            with pytest.raises(NotFound):
                producer.signal(unknown, "approved")
            with pytest.raises(NotFound):
                producer.answer(unknown, "send", answered_by="ada")
            with pytest.raises(NotFound):
                producer.cancel_task(unknown)
        with pytest.raises(InvalidInput):
            producer.signal(plain, "no event")
        with pytest.raises(InvalidInput, match=r"payload\.a"):
            producer.signal(plain, "approved", {"a": object()})


def test_doorbell_rings_for_task_changes_and_not_for_refusals(path):
    wait, nap, ask = a_task(path, "wait"), a_task(path, "nap"), a_task(path, "ask")
    with Producer(path) as producer, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bell:
        bell.bind(doorbell_path(path))
        bell.setblocking(False)
        [question] = rows(producer, "SELECT id FROM questions")

        producer.signal(wait, "other")
        assert bell.recv(64) == b"*"
        producer.answer(str(question["id"]), "send", answered_by="ada")
        assert bell.recv(64) == b"*"
        producer.cancel_task(nap)
        assert bell.recv(64) == b"*"
        with pytest.raises(NotFound):
            producer.signal("unknown", "approved")
        with pytest.raises(BlockingIOError):
            bell.recv(64)
    assert run_to_end(path, ask) == ("DONE", '"send"')


def run_to_end(path, task_id):
    """Run an engine until it is idle, and return the status and the result of a task."""

    async def nothing(_):
        pass

    at_rest(path, nothing)
    with Producer(path) as producer:
        [row] = rows(producer, f"SELECT status, result_json FROM tasks WHERE id = '{task_id}'")
    return row["status"], row["result_json"]


# Concurrent producers


@pytest.mark.parametrize("threads", [8, pytest.param(50, marks=pytest.mark.acceptance)])
def test_threads_with_their_own_producers_emit_a_key_as_a_single_row(path, threads):
    def emit(_):
        with Producer(path) as producer:
            return producer.emit("greet", dedup_key="the-key")

    with ThreadPoolExecutor(threads) as pool:
        emitted = list(pool.map(emit, range(threads)))

    assert sum(one.created for one in emitted) == 1
    assert len({one.id for one in emitted}) == 1
    with Producer(path) as producer:
        assert len(rows(producer, "SELECT id FROM triggers")) == 1


def test_fifty_threads_can_share_a_producer(path):
    with Producer(path) as producer, ThreadPoolExecutor(50) as pool:
        emitted = list(pool.map(lambda n: producer.emit("greet", {"n": n}, dedup_key=f"k{n % 10}"), range(200)))

        stored = rows(producer, "SELECT id FROM triggers")

    assert sum(one.created for one in emitted) == len(stored) == 10


@pytest.mark.parametrize(
    ("racing", "exists"),
    [
        pytest.param(6, False, id="six and no file"),
        pytest.param(50, False, id="fifty and no file", marks=pytest.mark.acceptance),
        pytest.param(50, True, id="fifty and an existing file", marks=pytest.mark.acceptance),  # only the key is raced
    ],
)
def test_racing_processes_emit_a_key_as_a_single_row(path, racing, exists):
    if exists:
        Producer(path).close()
    pipe = subprocess.PIPE
    with contextlib.ExitStack() as stack:
        racers = [
            stack.enter_context(start(["-c", ONE_KEY, path], stdin=pipe, stdout=pipe, stderr=pipe))
            for _ in range(racing)
        ]
        for racer in racers:
            assert racer.stdout is not None
            assert racer.stdout.readline() == b"ready\n"
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write(b"go\n")
            racer.stdin.flush()
        outputs = [racer.communicate(timeout=PATIENCE) for racer in racers]

    assert [err for _, err in outputs if err] == []
    answers = [out.split() for out, _ in outputs]
    assert sorted(created for _, created in answers) == [b"False"] * (racing - 1) + [b"True"]
    assert len({trigger_id for trigger_id, _ in answers}) == 1
    with Producer(path) as producer:
        assert len(rows(producer, "SELECT id FROM triggers")) == 1


def test_storage_error_is_raised_as_an_own_error(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(StorageError):
        Producer(tmp_path / "file" / "agent.db")
