"""Rows that make the pages of `craftcore web` expensive, and the addresses of these pages.

There are schedules with accounts of a month, dead letters, rows of audit, and tasks with many events.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from benchmarks.history import EVENT
from craftcore.audit.model import Actor
from craftcore.audit.store import audit
from craftcore.clock import SystemClock
from craftcore.producer import Producer
from craftcore.schedules.model import Origin, Schedule, ScheduleSpec
from craftcore.schedules.recurrence.occurrences import occurrences
from craftcore.services import Services
from craftcore.storage.transaction import Transaction
from craftcore.web.asgi_app import PAGES

DEEP_TASKS = 5
"""Tasks of 2,000 steps each."""

LONG = 9_900
"""Steps of one more task, in one record."""

SCHEDULES, DAYS = 200, 30
DEAD, ERRORS = 5_000, 40
AUDIT_ROWS = 2_000
OFTEN = "often"
"""The id of the schedule that fires every five minutes."""

LINE = """
INSERT INTO schedule_occurrences (schedule_id, generation, cause, nominal_at, last_at, count, outcome, trigger_id,
                                  decided_at)
VALUES (:id, :generation, 'time', :at, :at, 1, 'fired', :trigger_id, :at)
"""
RECORD = """
INSERT INTO executions (id, trigger_id, attempt, epoch, workflow, created_at, ended_at, status, replayable,
                        replayable_reason, envelope_json, envelope_hash, response_json, latency_ms, first_events,
                        last_events)
VALUES ('exec-' || :trigger_id || '.1', :trigger_id, 1, 1, 'noop', :at + 1, :at + 2, :status, 1, NULL, '{}', 'sha256:',
        '{}', 1.0, '[1,' || :event || ']', '[2,' || :event || ']')
"""
LETTER = """
INSERT INTO triggers (id, source, workflow, fire_at, due_at, priority, payload_json, status, reason, attempts, starts,
                      started_at, settled_at, created_at, updated_at, error_code, error_message)
VALUES (:id, 'IMMEDIATE', 'noop', :at, :at, 10, '{}', 'DEAD', 'attempts are used up', 3, 3, :at, :at, :at, :at, :code,
        :message)
"""


def add_rows(services: Services) -> None:
    """Add schedules, dead letters and rows of audit to a database without a daemon."""
    clock, now = SystemClock(), float(int(time.time()))
    with services.transaction() as tx:
        for number in range(SCHEDULES):
            when = f"every day at {number % 24:02}:{number % 60:02}"
            _add_schedule(services, tx, ScheduleSpec(id=f"daily-{number:03}", when=when, **_work()), now)
        _add_schedule(services, tx, ScheduleSpec(id=OFTEN, when="*/5 * * * *", **_work()), now)
        for number in range(DEAD):
            code = f"PROVIDER_{number % ERRORS}"
            message = f"the provider refused request {number}: " + "the account has no permission for it; " * 8
            tx.run(LETTER, id=clock.new_id(), at=now - number, code=code, message=message)
        for number in range(AUDIT_ROWS):
            details = {"before": {"priority": number}, "after": {"priority": number + 1}}
            audit(tx, Actor(1000, "ada"), "trigger cancel", f"{number}", reason="it came twice", details=details)


def add_tasks(producer: Producer, services: Services) -> dict[str, str]:
    """Let a daemon run tasks with many events and a question. Return an id for each page of one thing, by its path."""
    deep = [producer.emit("deep").id for _ in range(DEEP_TASKS)]
    long, ask = producer.emit("deep", {"count": LONG}).id, producer.emit("ask").id
    with services.reading() as reader:
        settled = reader.fetch_value("SELECT id FROM triggers WHERE status = 'DONE' LIMIT 1 OFFSET 1000")
    until = time.monotonic() + 300
    while time.monotonic() < until:
        with services.reading() as reader:
            question = reader.fetch_value("SELECT id FROM questions LIMIT 1")
            ended = reader.fetch_value("SELECT count(*) FROM tasks WHERE status = 'DONE' AND workflow = 'deep'")
        if question is not None and ended == DEEP_TASKS + 1:
            break
        time.sleep(0.2)
    return {
        "/q/{id}": question,
        "/tasks/{id}": deep[0],
        "/triggers/{id}": settled,
        "/records/{id}": f"exec-{settled}.1",
        "/schedules/{id}": OFTEN,
        "asks": ask,
        "long": long,
    }


def list_addresses(ids: Mapping[str, str]) -> list[str]:
    """Return the addresses to measure: each page with an id where it needs one, filters, and what is deep."""
    shown = [path for path, _ in PAGES if "{id}" not in path or path in ids]
    return [
        *(path.replace("{id}", quote(ids.get(path, ""), safe="")) for path in shown),
        "/tasks?workflow=nothing",
        "/triggers?workflow=nothing",
        "/audit?action=nothing",
        f"/find?q={ids['/triggers/{id}'][:8]}",
        f"/dead?error=PROVIDER_{ERRORS - 1}",
        "/schedules?after=daily-100",
        "/schedules/daily-003",
        f"/tasks/{ids['long']}?events=500",
        f"/records/exec-{ids['long']}.1",
        f"/records/exec-{ids['long']}.1?before={LONG // 2}",
    ]


def _work() -> dict[str, Any]:
    return {"workflow": "noop", "timezone": "Europe/Berlin"}


def _add_schedule(services: Services, tx: Transaction, spec: ScheduleSpec, now: float) -> None:
    services.schedules.put(tx, spec, Origin.OPERATOR)
    schedule = services.schedules.get(tx, str(spec.id))
    assert schedule is not None, spec.id
    for number, line in enumerate(_list_lines(schedule, now)):
        tx.run(LINE, **line)
        status = "error" if number % 11 == 0 else "success"
        tx.run(RECORD, trigger_id=line["trigger_id"], at=line["at"], status=status, event=EVENT)


def _list_lines(schedule: Schedule, now: float) -> Iterator[dict[str, Any]]:
    clock = SystemClock()
    for at in occurrences(schedule.timing, now - DAYS * 86_400, now):
        yield {"id": schedule.id, "generation": schedule.generation, "at": at, "trigger_id": clock.new_id()}
