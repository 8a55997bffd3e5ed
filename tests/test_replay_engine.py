"""The replay of records from any process: it calls no handler and changes nothing."""

from __future__ import annotations

import json
import os
import random
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import anyio
import pytest

from craftcore import App, ErrorCode, Fail, NotFound, NotReplayable, ReplayEngine, ReplayHashMismatch, RetryPolicy
from craftcore.config import Config, TriggerSettings
from craftcore.errors import DatabaseInvalid, InvalidInput
from craftcore.executions.document.export import document_of
from craftcore.executions.document.load import record_of
from craftcore.executions.record import RecordState
from craftcore.executions.record_store import STANDING, RecordStore
from craftcore.serialization.canonical import canonicalize
from craftcore.serialization.encode import encode
from craftcore.storage.repeated_reads import RepeatedReads
from craftcore.triggers.model import TriggerSpec
from craftcore.triggers.settlement import Released, Succeeded
from tests.support.fakes import NEW_YEAR, VirtualClock, VirtualCore
from tests.support.record_steps import TIMEOUT, checkpoint, fingerprint, invalidate, look, record_attempt, spoil, strip

OF_RECORD = "execution_seq = (SELECT seq FROM executions WHERE id = :id)"
LARGE = 3 << 20


# Records of every kind


def any_value(chance: random.Random, levels: int = 4) -> Any:
    """Return a random JSON value, often a difficult one."""
    match chance.randrange(12 if levels else 9):
        case 0:
            return None
        case 1:
            return chance.random() < 0.5
        case 2:
            return chance.getrandbits(chance.choice([1, 31, 53, 63, 64, 65, 400])) * chance.choice([1, -1])
        case 3:
            return chance.choice([0.0, -0.0, 1.0, 1e22, 1e-7, 5e-324, 1.7976931348623157e308, 0.1 + 0.2])
        case 4:
            return chance.uniform(-1, 1) * 10 ** chance.randrange(-300, 300)
        case 5 | 6 | 7 | 8:
            return any_text(chance)
        case 9 | 10:
            return {any_text(chance): any_value(chance, levels - 1) for _ in range(chance.randrange(6))}
        case _:
            return [any_value(chance, levels - 1) for _ in range(chance.randrange(6))]


def any_text(chance: random.Random) -> str:
    ranges = [(0, 0x7F), (0x20, 0x7E), (0xA0, 0x24F), (0x600, 0x6FF), (0xE000, 0xFFFF), (0x1F300, 0x1FAFF)]
    low, high = chance.choice(ranges)
    return "".join(chr(chance.randint(low, high)) for _ in range(chance.randrange(20)))


@dataclass(frozen=True)
class EngineRun:
    """A database on which an engine ran many triggers, with their payloads, their expected results and the calls."""

    core: VirtualCore
    payloads: dict[str, dict[str, Any]]
    results: dict[str, Any]
    calls: list[str]


