"""The calls of an app without a cluster: each raises an error of craftcore."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.service import RetryConfig

from craftcore.activities.model import Decision
from craftcore.errors import ClusterUnavailable, InvalidInput
from craftcore.tasks.work_store import WorkFilter
from craftcore.temporal.cluster_requests import ClusterRequests
from craftcore.temporal.settings import TemporalSettings
from craftcore.triggers.model import TriggerSpec
from tests.temporal.broken_line import faulty_proxy

TASK = "k:key@019acb4d-0000-7000-8000-000000000001"
SPEC = TriggerSpec(workflow="order")

CALLS: dict[str, Callable[[ClusterRequests], Any]] = {
    "emit": lambda requests: requests.emit(SPEC),
    "emit_many": lambda requests: requests.emit_many([SPEC]),
    "signal": lambda requests: requests.signal(TASK, "go", None, sent_by=None, start=None),
    "answer": lambda requests: requests.answer(f"{TASK}.1", "yes", note=None, reference=None, answered_by="ada"),
    "decide": lambda requests: requests.decide(
        f"activity:{TASK}:1.1", Decision.GIVE_UP, note=None, reference=None, decided_by="ada"
    ),
    "cancel": lambda requests: requests.cancel(TASK),
    "cancel_task": lambda requests: requests.cancel_task("t:1"),
    "cancel_work": lambda requests: requests.cancel_work(TASK),
    "retry_task": lambda requests: requests.retry_task(TASK),
    "requeue": lambda requests: requests.requeue(TASK),
    "tasks": lambda requests: requests.tasks(None, None, None, 10),
    "task": lambda requests: requests.task(TASK),
    "state_of": lambda requests: requests.state_of("t:1"),
    "result_of": lambda requests: requests.result_of(TASK, str, None),
    "follow_work": lambda requests: anext(requests.follow_work(TASK)),
    "find_ids": lambda requests: requests.find_ids(WorkFilter(), 10),
    "questions": lambda requests: requests.questions(10),
}
REFUSED: dict[str, Callable[[ClusterRequests], Any]] = {
    "stop_turn": lambda requests: requests.stop_turn(TASK),
    "cancel_all": lambda requests: requests.cancel_all("tea", with_schedules=False),
    "hold": lambda requests: requests.hold(None, None),
    "release": lambda requests: requests.release(None),
    "dead_letters": lambda requests: requests.dead_letters(10),
    "transaction": lambda requests: requests.transaction(str, ()),
    "follow_stream": lambda requests: anext(requests.follow_stream(TASK, "answer", 0)),
    "history": lambda requests: requests.history("s", 10, 0, None),
    "forget_history": lambda requests: requests.forget_history("s"),
}


def test_tested_calls_are_all_calls() -> None:
    calls = {name for name, _ in inspect.getmembers(ClusterRequests, inspect.isroutine) if not name.startswith("_")}
    assert calls == {*CALLS, *REFUSED}


@pytest.mark.anyio
async def test_call_to_an_absent_cluster_raises_an_error_of_craftcore(cluster: TemporalSettings) -> None:
    impatient = RetryConfig(max_retries=1, initial_interval_millis=1, max_interval_millis=1)
    async with faulty_proxy(cluster.address) as line:
        connection = await Client.connect(line.address, namespace=cluster.namespace, retry_config=impatient)
    requests = ClusterRequests(connection, None, replace(cluster, task_queue="absent"))
    for name, call in (CALLS | REFUSED).items():
        with pytest.raises(InvalidInput if name in REFUSED else ClusterUnavailable):
            await call(requests)
            pytest.fail(name)
