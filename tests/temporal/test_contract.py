"""The common contract of SQLite and a cluster: turns, steps, acts, waits, children and questions."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, Protocol

import anyio
import pytest

from craftcore import (
    App,
    Call,
    ChildFailed,
    Continue,
    Event,
    Fail,
    NoEffect,
    RetryPolicy,
    Route,
    RoutedTrigger,
    RoutingContext,
    StepConflict,
    TaskContext,
    Timer,
)
from craftcore.errors import InvalidInput, StateRefused
from craftcore.temporal.settings import TemporalSettings
from craftcore.temporal.task_operations import TaskOperations
from craftcore.temporal.worker import working
from tests.support.engine_harness import lab
from tests.support.processes import PATIENCE
from tests.temporal.task_client import TaskClient
from tests.temporal.views import see_question, see_waiting

pytestmark = pytest.mark.anyio
IMMEDIATE_RETRY = RetryPolicy(max_attempts=3, base=0, cap=0)


class Place(Protocol):
    """An engine or a worker that runs the app."""

    async def emit(self, workflow: str | None, payload: dict[str, Any], *, source: str = "IMMEDIATE") -> str: ...

    async def end(self, task_id: str) -> tuple[str, Any]:
        """Wait for the end of a task: DONE and its result, or another status and its code."""

    async def question(self, task_id: str) -> str:
        """Wait for a question of the task, and return its id."""

    async def answer(self, task_id: str, question_id: str, answer: str, reference: str | None = None) -> None: ...

    async def signal(self, task_id: str, event: str, payload: Any) -> None: ...

    async def cancel(self, task_id: str) -> None: ...

    async def waiting(self, task_id: str) -> None:
        """Wait until the task waits."""


class OnFile:
    """An engine on a SQLite file."""

    def __init__(self, harness: Any) -> None:
        self._it = harness

    async def emit(self, workflow: str | None, payload: dict[str, Any], *, source: str = "IMMEDIATE") -> str:
        return str((await self._it.app.emit(workflow, payload, source=source)).id)

    async def end(self, task_id: str) -> tuple[str, Any]:
        tasks = "SELECT status, result_json, error_code FROM tasks WHERE id = :id AND ended_at IS NOT NULL"
        triggers = (
            "SELECT 1 FROM triggers WHERE id = :id AND settled_at IS NOT NULL AND id NOT IN (SELECT id FROM tasks)"
        )
        await self._it.until(lambda: self._it.rows(tasks, id=task_id) or self._it.rows(triggers, id=task_id))
        if not (found := self._it.rows(tasks, id=task_id)):
            return "DONE", await self._it.app.handle(task_id).result()
        row = found[0]
        return row["status"], json.loads(row["result_json"] or "null") if row["status"] == "DONE" else row["error_code"]

    async def question(self, task_id: str) -> str:
        sql = "SELECT id FROM questions WHERE status = 'OPEN'"
        await self._it.until(lambda: self._it.rows(sql))
        return str(self._it.rows(sql)[0]["id"])

    async def answer(self, task_id: str, question_id: str, answer: str, reference: str | None = None) -> None:
        await self._it.app.answer(question_id, answer, reference=reference, answered_by="ada")

    async def signal(self, task_id: str, event: str, payload: Any) -> None:
        await self._it.app.signal(task_id, event, payload)

    async def cancel(self, task_id: str) -> None:
        await self._it.app.cancel(task_id)

    async def waiting(self, task_id: str) -> None:
        sql = "SELECT 1 FROM tasks WHERE id = :id AND status = 'WAITING'"
        await self._it.until(lambda: self._it.rows(sql, id=task_id))


class OnCluster:
    """A worker of a cluster."""

    def __init__(self, client: TaskClient) -> None:
        self._client = client
        self.emit = client.emit
        self.signal = client.signal
        self.cancel = client.cancel

    async def end(self, task_id: str) -> tuple[str, Any]:
        end = await self._client.result(task_id)
        return end.status, json.loads(end.result_json or "null") if end.status == "DONE" else end.error_code

    async def waiting(self, task_id: str) -> None:
        await see_waiting(self._client, task_id)

    async def question(self, task_id: str) -> str:
        return (await see_question(self._client, task_id)).id

    async def answer(self, task_id: str, question_id: str, answer: str, reference: str | None = None) -> None:
        operations = TaskOperations(self._client.connection)
        await operations.answer(question_id, answer, by="ada", note=None, reference=reference)


@pytest.fixture
def app(request: pytest.FixtureRequest) -> App:
    app = App(request.node.name.partition("[")[0])
    app.default_retry = IMMEDIATE_RETRY
    return app


@pytest.fixture(params=["file", "cluster"])
def where(request: pytest.FixtureRequest) -> TemporalSettings | None:
    """Return the settings of the cluster, or None for a file. The server starts outside of any event loop."""
    return None if request.param == "file" else request.getfixturevalue("cluster")


@pytest.fixture
async def place(app: App, where: TemporalSettings | None, tmp_path: Any) -> AsyncIterator[Place]:
    with anyio.fail_after(PATIENCE):
        if where is None:
            async with lab(app, tmp_path) as harness:
                yield OnFile(harness)
        else:
            settings = replace(where, task_queue=app.name)
            async with working(app, settings) as client:
                yield OnCluster(TaskClient(client, app, settings))


async def run(place: Place, workflow: Any, **payload: Any) -> tuple[str, Any]:
    return await place.end(await place.emit(workflow.__name__, payload))


async def test_plain_workflow_returns_its_result(app, place):
    @app.workflow("double")
    async def double(x: int) -> int:
        return 2 * x

    assert await run(place, double, x=4) == ("DONE", 8)


async def test_step_is_not_run_again_at_the_next_attempt(app, place):
    ran: list[int] = []

    def count() -> int:
        ran.append(1)
        return len(ran)

    @app.workflow("order")
    async def order(ctx: TaskContext) -> list[int]:
        found = [await ctx.step("count", count), ctx.attempt]
        if ctx.attempt < 3:
            raise ValueError("not yet")
        return found

    assert await run(place, order) == ("DONE", [1, 3])
    assert ran == [1]


async def test_failed_step_is_retried_by_its_policy(app, place):
    tries: list[int] = []

    def fail_once() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise OSError("down")
        return "up"

    @app.workflow("order")
    async def order(ctx: TaskContext) -> str:
        return await ctx.step("call", fail_once, retry=IMMEDIATE_RETRY)

    assert await run(place, order) == ("DONE", "up")
    assert len(tries) == 2


async def test_step_has_all_its_attempts_after_a_wait_and_in_the_next_attempt(app, place):
    tries: list[list[int]] = []

    def fail() -> None:
        tries[-1].append(1)
        raise ConnectionError("down")

    @app.workflow("order", max_attempts=2)
    async def order(ctx: TaskContext) -> None:
        tries.append([])
        try:
            await ctx.step("call", fail, retry=IMMEDIATE_RETRY)
        except ConnectionError:
            await ctx.sleep(0.001)
            raise

    assert await run(place, order) == ("FAILED", "TRANSPORT_ERROR")
    assert [len(one) for one in tries] == [3, 3, 3]


async def test_step_name_used_twice_is_refused(app, place):
    @app.workflow("order")
    async def order(ctx: TaskContext) -> str:
        await ctx.step("one", lambda: 1)
        with pytest.raises(StepConflict):
            await ctx.step("one", lambda: 1)
        return "refused"

    assert await run(place, order) == ("DONE", "refused")


async def test_concurrent_steps_are_all_recorded(app, place):
    @app.workflow("order")
    async def order(ctx: TaskContext) -> int:
        found: list[int] = []

        async def one(number: int) -> None:
            found.append(await ctx.step("one", lambda: number, key=str(number)))

        async with anyio.create_task_group() as group:
            for number in range(40):
                group.start_soon(one, number)
        return sum(found)

    assert await run(place, order) == ("DONE", sum(range(40)))


async def test_act_is_called_once_over_all_attempts(app, place):
    keys: list[str] = []

    @app.action("pay", irreversible=True)
    async def pay(call: Call, amount: int) -> str:
        keys.append(call.key)
        return f"ref-{amount}"

    @app.workflow("order")
    async def order(ctx: TaskContext) -> Any:
        reference = await ctx.act(pay, amount=7)
        if ctx.attempt == 1:
            raise ValueError("not yet")
        return reference

    assert await run(place, order) == ("DONE", "ref-7")
    assert len(keys) == 1


async def test_act_without_effect_is_called_again_with_the_same_key(app, place):
    calls: list[tuple[str, int]] = []

    @app.action("pay", irreversible=True)
    async def pay(call: Call) -> str:
        calls.append((call.key, call.attempt))
        if call.attempt == 1:
            raise NoEffect("not now")
        return "paid"

    @app.workflow("order")
    async def order(ctx: TaskContext) -> Any:
        return await ctx.act(pay)

    assert await run(place, order) == ("DONE", "paid")
    assert [attempt for _, attempt in calls] == [1, 2]
    assert len({key for key, _ in calls}) == 1


@pytest.mark.parametrize(("answer", "end", "calls"), [("happened", None, 1), ("resend", "paid", 2)])
async def test_act_in_doubt_is_decided_by_a_person(app, place, answer, end, calls):
    made: list[int] = []

    @app.action("pay", irreversible=True)
    async def pay(call: Call) -> str | None:
        made.append(call.attempt)
        if call.attempt == 1:
            raise ConnectionResetError("lost")
        return "paid"

    @app.workflow("order")
    async def order(ctx: TaskContext) -> Any:
        return await ctx.act(pay)

    task = await place.emit("order", {})
    await place.answer(task, await place.question(task), answer)
    assert await place.end(task) == ("DONE", end)
    assert len(made) == calls


async def test_act_that_happened_without_an_answer_returns_the_result_of_a_person(app, place):
    @app.action("pay", irreversible=True)
    async def pay(call: Call) -> str:
        raise ConnectionResetError("lost")

    @app.workflow("order")
    async def order(ctx: TaskContext) -> str:
        return str(await ctx.act(pay)).upper()

    task = await place.emit("order", {})
    question = await place.question(task)
    with pytest.raises((InvalidInput, StateRefused), match=r"needs the result of pay: .* \(text\); none was given"):
        await place.answer(task, question, "happened")
    await place.answer(task, question, "happened", reference="ref-7")
    assert await place.end(task) == ("DONE", "REF-7")


async def test_given_up_act_fails_the_task(app, place):
    @app.action("pay", irreversible=True)
    async def pay(call: Call) -> None:
        raise ConnectionResetError("lost")

    @app.workflow("order")
    async def order(ctx: TaskContext) -> None:
        await ctx.act(pay)

    task = await place.emit("order", {})
    await place.answer(task, await place.question(task), "give up")
    assert await place.end(task) == ("FAILED", "ACTIVITY_UNKNOWN")


async def test_act_key_with_other_arguments_is_refused(app, place):
    @app.action("pay", irreversible=True)
    async def pay(call: Call, amount: int) -> None: ...

    @app.workflow("order")
    async def order(ctx: TaskContext) -> None:
        await ctx.act(pay, amount=1, key="one")
        await ctx.act(pay, amount=2, key="one")

    task = await place.emit("order", {})
    assert await place.end(task) == ("FAILED", "IDEMPOTENCY_CONFLICT")


async def test_signal_before_its_wait_is_kept(app, place):
    @app.workflow("order")
    async def order(ctx: TaskContext) -> list[Any]:
        await ctx.wait_for("go")
        return [await ctx.wait_for("paid"), await ctx.wait_for("never", timeout=0.1, default="late")]

    task = await place.emit("order", {})
    await place.signal(task, "paid", {"amount": 7})
    await place.signal(task, "go", None)
    assert await place.end(task) == ("DONE", [{"amount": 7}, "late"])


async def test_question_is_answered_once(app, place):
    @app.workflow("order")
    async def order(ctx: TaskContext) -> str | None:
        return await ctx.ask("Send it?", ["yes", "no"])

    task = await place.emit("order", {})
    question = await place.question(task)
    await place.answer(task, question, "yes")
    assert await place.end(task) == ("DONE", "yes")


async def test_state_reaches_the_next_turn_after_a_pause(app, place):
    @app.workflow("count")
    async def count(ctx: TaskContext[int]) -> Any:
        state = (ctx.state or 0) + 1
        return state if state == 3 else Continue(state, after=0.05)

    assert await run(place, count) == ("DONE", 3)


async def test_sleep_ends_and_the_turn_continues(app, place):
    @app.workflow("nap")
    async def nap(ctx: TaskContext) -> str:
        await ctx.sleep(0.05)
        return ctx.resume

    assert await run(place, nap) == ("DONE", "TIMER")


async def test_children_return_their_results_and_failures(app, place):
    @app.workflow("child")
    async def child(ctx: TaskContext, n: int) -> int:
        if n == 0:
            raise Fail("NONE", "nothing to do")
        return n * n

    @app.workflow("parent")
    async def parent(ctx: TaskContext) -> Any:
        started = [await ctx.start_child("child", {"n": n}) for n in (3, 4)]
        bad = await ctx.start_child("child", {"n": 0})
        squares = await ctx.gather(started, int)
        with pytest.raises(ChildFailed) as failed:
            await bad.result()
        return [*squares, failed.value.details["code"]]

    assert await run(place, parent) == ("DONE", [9, 16, "NONE"])


async def test_emitted_task_is_emitted_once_over_all_attempts(app, place):
    ran: list[str] = []

    @app.workflow("other")
    async def other(name: str) -> None:
        ran.append(name)

    @app.workflow("order")
    async def order(ctx: TaskContext) -> str:
        emitted = await ctx.emit("other", {"name": "ada"})
        if ctx.attempt == 1:
            raise ValueError("not yet")
        return emitted.id

    status, emitted = await run(place, order)
    assert (status, await place.end(emitted) if isinstance(place, OnCluster) else ("DONE", None)) == (
        "DONE",
        ("DONE", None),
    )
    assert ran == ["ada"]


async def test_first_of_several_waits_resumes_the_task(app, place):
    @app.workflow("order")
    async def order(ctx: TaskContext) -> Any:
        first = await ctx.wait_any({"paid": Event("paid"), "late": Timer(3600)})
        return [first.name, first.value]

    task = await place.emit("order", {})
    await place.signal(task, "paid", 7)
    assert await place.end(task) == ("DONE", ["paid", 7])


async def test_cancelled_task_ends_as_cancelled(app, place):
    begun = anyio.Event()

    @app.workflow("order")
    async def order(ctx: TaskContext) -> None:
        begun.set()
        await anyio.sleep_forever()

    task = await place.emit("order", {})
    await begun.wait()
    await place.cancel(task)
    assert (await place.end(task))[0] == "CANCELLED"


async def test_exhausted_attempts_fail_the_task(app, place):
    attempts: list[int] = []

    @app.workflow("order")
    async def order(ctx: TaskContext) -> None:
        attempts.append(ctx.attempt)
        raise ValueError("never")

    status, code = await run(place, order)
    assert (status, code, attempts) == ("FAILED", "INTERNAL_AGENT_ERROR", [1, 2, 3])


async def test_signal_of_a_turn_returns_whether_its_task_waited(app, place):
    @app.workflow("target")
    async def target(ctx: TaskContext) -> Any:
        return await ctx.wait_for("go")

    @app.workflow("teller")
    async def teller(ctx: TaskContext, to: str) -> list[bool]:
        return [await ctx.signal(to, "other"), await ctx.signal(to, "go", 7)]

    waits = await place.emit("target", {})
    await place.waiting(waits)
    assert await run(place, teller, to=waits) == ("DONE", [False, True])
    assert await place.end(waits) == ("DONE", 7)


async def test_fallback_runs_in_the_same_attempt_and_continues_after_a_wait(app, place):
    entered: list[str] = []

    @app.workflow("first", fallback=["second"])
    async def first(ctx: TaskContext) -> None:
        entered.append("first")
        raise Fail("OUT_OF_INK", "no ink")

    @app.workflow("second")
    async def second(ctx: TaskContext[str]) -> Any:
        entered.append("second")
        if ctx.turn == 1:
            await ctx.sleep(0.01)
            return Continue("state of the second")
        return [ctx.attempt, ctx.state]

    assert await run(place, first) == ("DONE", [1, "state of the second"])
    assert entered == ["first", "second", "second", "second"]


async def test_fallback_is_not_tried_after_an_irreversible_action(app, place):
    @app.action("pay", irreversible=True)
    async def pay(call: Call) -> str:
        return "paid"

    @app.workflow("first", fallback=["second"])
    async def first(ctx: TaskContext) -> None:
        await ctx.act(pay)
        raise Fail("OUT_OF_INK", "no ink")

    @app.workflow("second")
    async def second(ctx: TaskContext) -> str:
        return "second"

    assert await run(place, first) == ("FAILED", "OUT_OF_INK")


async def test_next_attempt_begins_with_the_first_agent(app, place):
    entered: list[str] = []

    @app.workflow("first", fallback=["second"])
    async def first(ctx: TaskContext) -> str:
        entered.append("first")
        if ctx.attempt == 1:
            raise ValueError("not yet")
        return "first"

    @app.workflow("second")
    async def second(ctx: TaskContext) -> None:
        entered.append("second")
        raise ValueError("never")

    assert await run(place, first) == ("DONE", "first")
    assert entered == ["first", "second", "first"]


async def test_router_chooses_the_workflow_and_its_fallback(app, place):
    asked: list[str] = []

    class ByText:
        async def route(self, trigger: RoutedTrigger, context: RoutingContext) -> Route:
            asked.append(trigger.payload_json)
            return Route(workflow="first", fallback=("second",))

    app.router = ByText()

    @app.workflow("first")
    async def first(ctx: TaskContext) -> None:
        await ctx.sleep(0.01)
        raise Fail("OUT_OF_INK", "no ink")

    @app.workflow("second")
    async def second(ctx: TaskContext) -> str:
        return "second"

    assert await place.end(await place.emit(None, {}, source="MESSAGE")) == ("DONE", "second")
    assert asked == ["{}"]


async def test_waiting_for_other_work_in_a_workflow_is_refused(app, place):
    """The wait would hold a slot that the other work needs."""

    @app.workflow("inner")
    async def inner() -> int:
        return 1

    @app.workflow("outer")
    async def outer(ctx: TaskContext) -> Any:
        return await (await app.emit("inner")).result()

    assert await run(place, outer) == ("FAILED", "VALIDATION_ERROR")


async def test_expected_refusal_stays_expected_at_the_next_call_of_its_act(app, place):
    calls: list[str] = []
    marks: list[bool] = []

    @app.action("reserve", irreversible=True)
    async def reserve(call: Call) -> str:
        calls.append(call.key)
        raise Fail("SOLD_OUT", "none left", expected=True)

    @app.workflow("order")
    async def order(ctx: TaskContext) -> None:
        try:
            await ctx.act(reserve)
        except Fail as refused:
            marks.append(refused.expected)
            if ctx.attempt == 1:
                raise ValueError("try again") from refused
            raise

    assert await run(place, order) == ("FAILED", "SOLD_OUT")
    assert marks == [True, True]
    assert len(calls) == 1