@pytest.fixture(scope="module", params=[100, pytest.param(1_000, marks=pytest.mark.campaign)])
def engine_run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineRun]:
    count: int = request.param
    path = tmp_path_factory.mktemp("engine_run") / "agent.db"
    chance = random.Random(6)
    payloads: dict[str, dict[str, Any]] = {}
    results: dict[str, Any] = {}
    calls: list[str] = []
    for number in range(count):
        large = "é😀x" * (LARGE // 19) if number in (10, 11) else ""
        payloads[f"t{number}"] = {
            "id": f"t{number}",
            "body": [any_value(chance), large if number == 11 else ""],
        }
        results[f"t{number}"] = {"large": large} if large else any_value(chance)

    app = App()

    @app.workflow("answer", retry=RetryPolicy(max_attempts=1))
    async def answer(id: str, body: Any) -> Any:
        calls.append(id)
        if int(id[1:]) % 7 == 3:
            raise Fail(ErrorCode.AGENT_ERROR, "it broke", value=results[id])
        return results[id]

    async def run() -> None:
        async with app.running(path, config=Config(triggers=TriggerSettings(payload_max_bytes=16 << 20))):
            specs = [TriggerSpec(workflow="answer", payload=payload, id=id) for id, payload in payloads.items()]
            await app.emit_many(specs)
            while unsettled(core, count):  # noqa: ASYNC110 - a table has no event to wait on
                await anyio.sleep(0.02)

    core = VirtualCore(path, VirtualClock(), database=RepeatedReads)
    anyio.run(run)
    yield EngineRun(core, payloads, results, calls)
    core.close()


def unsettled(core: VirtualCore, count: int) -> int:
    ended: int = core.rows("SELECT count(*) AS ended FROM executions WHERE ended_at IS NOT NULL")[0]["ended"]
    return count - ended


def test_records_are_replayed_to_the_byte_without_effects(engine_run):
    checkpoint(engine_run.core)
    before, called = fingerprint(engine_run.core), list(engine_run.calls)
    assert len(called) == len(set(called)) == len(engine_run.payloads)
    rows = engine_run.core.rows(
        """
        SELECT executions.id, trigger_id, coalesce(nullif(response_json, ''), body) AS response
          FROM executions
          LEFT JOIN blobs ON execution_seq = executions.seq AND part = 'response'
        """
    )
    recorded = {row["id"]: row for row in rows}
    assert len(recorded) == len(engine_run.payloads)
    assert sum(len(row["response"]) > LARGE for row in rows) == 2

    with ReplayEngine(engine_run.core) as replays:
        for entry in replays.replay_all(recorded):
            result, row = entry.result, recorded[entry.execution_id]
            assert result is not None, entry
            assert result.response_json == row["response"]
            expected = encode(engine_run.results[row["trigger_id"]], "result")
            if result.status == "success":
                assert canonicalize(result.payload) == expected
                rebuilt = {"metadata": result.metadata, "payload": result.payload, "status": result.status}
            else:
                assert result.error is not None
                assert canonicalize(result.error["details"]["value"]) == expected
                rebuilt = {"error": result.error, "metadata": result.metadata, "status": result.status}
            assert canonicalize(rebuilt) == row["response"]
            assert (result.original_execution_id, result.warnings) == (row["id"], [])

    assert engine_run.calls == called
    assert fingerprint(engine_run.core) == before
    checkpoint(engine_run.core)
    assert fingerprint(engine_run.core) == before


def test_replay_belongs_to_its_envelope_only(engine_run):
    with ReplayEngine(engine_run.core) as replays:
        for number in [10, 11, *range(50, 80)]:
            envelope = look(engine_run.core, f"exec-t{number}.1").envelope
            assert envelope is not None
            assert envelope["payload"] == engine_run.payloads[f"t{number}"]
            shuffled = dict(reversed(envelope.items()))
            assert replays.replay(f"exec-t{number}.1", shuffled).from_replay
            with pytest.raises(ReplayHashMismatch):
                replays.replay(f"exec-t{number + 1}.1", envelope)


def test_replay_survives_a_round_trip_through_its_document(engine_run):
    with engine_run.core.reading() as reader:
        for seq in range(1, len(engine_run.payloads) + 1):
            record = RecordStore().get_by_seq(reader, seq)
            assert record is not None
            document = json.dumps(document_of(record))
            assert record_of(json.loads(document)) == record


@pytest.mark.anyio
async def test_replay_beside_a_running_engine_calls_no_handler(tmp_path):
    app, calls = App(), []

    @app.workflow("greet")
    async def greet(name: str) -> str:
        calls.append(name)
        return f"Hello {name}"

    path = tmp_path / "agent.db"
    async with app.running(path):
        emitted = await app.emit("greet", {"name": "Ada"})
        core = VirtualCore(path, VirtualClock())
        while not core.rows("SELECT id FROM executions WHERE ended_at IS NOT NULL"):  # noqa: ASYNC110 - as above
            await anyio.sleep(0.01)
        with ReplayEngine(path) as replays:
            result = replays.replay(f"exec-{emitted.id}.1")
            assert replays.replay(f"exec-{emitted.id}.1", force=True) == result
        with pytest.raises(NotFound):
            replays.replay(f"exec-{emitted.id}.2")
    core.close()

    assert (result.payload, calls) == ("Hello Ada", ["Ada"])


# Files that are refused


def test_missing_file_is_refused_and_not_created(tmp_path):
    with pytest.raises(NotFound, match="no such database"):
        ReplayEngine(tmp_path / "nowhere.db")

    assert os.listdir(tmp_path) == []


def test_file_of_another_program_is_refused_and_unchanged(tmp_path):
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE foreign_rows (x)")
        other.commit()
    before = path.read_bytes()

    with pytest.raises(DatabaseInvalid, match="another program"):
        ReplayEngine(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("options", [{"cache": -1}, {"ttl": 0}, {"ttl": float("nan")}, {"ttl": timedelta(0)}], ids=repr)
def test_invalid_cache_size_is_refused(core, options):
    with pytest.raises(ValueError, match="ReplayEngine"):
        ReplayEngine(core, **options)


# Records that are refused


@pytest.mark.parametrize("cache", [0, 8])
@pytest.mark.parametrize("execution_id", ["exec-t.2", "exec-t", "t", "", "exec-\ud800", "é", "exec-t.1' OR 1=1 --"])
def test_unknown_id_is_not_found(core, execution_id, cache):
    record_attempt(core, id="t")

    with pytest.raises(NotFound, match="no execution has the id"):
        ReplayEngine(core, cache=cache).replay(execution_id)
    with pytest.raises(NotFound):
        ReplayEngine(core).is_replayable(execution_id)


def test_replayability_is_reported_with_the_reason(core):
    good, removed, open_ = (
        record_attempt(core, id="good"),
        record_attempt(core, id="gone"),
        record_attempt(core, None, id="open"),
    )
    invalidate(core, removed)
    replays = ReplayEngine(core)

    assert replays.is_replayable(good) == (True, None)
    assert replays.is_replayable(removed) == (False, "manually_invalidated")
    assert replays.is_replayable(open_) == (False, "execution_incomplete")


def test_bad_id_among_many_stops_no_other_replay(core):
    good = [record_attempt(core, Succeeded(result_json=str(n)), id=f"t{n}") for n in range(3)]
    bad = record_attempt(core, Released(reason="shutdown"), id="bad")

    entries = ReplayEngine(core).replay_all([good[0], bad, good[1], "exec-unknown.1", good[2], good[0]])

    assert [entry.execution_id for entry in entries] == [good[0], bad, good[1], "exec-unknown.1", good[2], good[0]]
    payloads = [entry.result and entry.result.payload for entry in entries]
    assert payloads == [0, None, 1, None, 2, 0]
    outcomes = [(entry.code, entry.reason) for entry in entries]
    assert outcomes[1] == ("NOT_REPLAYABLE", "execution_incomplete")
    assert outcomes[3] == ("NOT_FOUND", None)
    assert [outcomes[place] for place in (0, 2, 4, 5)] == [(None, None)] * 4
    forced = ReplayEngine(core).replay_all([bad], force=True)
    assert forced[0].result is not None
    assert forced[0].result.warnings


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE executions SET response_json = replace(response_json, 'Ada', 'Eve') WHERE id = :id",
        "UPDATE executions SET response_json = 'gone' WHERE id = :id",
        "UPDATE executions SET response_json = CAST(X'7bff7d' AS TEXT) WHERE id = :id",
        "UPDATE executions SET workflow = CAST(X'ff' AS TEXT) WHERE id = :id",
        "UPDATE executions SET created_at = created_at + 1 WHERE id = :id",
        "UPDATE executions SET replayable_reason = NULL, error_code = 'X' WHERE id = :id",
        "UPDATE executions SET envelope_json = '{}' WHERE id = :id",
        f"UPDATE event_rows SET payload_json = '{{}}' WHERE seq = 2 AND {OF_RECORD}",
        f"DELETE FROM event_rows WHERE seq = 3 AND {OF_RECORD}",
    ],
)
def test_damaged_record_is_refused_and_the_others_are_replayed(core, damage):
    bad, good = record_attempt(core, id="bad"), record_attempt(core, id="good")
    spoil(core, damage, id=bad)
    replays = ReplayEngine(core)

    refused, fine = replays.replay_all([bad, good])

    assert (refused.code, refused.reason) == ("NOT_REPLAYABLE", "record_corrupted")
    assert fine.result is not None
    assert replays.is_replayable(bad) == (False, "record_corrupted")


