"""Batches of records are equal to records that are written one by one."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

from craftcore.errors import ErrorCode
from craftcore.executions.chain.seal import TEXT_HELD
from craftcore.executions.chain.verify import Verification
from craftcore.executions.event_store import EventStore
from craftcore.executions.recorder import AttemptInfo, Recorder, Routed
from craftcore.triggers.model import Claim
from craftcore.triggers.settlement import (
    Cancelled,
    Continued,
    Delivered,
    Failed,
    Obsolete,
    Outcome,
    Released,
    Succeeded,
    Suspended,
)
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.trigger_steps import claim_all, emit, start

ROUTES = (Routed("greet", "explicit workflow"), Routed("nap", "rule of the source"), None)
OUTCOMES: tuple[Outcome, ...] = (
    Succeeded(),
    Succeeded(result_json="7"),
    Succeeded(result_json='"long"', is_stored=False),
    Failed(code=ErrorCode.AGENT_TIMEOUT, message="late", retryable=True),
    Failed(code=ErrorCode.RATE_LIMIT, message="slow", retryable=True),
    Cancelled(),
    Continued(),
    Delivered(task_id="one"),
    Delivered(task_id="other"),
    Obsolete(reason="over"),
    Released(reason="shutdown"),
    Suspended(reason="waits", event={"wait": "sleep#1"}),
)


def attempts_of(core: VirtualCore, clock: VirtualClock) -> list[tuple[AttemptInfo, Outcome]]:
    """Start one trigger for each pair of a route and an outcome, some of them late, some with an entered turn."""
    pairs = list(product(ROUTES, OUTCOMES))
    for number in range(len(pairs)):
        emit(core, id=f"t{number:03}", payload={"n": number}, workflow=f"flow{number % 2}")
    clock.advance(seconds=300)
    for number in range(0, len(pairs), 2):
        emit(core, id=f"u{number:03}", payload={"n": number})
    claims = [start(core, claim) for claim in claim_all(core, limit=1000)]
    return [_attempt(number, claim, *pairs[number % len(pairs)]) for number, claim in enumerate(claims)]


def _attempt(number: int, claim: Claim, routed: Routed | None, outcome: Outcome) -> tuple[AttemptInfo, Outcome]:
    entered = f'{{"resume":"NEXT","turn":{number % 3}}}' if routed is not None and number % 4 == 0 else None
    return AttemptInfo(claim._replace(attempts=1 + number % 2), routed, entered=entered), outcome


def records_of(core: VirtualCore) -> list[dict[str, Any]]:
    return core.rows("SELECT * FROM executions ORDER BY seq")


def test_batch_of_records_equals_single_records(tmp_path: Path):
    clocks = [VirtualClock(), VirtualClock()]
    together, alone = (VirtualCore(tmp_path / f"{n}" / "agent.db", clock) for n, clock in enumerate(clocks))
    recorder = Recorder()
    batch, others = attempts_of(together, clocks[0]), attempts_of(alone, clocks[1])

    records = together.do(recorder.open_all, 1, [attempt for attempt, _ in batch])
    together.do(recorder.close_all, [(record, outcome) for record, (_, outcome) in zip(records, batch, strict=True)])
    single = [alone.do(recorder.open_all, 1, [attempt])[0] for attempt, _ in others]
    for record, (_, outcome) in zip(single, others, strict=True):
        alone.do(recorder.close_all, [(record, outcome)])

    assert len(records_of(together)) > 2 * len(OUTCOMES)
    assert len({row["first_events"] for row in records_of(together)}) > 5
    assert len({row["last_events"] for row in records_of(together)}) > 2 * len(OUTCOMES)
    assert records_of(together) == records_of(alone)
    for core in (together, alone):
        with core.reading() as reader:
            assert list(Verification(reader, core.clock.now()).faults()) == []
        core.close()


def test_long_streams_with_the_same_end_keep_their_own_hashes(core):
    """For the beginning of a long stream, only the hash is held in memory, and not the text."""
    recorder, store = Recorder(), EventStore()
    for _ in range(2):
        emit(core)
    claims = [start(core, claim) for claim in claim_all(core)]
    records = core.do(recorder.open_all, 1, [AttemptInfo(claim, ROUTES[0]) for claim in claims])
    for letter, record in zip("ab", records, strict=True):
        text = f'{{"text":"{letter * TEXT_HELD}"}}'
        core.do(store.add_all, [(record.seq, 3, "NOTE", 1.0, text), (record.seq, 4, "NOTE", 1.0, "{}")])

    core.do(recorder.close_all, [(record, Succeeded()) for record in records])

    one, other = records_of(core)
    assert one["last_events"] == other["last_events"]
    assert one["events_hash"] != other["events_hash"]
    with core.reading() as reader:
        assert list(Verification(reader, core.clock.now()).faults()) == []
