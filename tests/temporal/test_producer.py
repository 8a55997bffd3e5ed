"""The producer of a cluster, and a connected app: emits, handles, questions and dedup keys."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import anyio
import pytest

from craftcore import App, TaskContext
from craftcore.errors import ClusterUnavailable, DuplicateTrigger, InvalidInput, StateRefused, WorkFailed
from craftcore.temporal.settings import TemporalSettings
from craftcore.temporal.temporal_producer import TemporalProducer
from craftcore.temporal.worker import working
from craftcore.triggers.model import TriggerSpec
from tests.support.processes import PATIENCE
from tests.support.warm_parent import WarmProcess
from tests.temporal.worker_processes import ROOT, start_on_cluster

WORKER = """
import asyncio, sys
from craftcore.temporal.settings import TemporalSettings
from craftcore.temporal.worker import work_until_stopped
from tests.temporal.test_producer import make_app
asyncio.run(work_until_stopped(make_app(), TemporalSettings(address=sys.argv[1], sticky_timeout=1)))
"""
EMITTER = """
import sys
from craftcore.temporal.temporal_producer import TemporalProducer
with TemporalProducer(sys.argv[1], app="producing") as producer:
    print(producer.emit("waits", dedup_key=sys.argv[2], dedup_scope="active").id)
"""


def make_app() -> App:
    app = App("producing")

    @app.workflow("adds")
    async def adds(ctx: TaskContext, left: int, right: int) -> int:
        return await ctx.step("add", lambda: left + right)

    @app.workflow("waits")
    async def waits(ctx: TaskContext) -> str:
        await ctx.wait_for("go")
        return ctx.task_id

    @app.workflow("asks")
    async def asks(ctx: TaskContext) -> str | None:
        return await ctx.ask("Well?", ["yes", "no"])

    @app.workflow("emits")
    async def emits(ctx: TaskContext) -> str:
        async def emit() -> str:
            return (await app.emit("adds", {"left": 1, "right": 2})).id

        return await ctx.step("emit", emit)

    @app.workflow("fails")
    async def fails(ctx: TaskContext) -> None:
        raise InvalidInput("never")

    return app


@pytest.fixture(scope="module")
def worker(cluster: TemporalSettings) -> Iterator[WarmProcess]:
    process = start_on_cluster(["-c", WORKER, cluster.address], cwd=ROOT)
    yield process
    process.kill()
    process.wait(PATIENCE)


@pytest.fixture
def producer(cluster: TemporalSettings, worker: WarmProcess) -> Iterator[TemporalProducer]:
    with TemporalProducer(cluster.address, app="producing") as producer:
        yield producer


def wait_until(condition: Callable[[], object]) -> None:
    limit = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.05)


def test_producer_emits_and_reads_the_result(producer):
    emitted = producer.emit("adds", {"left": 40, "right": 2})
    assert emitted.created
    assert emitted.result(int, timeout=PATIENCE) == 42
    assert producer.handle(emitted.id).state().status == "DONE"
    assert [update.status for update in producer.handle(emitted.id).events()][-1] == "DONE"


def test_failure_of_a_task_is_raised_by_its_handle(producer):
    with pytest.raises(WorkFailed, match="never"):
        producer.emit("fails", max_attempts=1).result(timeout=PATIENCE)


def test_question_is_listed_and_answered_once(producer):
    asking = producer.emit("asks")
    wait_until(lambda: [one for one in producer.questions() if one.task_id == asking.id])
    [question] = [one for one in producer.questions() if one.task_id == asking.id]
    assert (question.question, question.options, question.workflow) == ("Well?", ("yes", "no"), "asks")

    producer.answer(question.id, "yes", answered_by="ada")
    assert asking.result(timeout=PATIENCE) == "yes"
    with pytest.raises(StateRefused):
        producer.answer(question.id, "no", answered_by="bob")


def test_triggers_are_emitted_in_order_up_to_the_first_refusal(producer):
    specs = [TriggerSpec(workflow="adds", payload={"left": number, "right": 0}) for number in range(2)]
    assert [one.result(timeout=PATIENCE) for one in producer.emit_many(specs)] == [0, 1]
    with pytest.raises(InvalidInput) as refused:
        producer.emit_many([*specs, TriggerSpec(workflow="adds", dedup_key="x" * 151)])
    assert refused.value.details["emitted"] == 2


def test_key_of_scope_active_is_free_after_the_end_for_another_task(producer):
    first = producer.emit("waits", dedup_key="active:1", dedup_scope="active")
    again = producer.emit("waits", dedup_key="active:1", dedup_scope="active")
    assert (again.id, again.created, again.held) == (first.id, False, "dedup_key")
    with pytest.raises(DuplicateTrigger):
        producer.emit("waits", dedup_key="active:1", dedup_scope="active", on_duplicate="error")
    producer.signal(first.id, "go")
    assert first.result(timeout=PATIENCE) == first.id

    second = producer.emit("waits", dedup_key="active:1", dedup_scope="active")
    assert second.created
    assert second.id != first.id
    producer.signal(second.id, "go")
    assert second.result(timeout=PATIENCE) == second.id
    assert first.result(timeout=PATIENCE) == first.id


def test_signal_returns_whether_the_task_waited_for_the_event(producer):
    waiting = producer.emit("waits")
    wait_until(lambda: (task := producer.task(waiting.id)) is not None and task.status == "WAITING")
    assert not producer.signal(waiting.id, "other")
    assert producer.signal(waiting.id, "go")


@pytest.mark.parametrize("processes", [3, pytest.param(50, marks=pytest.mark.campaign)])
def test_key_that_many_processes_emit_becomes_a_single_task(cluster, producer, processes):
    key = f"many:{processes}"
    emitters = [
        start_on_cluster(["-c", EMITTER, cluster.address, key], cwd=ROOT, stdout=subprocess.PIPE)
        for _ in range(processes)
    ]
    ids = set()
    for emitter in emitters:
        with emitter:
            ids.add(emitter.communicate(timeout=PATIENCE)[0].decode().strip())
    assert len(ids) == 1
    wait_until(lambda: producer.find(dedup_key=key))  # a list may lag
    assert {one.id for one in producer.find(dedup_key=key)} == ids


def test_producer_without_a_cluster_is_refused():
    with pytest.raises(ClusterUnavailable):
        TemporalProducer("127.0.0.1:1", app="producing")


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_app_calls_the_cluster_in_a_step_and_when_connected(cluster):
    app = make_app()
    with anyio.fail_after(PATIENCE):
        async with working(app, replace(cluster, task_queue="producing")):
            emitted = await (await app.emit("emits")).result()
            assert await app.handle(emitted).result() == 3
        with pytest.raises(InvalidInput, match="not running"):
            await app.emit("emits")
        async with app.connected(f"temporal://{cluster.address}/{cluster.namespace}"):
            waiting = await app.emit("waits")
            await app.signal(waiting.id, "go")
            with pytest.raises(InvalidInput, match="a cluster holds no work"):
                await app.hold()


def test_url_of_no_cluster_is_refused():
    for url in ("http://host:7233", "temporal://host", "temporal://user@host:1/ns"):
        with pytest.raises(InvalidInput):
            make_app().connected(url)