def test_invalidation_survives_a_restart(tmp_path):
    core = VirtualCore(tmp_path / "agent.db", VirtualClock())
    execution_id = record_attempt(core)
    invalidate(core, execution_id)
    core.close()

    with ReplayEngine(tmp_path / "agent.db") as replays, pytest.raises(NotReplayable, match="names another customer"):
        replays.replay(execution_id)


# The cache


def test_second_replay_is_the_same_object_only_with_a_cache(core):
    execution_id = record_attempt(core)
    cached, plain = ReplayEngine(core, cache=10), ReplayEngine(core)

    assert cached.replay(execution_id) is cached.replay(execution_id)
    assert plain.replay(execution_id) is not plain.replay(execution_id)
    assert plain.replay(execution_id) == cached.replay(execution_id)


def test_invalidation_takes_effect_at_once(core):
    execution_id, other = record_attempt(core, id="a"), record_attempt(core, id="b")
    replays = ReplayEngine(core, cache=10)
    kept = replays.replay(execution_id), replays.replay(other)

    invalidate(core, execution_id)

    with pytest.raises(NotReplayable, match="manually_invalidated"):
        replays.replay(execution_id)
    assert replays.replay(execution_id, force=True).warnings
    assert replays.replay(other) is kept[1]


def test_record_removed_by_retention_is_not_cached(core):
    execution_id, removed = record_attempt(core, id="a"), record_attempt(core, id="b")
    replays = ReplayEngine(core, cache=10)
    replays.replay(execution_id)
    replays.replay(removed)

    strip(core, execution_id)
    spoil(core, f"DELETE FROM event_rows WHERE {OF_RECORD}", id=removed)
    spoil(core, "DELETE FROM executions WHERE id = :id", id=removed)

    with pytest.raises(NotReplayable, match="body_stripped"):
        replays.replay(execution_id)
    with pytest.raises(NotFound):
        replays.replay(removed)


