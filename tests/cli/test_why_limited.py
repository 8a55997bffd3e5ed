"""The reason why a trigger waits: limits of concurrency and rate, and a daemon started with `--paused`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import anyio
import apsw
import pytest

from craftcore import App, Rate, TriggerSource
from craftcore.daemon.lifespan import running
from craftcore.daemon.lock import DaemonLock
from craftcore.engine.engine_facts import read_engine_facts, write_engine_facts
from craftcore.triggers.limit_keys import LimitKey
from craftcore.triggers.limit_wait_store import LimitWaitStore
from craftcore.triggers.model import LANE
from tests.cli.conftest import NOON
from tests.support.engine_harness import settings
from tests.support.fakes import VirtualCore
from tests.support.log_capture import suppressed_logs
from tests.support.trigger_steps import claim_all, claim_one, emit, run_one, start


@pytest.fixture
def daemon(database: Path) -> Iterator[None]:
    with DaemonLock.acquire(database, pid=os.getpid(), host="here", now=NOON):
        yield


def an_app() -> App:
    app = App("limited")

    @app.workflow("one.at.a.time", concurrency=1, sources=["MESSAGE"])
    async def one() -> None: ...

    @app.workflow("two.a.minute", rate=Rate(2, per=60))
    async def two() -> None: ...

    @app.workflow("one.each", concurrency=1, rate=Rate(5, per=60), limit_by="customer", sources=["MEMORY"])
    async def each(customer: str) -> None: ...

    @app.workflow("greet")
    async def greet() -> None: ...

    return app


def write_start(core: VirtualCore, *, paused: bool = False) -> None:
    """Write the rows of a boot."""
    app, begin = (
        an_app(),
        "INSERT INTO epochs (epoch, boot_id, pid, host, version, started_at) VALUES (1,'b',1,'h','1',1)",
    )
    core.do(lambda tx: tx.run(begin))
    core.do(write_engine_facts, 1, app.workflows, app.by_source, paused=paused, places=16)


def why(cli, id: str) -> list[dict[str, str]]:
    reasons: list[dict[str, str]] = cli("--json", "trigger", "why", id).json["reasons"]
    return reasons


def run_query(core: VirtualCore, query: str) -> list[tuple[object, ...]]:
    """Run the query as a person pastes it into a shell."""
    connection = apsw.Connection(str(core.database.path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


@pytest.mark.parametrize("how", [{"workflow": "one.at.a.time"}, {"workflow": None, "source": TriggerSource.MESSAGE}])
def test_trigger_why_reports_the_concurrency_limit_of_a_workflow(cli, core, daemon, how):
    write_start(core)
    emit(core, workflow="one.at.a.time")
    start(core, claim_one(core))
    waits = emit(core, **how).id
    other = emit(core).id

    [reason] = why(cli, waits)

    assert (reason["code"], reason["text"]) == (
        "limit",
        "workflow one.at.a.time may run 1 at a time, and 1 is claimed",
    )
    assert run_query(core, reason["query"]) == [(1,)]
    assert [one["code"] for one in why(cli, other)] == ["its turn"]


def test_trigger_why_reports_the_rate_limit_of_a_workflow(cli, core, clock, database, daemon):
    write_start(core)
    for _ in range(2):
        emit(core, workflow="two.a.minute")
    for claim in claim_all(core):
        start(core, claim)
    record = """
        INSERT INTO executions (id, trigger_id, attempt, epoch, workflow, created_at, envelope_json, envelope_hash)
        SELECT 'exec-' || id, id, 1, 1, workflow, started_at, '{}', '' FROM triggers WHERE status = 'CLAIMED'
        """
    core.do(lambda tx: tx.run(record))
    waits = emit(core, workflow="two.a.minute").id

    [reason] = why(cli, waits)

    assert reason["text"] == "workflow two.a.minute may start 2 within 60 s: 2 have, and 0 are about to"
    assert run_query(core, reason["query"]) == [(2, 0)]
    clock.advance(seconds=61)
    assert [one["code"] for one in why(cli, waits)] == ["its turn"]


def test_paused_daemon_degrades_status_and_explains_waiting_triggers(cli, core, clock, daemon):
    write_start(core, paused=True)
    waits = emit(core).id
    clock.advance(hours=1)

    assert [one["code"] for one in why(cli, waits)] == ["paused"]
    document = cli("--json", "status").json
    assert (document["paused"], [one["code"] for one in document["reasons"]]) == (True, ["paused"])
    cli("schedule", "add", "hourly", "every 1h", "--workflow", "greet", "--payload", "{}")
    assert cli("--json", "schedule", "why", "hourly").json["reasons"][0]["code"] == "paused"


def test_paused_fact_of_an_earlier_start_is_ignored(cli, core, daemon):
    write_start(core, paused=True)
    core.do(lambda tx: tx.run("UPDATE epochs SET epoch = 2"))

    assert cli("--json", "status").json["paused"] is False


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", '{"epoch": 1}', '{"epoch": 1, "paused": true, "limits": 7}'),
        '{"epoch": 1, "paused": 1, "limits": {}}',
        '{"epoch": 1, "paused": true, "limits": {"greet": {"sources": []}}}',
        '{"epoch": 1, "paused": true, "limits": {"a": {"concurrency": "x", "count": 1, "seconds": 1, "sources": []}}}',
    ],
)
def test_unreadable_engine_fact_is_ignored(core, text):
    write_start(core)
    core.do(lambda tx: tx.run("UPDATE facts SET value = :text WHERE name = 'engine'", text=text))

    with core.reading() as reader:
        assert read_engine_facts(reader) is None


@pytest.mark.parametrize("paused", [True, False])
def test_engine_start_records_pause_and_limits(tmp_path, clock, paused):
    async def live() -> None:
        async with running(an_app(), tmp_path / "agent.db", settings(), clock, paused=paused):
            pass

    with suppressed_logs():
        anyio.run(live)

    with VirtualCore(tmp_path / "agent.db", clock).reading() as reader:
        facts = read_engine_facts(reader)
    assert facts is not None
    assert facts.paused is paused
    assert facts.limits == {
        "one.at.a.time": {"concurrency": 1, "count": None, "seconds": None, "limit_by": None, "sources": ["MESSAGE"]},
        "one.each": {"concurrency": 1, "count": 5, "seconds": 60.0, "limit_by": "customer", "sources": ["MEMORY"]},
        "two.a.minute": {"concurrency": None, "count": 2, "seconds": 60.0, "limit_by": None, "sources": []},
    }


def test_unstarted_trigger_without_an_obstacle_points_to_doctor(cli, core, clock, daemon):
    """The daemon hangs, or cannot write."""
    write_start(core)
    waits = emit(core).id
    assert [one["code"] for one in why(cli, waits)] == ["its turn"]

    clock.advance(seconds=61)

    [reason] = why(cli, waits)
    assert (reason["code"], reason["text"].endswith("See: craftcore doctor")) == ("not started", True)
    assert run_query(core, reason["query"]) == [(0, 0)]


def test_settled_trigger_is_not_checked_for_limits(cli, core, daemon):
    write_start(core)
    ran = emit(core, workflow="one.at.a.time").id
    run_one(core)

    assert why(cli, ran)[0]["code"] == "settled"


@pytest.mark.parametrize("how", [{"workflow": "one.each"}, {"workflow": None, "source": TriggerSource.MEMORY}])
def test_trigger_why_reports_the_limit_of_a_key(cli, core, daemon, how):
    write_start(core)
    waits = emit(core, payload={"customer": "ada"}, **how).id
    claim = claim_one(core)
    core.do(lambda tx: LimitWaitStore().put_off(tx, [(claim, "customer", LimitKey("one.each", '"ada"'))], weight=60.0))

    [reason] = why(cli, waits)

    assert (reason["code"], reason["text"]) == (
        "limit",
        'workflow one.each may run 1 at a time and start 5 within 60 s for each customer, and "ada" has reached that',
    )
    assert run_query(core, reason["query"]) == [("one.each", "customer", '"ada"')]
    assert cli("--json", "status").json["counts"]["limited"] == 1
    assert "limited   1 due, and their keys are at a limit of their workflow (limit_by)" in cli("status").out


def test_trigger_why_reports_that_an_earlier_trigger_of_the_lane_is_put_off(cli, core, daemon):
    write_start(core)
    waits = emit(core, session_id="s").id
    claim = claim_one(core)
    core.do(lambda tx: LimitWaitStore().put_off(tx, [(claim, LANE, LimitKey("one.each", '"ada"'))], weight=60.0))

    [reason] = why(cli, waits)

    text = "an earlier trigger of its lane waits for a limit of workflow one.each"
    assert (reason["code"], reason["text"]) == ("lane order", text)


def test_trigger_why_reports_a_put_off_trigger_without_a_daemon(cli, core):
    waits = emit(core, workflow="one.each", payload={"customer": "ada"}).id
    claim = claim_one(core)
    core.do(lambda tx: LimitWaitStore().put_off(tx, [(claim, "customer", LimitKey("one.each", '"ada"'))], weight=60.0))

    found = why(cli, waits)

    assert [one["code"] for one in found] == ["no daemon", "limit"]
    assert found[1]["text"] == 'workflow one.each has a limit for each customer, and "ada" has reached that'
    assert cli("trigger", "cancel", waits).code == 0
    assert [one["code"] for one in why(cli, waits)] == ["settled"]
    assert run_query(core, "SELECT * FROM limit_waits") == []