def test_cached_replay_is_read_again_after_its_time(core, clock):
    execution_id = record_attempt(core)
    replays = ReplayEngine(core, cache=10, ttl=timedelta(minutes=1))
    first = replays.replay(execution_id)

    clock.advance(seconds=59)
    clock.set_back(seconds=7200)
    assert replays.replay(execution_id) is first
    clock.advance(seconds=1)
    assert replays.replay(execution_id) is not first


def test_full_cache_evicts_the_least_recently_used_replay(core):
    a, b, c = (record_attempt(core, id=name) for name in "abc")
    replays = ReplayEngine(core, cache=2)
    kept = {execution_id: replays.replay(execution_id) for execution_id in (a, b)}
    replays.replay(a)

    replays.replay(c)

    assert replays.replay(a) is kept[a]
    assert replays.replay(b) is not kept[b]


def test_cached_replay_belongs_to_its_envelope(core):
    execution_id = record_attempt(core, payload={"n": 1})
    envelope = look(core, execution_id).envelope
    assert envelope is not None
    replays = ReplayEngine(core, cache=10)
    kept = replays.replay(execution_id)

    assert replays.replay(execution_id, envelope) is kept
    with pytest.raises(ReplayHashMismatch):
        replays.replay(execution_id, {**envelope, "payload": {"n": 2}})
    with pytest.raises(InvalidInput):
        replays.replay(execution_id, {"payload": {1, 2}})
    assert replays.replay(execution_id) is kept


def test_forced_replay_and_refused_replay_are_not_cached(core):
    open_ = record_attempt(core, None)
    replays = ReplayEngine(core, cache=10)

    assert replays.replay(open_, force=True) is not replays.replay(open_, force=True)
    for _ in range(2):
        with pytest.raises(NotReplayable):
            replays.replay(open_)


def test_closed_engine_has_an_empty_cache(core):
    execution_id = record_attempt(core, TIMEOUT)
    with ReplayEngine(core, cache=10) as replays:
        kept = replays.replay(execution_id)

    assert replays.replay(execution_id) == kept
    assert replays.replay(execution_id) is not kept


def test_threads_share_an_engine(core):
    ids = [record_attempt(core, Succeeded(result_json=str(n)), id=f"t{n}") for n in range(20)]
    replays = ReplayEngine(core, cache=5)

    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(replays.replay, ids * 10))

    assert [result.payload for result in results] == list(range(20)) * 10


def test_state_of_a_record_is_looked_up_by_index(core):
    execution_id = record_attempt(core)
    with core.reading() as reader:
        plan = [row[3] for row in reader.fetch_tuples(f"EXPLAIN QUERY PLAN {STANDING}", (execution_id,))]
        assert RecordStore().get_state(reader, execution_id) == RecordState(None, None)
    invalidate(core, execution_id)
    strip(core, execution_id)
    with core.reading() as reader:
        assert RecordStore().get_state(reader, execution_id) == RecordState(NEW_YEAR, 1)

    assert not [line for line in plan if line.startswith(("SCAN executions", "SCAN audit_log"))], plan
    assert any("executions_id" in line for line in plan)
    assert any("audit_log_subject" in line for line in plan)
