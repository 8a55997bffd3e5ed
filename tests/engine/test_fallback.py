"""Fallback agents: their order after a failure, and no fallback after an irreversible action has begun."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from craftcore import (
    App,
    Call,
    Continue,
    Fail,
    NoEffect,
    Producer,
    Retry,
    RetryPolicy,
    Route,
    RoutedTrigger,
    RoutingContext,
    Strategy,
    TaskContext,
    TriggerSpec,
    failpoints,
)
from craftcore.errors import ConfigInvalid
from craftcore.failpoints import Failpoint
from tests.support.engine_harness import Lab, lab, look, settings

pytestmark = pytest.mark.anyio

FELL_BACK_ONCE = [
    "INTENT_RECEIVED",
    "AGENT_ATTEMPT_START",
    "AGENT_ATTEMPT_END",
    "FALLBACK_TRIGGERED",
    "AGENT_ATTEMPT_START",
    "AGENT_ATTEMPT_END",
    "ROUTER_DECISION",
    "FINAL_RESPONSE",
]


def event_payloads(harness: Lab, id: str, type_: str) -> list[dict[str, Any]]:
    """Return the payloads of the events of one type over all attempts of a trigger or task."""
    rows = harness.rows(
        "SELECT payload_json FROM events JOIN executions ON executions.seq = execution_seq "
        "WHERE :id IN (trigger_id, task_id) AND type = :type ORDER BY execution_seq, events.seq",
        id=id,
        type=type_,
    )
    return [json.loads(row["payload_json"]) for row in rows]


def declare_failing(app: App, name: str, error: BaseException, **options: Any) -> None:
    """Declare a workflow that raises the given error."""

    @app.workflow(name, **options)
    async def fails() -> None:
        raise error


async def test_fallback_agent_runs_after_a_failure_and_the_record_has_eight_events(tmp_path):
    app = App()
    declare_failing(app, "a", Fail("OUT_OF_INK", "no ink"), fallback=["b"])

    @app.workflow("b")
    async def b() -> str:
        return "written in chalk"

    async with lab(app, tmp_path) as harness:
        id = (await app.emit("a")).id
        row = await harness.settled(id)
        assert (row["status"], row["attempts"]) == ("DONE", 1)
        assert harness.response(id)["payload"] == "written in chalk"
        assert harness.events(id) == FELL_BACK_ONCE
        [fell] = event_payloads(harness, id, "FALLBACK_TRIGGERED")
        assert fell == {"from_agent": "a", "to_agent": "b", "reason": "OUT_OF_INK"}
        assert [start["agent"] for start in event_payloads(harness, id, "AGENT_ATTEMPT_START")] == ["a", "b"]
        first, second = event_payloads(harness, id, "AGENT_ATTEMPT_END")
        assert (first["agent"], first["status"], first["error_code"]) == ("a", "error", "OUT_OF_INK")
        assert (second["agent"], second["status"], "error_code" in second) == ("b", "success", False)
        assert event_payloads(harness, id, "ROUTER_DECISION") == [
            {"agent": "b", "intent": "a", "reason": "explicit workflow"}
        ]
        [record] = harness.rows("SELECT workflow, routing_json, status FROM executions")
        assert (record["workflow"], record["status"]) == ("a", "success")
        assert json.loads(record["routing_json"]) == {
            "agent": "b",
            "agents": ["a", "b"],
            "reason": "explicit workflow",
            "strategy": "FALLBACK",
        }


async def test_fallback_is_not_run_without_a_failure(tmp_path):
    app = App()

    @app.workflow("a", fallback=["b"])
    async def a() -> str:
        return "a"

    declare_failing(app, "b", AssertionError("not to be run"))
    async with lab(app, tmp_path) as harness:
        id = (await app.emit("a")).id
        await harness.settled(id)
        assert harness.response(id)["payload"] == "a"
        assert harness.events(id) == [*FELL_BACK_ONCE[:3], *FELL_BACK_ONCE[6:]]


async def test_fallback_agents_run_once_in_order_and_the_last_error_counts(tmp_path):
    app = App()
    declare_failing(app, "a", ValueError("first"), fallback=["b", "c"], max_attempts=2)
    declare_failing(app, "b", Fail("B_FAILED", "second"))
    declare_failing(app, "c", Retry("third"))
    async with lab(app, tmp_path) as harness:
        id = (await app.emit("a")).id
        row = await harness.settled(id)
        assert (row["status"], row["attempts"]) == ("DEAD", 2)
        assert row["error_message"] == "third"
        assert [start["agent"] for start in event_payloads(harness, id, "AGENT_ATTEMPT_START")] == ["a", "b", "c"] * 2
        assert [fell["reason"] for fell in event_payloads(harness, id, "FALLBACK_TRIGGERED")] == [
            "INTERNAL_AGENT_ERROR",
            "B_FAILED",
        ] * 2
        assert len(harness.rows("SELECT 1 FROM executions")) == 2


async def test_retry_policy_of_the_requested_workflow_applies_to_fallbacks(tmp_path):
    app = App()
    declare_failing(app, "a", Retry("a"), fallback=["b"], retry=RetryPolicy(max_attempts=4, base=0, cap=0))
    declare_failing(app, "b", Retry("b"), max_attempts=1)
    async with lab(app, tmp_path) as harness:
        assert (await harness.settled((await app.emit("a")).id))["attempts"] == 4


async def test_fallback_is_tried_after_an_invalid_payload_and_after_a_timeout_counts(tmp_path):
    app = App()

    @app.workflow("picky", fallback=["slow"])
    async def picky(number: int) -> None:
        raise AssertionError("not to be run")

    @app.workflow("slow", fallback=["c"], timeout=0.05)
    async def slow(number: str) -> None:
        await anyio.sleep_forever()

    declare_failing(app, "c", AssertionError("of another workflow's fallback: not to be tried"))
    async with lab(app, tmp_path) as harness:
        with Producer(harness.path) as producer:  # a producer without the app cannot validate the payload
            id = producer.emit("picky", {"number": "seven"}, max_attempts=1).id
        row = await harness.settled(id)
        assert row["error_code"] == "AGENT_TIMEOUT"
        [fell] = event_payloads(harness, id, "FALLBACK_TRIGGERED")
        assert (fell["reason"], fell["to_agent"]) == ("VALIDATION_ERROR", "slow")
        assert event_payloads(harness, id, "AGENT_ATTEMPT_END")[1]["error_code"] == "AGENT_TIMEOUT"


async def test_cancelled_task_is_not_given_to_a_fallback_agent(tmp_path):
    app = App()
    began = anyio.Event()

    @app.workflow("a", fallback=["b"])
    async def a(ctx: TaskContext) -> None:
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            raise ValueError("on its way out")

    declare_failing(app, "b", AssertionError("not to be run"))
    async with lab(app, tmp_path) as harness:
        id = (await app.emit("a")).id
        await began.wait()
        await app.cancel_task(id)
        assert (await harness.ended(id))["status"] == "CANCELLED"
        assert "FALLBACK_TRIGGERED" not in harness.events(id)


@pytest.mark.parametrize(
    ("cause", "end"), [("cancelled", ("DONE", "cancelled")), ("shutdown", ("PENDING", "shutdown"))]
)
async def test_fallback_agent_does_not_begin_when_stopped_during_the_handover(tmp_path, monkeypatch, cause, end):
    app = App()
    declare_failing(app, "a", ValueError("a"), fallback=["b"])
    began: list[str] = []

    @app.workflow("b")
    async def b() -> None:
        began.append("b")

    async with lab(app, tmp_path) as harness:

        def stop() -> None:
            harness.engine.pause()  # a released trigger stays pending
            [run] = harness.engine.consumer.running.values()
            run.stop(cause)

        monkeypatch.setitem(failpoints._armed, Failpoint.FELL_BACK, stop)
        id = (await app.emit("a")).id
        await harness.until(lambda: harness.trigger(id)["reason"] is not None)
        row = harness.trigger(id)
        assert (row["status"], row["reason"]) == end
        assert began == []


@pytest.mark.parametrize("takes_ctx", [True, False])
async def test_shutdown_returns_the_trigger_without_trying_a_fallback_agent(tmp_path, takes_ctx):
    app = App()
    began = anyio.Event()

    async def fails_on_its_way_out() -> None:
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            raise ValueError("on its way out")

    async def with_ctx(ctx: TaskContext) -> None:
        await fails_on_its_way_out()

    app.workflow("a", fallback=["b"], max_attempts=1)(with_ctx if takes_ctx else fails_on_its_way_out)
    declare_failing(app, "b", AssertionError("not to be run"))
    async with lab(app, tmp_path, settings(shutdown_grace=0.0)) as harness:
        id = (await app.emit("a")).id
        await began.wait()
    [row] = look(harness.path, "SELECT status, attempts, reason FROM triggers WHERE id = :id", id=id)
    assert row == {"status": "PENDING", "attempts": 0, "reason": "shutdown"}


async def test_deadline_of_a_task_covers_all_agents_together(tmp_path):
    app = App()

    @app.workflow("a", fallback=["b"], deadline=0.05)
    async def a(ctx: TaskContext) -> None:
        await anyio.sleep_forever()

    declare_failing(app, "b", AssertionError("not to be run"))
    async with lab(app, tmp_path) as harness:
        id = (await app.emit("a")).id
        assert (await harness.ended(id))["error_code"] == "AGENT_TIMEOUT"
        assert "FALLBACK_TRIGGERED" not in harness.events(id)


# Irreversible actions


def build_paying_app(paid: list[str], *, then: BaseException | None, pays: BaseException | None = None) -> App:
    app = App()

    @app.action("pay", irreversible=True, on_unknown="assume_done")
    async def pay(call: Call) -> str:
        paid.append(call.key)
        if pays is not None:
            raise pays
        return "ref-1"

    @app.workflow("a", fallback=["b"], max_attempts=2)
    async def a(ctx: TaskContext) -> None:
        await ctx.act(pay)
        if then is not None:
            raise then

    @app.workflow("b")
    async def b(ctx: TaskContext) -> None:
        await ctx.act(pay)

    return app


@pytest.mark.parametrize(
    ("then", "pays"),
    [(ValueError("after"), None), (None, NoEffect("refused, nothing happened")), (None, Fail("CARD", "refused"))],
)
async def test_fallback_is_not_tried_after_an_irreversible_action_has_begun(tmp_path, then, pays):
    paid: list[str] = []
    app = build_paying_app(paid, then=then, pays=pays)
    async with lab(app, tmp_path) as harness:
        id = (await app.emit("a")).id
        assert (await harness.ended(id))["status"] == "FAILED"
        assert event_payloads(harness, id, "FALLBACK_TRIGGERED") == []
        assert {start["agent"] for start in event_payloads(harness, id, "AGENT_ATTEMPT_START")} == {"a"}
        assert set(paid) == {f"activity:{id}:1.1"}
        assert len(paid) == (2 if isinstance(pays, NoEffect) else 1)


async def test_fallback_ignores_acts_of_a_task_with_the_same_id_prefix(tmp_path):
    app = App()

    @app.action("pay", irreversible=True)
    async def pay(call: Call) -> str:
        return "ref-1"

    @app.workflow("refund")
    async def refund(ctx: TaskContext) -> None:
        await ctx.act(pay)

    declare_failing(app, "a", ValueError("a"), fallback=["b"], max_attempts=1)

    @app.workflow("b")
    async def b(ctx: TaskContext) -> str:
        return "b"

    async with lab(app, tmp_path) as harness:
        await app.emit_many([TriggerSpec(id="order:7:refund", workflow="refund")])
        await harness.ended("order:7:refund")
        await app.emit_many([TriggerSpec(id="order:7", workflow="a")])
        assert (await harness.ended("order:7"))["status"] == "DONE"


async def test_fallback_agent_that_has_acted_is_tried_first_on_retry(tmp_path):
    app = App()
    paid: list[str] = []
    tries: list[str] = []

    @app.action("pay", irreversible=True)
    async def pay(call: Call) -> str:
        paid.append(call.key)
        return "ref-1"

    @app.workflow("a", fallback=["b"], max_attempts=3)
    async def a(ctx: TaskContext) -> None:
        tries.append("a")
        raise ValueError("a")

    @app.workflow("b")
    async def b(ctx: TaskContext) -> str:
        tries.append("b")
        done: str = await ctx.act(pay)
        if len(tries) < 4:
            raise Retry("once more")
        return done

    async with lab(app, tmp_path) as harness:
        id = (await app.emit("a")).id
        row = await harness.ended(id)
        assert (row["status"], row["result_json"]) == ("DONE", '"ref-1"')
        assert tries == ["a", "b", "b", "b"]
        assert paid == [f"activity:{id}:1.1@b"]


async def test_act_keys_of_different_agents_of_a_task_are_different(tmp_path):
    app = App()
    calls: list[tuple[str, str]] = []

    async def call_with(call: Call, text: str) -> str:
        calls.append((text, call.key))
        return text

    look_up = app.action("look_up", irreversible=False)(call_with)
    pay = app.action("pay", irreversible=True)(call_with)

    @app.workflow("a", fallback=["b"])
    async def a(ctx: TaskContext) -> None:
        await ctx.act(look_up, text="looked up by a")
        raise ValueError("a")

    @app.workflow("b")
    async def b(ctx: TaskContext) -> Any:
        paid: str = await ctx.act(pay, text="paid by b")
        looked: str = await ctx.act(look_up, text="looked up by b")
        if ctx.attempt == 1:
            raise Retry("once more")
        return [paid, looked]

    async with lab(app, tmp_path) as harness:
        id = (await app.emit("a")).id
        assert (await harness.ended(id))["result_json"] == '["paid by b","looked up by b"]'
        assert calls == [
            ("looked up by a", f"activity:{id}:1.1"),
            ("paid by b", f"activity:{id}:1.1@b"),
            ("looked up by b", f"activity:{id}:1.2@b"),
        ]


# Completed steps


async def test_agents_of_a_task_have_separate_steps_notes_emits_and_waits(tmp_path):
    app = App()
    ran: list[str] = []

    def fetch(agent: str) -> str:
        ran.append(agent)
        return f"fetched by {agent}"

    @app.workflow("a", fallback=["b"], max_attempts=3)
    async def a(ctx: TaskContext) -> None:
        assert await ctx.step("fetch", fetch, "a") == "fetched by a"
        await ctx.note("seen", "a")
        await ctx.emit("other", {"by": "a"})
        await ctx.sleep(0)
        raise ValueError("a")

    @app.workflow("b")
    async def b(ctx: TaskContext) -> str:
        assert await ctx.step("fetch", fetch, "b") == "fetched by b"
        await ctx.note("seen", "b")
        await ctx.emit("other", {"by": "b"})
        answer = await ctx.ask("Go on?", ["yes", "no"])
        assert answer == "yes"
        ran.append("asked")
        if ran.count("asked") < 2:
            raise Retry("once more")
        return "done"

    others: list[str] = []

    @app.workflow("other")
    async def other(by: str) -> None:
        others.append(by)

    async with lab(app, tmp_path) as harness:
        id = (await app.emit("a")).id
        question = await harness.question()
        assert harness.task(id)["agent"] == "b", "the waiting agent continues the task"
        await app.answer(question["id"], "yes", answered_by="ada")
        row = await harness.ended(id)
        assert (row["status"], row["result_json"]) == ("DONE", '"done"')
        await harness.idle()
        assert ran == ["a", "b", "asked", "asked"], "each fetched once, over all attempts"
        assert sorted(others) == ["a", "b"]
        starts = [start["agent"] for start in event_payloads(harness, id, "AGENT_ATTEMPT_START")]
        assert starts[0] == "a"
        assert starts[-2:] == ["a", "b"], "a retried attempt begins with the first agent"


async def test_turn_after_continue_begins_with_the_agent_that_set_the_state(tmp_path):
    app = App()
    seen: list[tuple[str, int, Any]] = []

    @app.workflow("a", fallback=["b", "c"], max_attempts=3)
    async def a(ctx: TaskContext) -> None:
        seen.append(("a", ctx.turn, ctx.state))
        raise ValueError("a")

    @app.workflow("b")
    async def b(ctx: TaskContext) -> Any:
        seen.append(("b", ctx.turn, ctx.state))
        if ctx.turn == 1:
            return Continue({"by": "b"})
        raise Retry("b fails in its second turn")

    @app.workflow("c")
    async def c(ctx: TaskContext) -> str:
        seen.append(("c", ctx.turn, ctx.state))
        if ctx.attempt == 1:
            raise Retry("the first time")
        return "c"

    async with lab(app, tmp_path) as harness:
        id = (await app.emit("a")).id
        assert (await harness.ended(id))["result_json"] == '"c"'
        state = {"by": "b"}
        assert seen == [
            ("a", 1, None),
            ("b", 1, None),
            ("b", 2, state),
            ("c", 2, state),
            ("b", 2, state),
            ("c", 2, state),
        ]


async def test_agents_with_and_without_ctx_may_fall_back_to_each_other(tmp_path):
    app = App()

    @app.workflow("plain", fallback=["deep"])
    async def plain() -> None:
        raise ValueError("plain")

    @app.workflow("deep", fallback=["plain"])
    async def deep(ctx: TaskContext) -> str:
        return await ctx.step("name", lambda: ctx.task_id)

    @app.workflow("first", fallback=["last"])
    async def first(ctx: TaskContext) -> None:
        raise ValueError("first")

    @app.workflow("last")
    def last() -> str:
        return "in a thread"

    async with lab(app, tmp_path) as harness:
        begun = (await app.emit("plain")).id
        assert json.loads((await harness.ended(begun))["result_json"]) == begun
        ended = (await app.emit("first")).id
        assert json.loads((await harness.ended(ended))["result_json"]) == "in a thread"


# Routers


class FixedRouter:
    """A router with a fixed route."""

    def __init__(self, route: Any) -> None:
        self.answer = route

    async def route(self, trigger: RoutedTrigger, context: RoutingContext) -> Route:
        answer: Route = self.answer
        return answer


def build_three(router: FixedRouter) -> App:
    """Build an app in which workflow a falls back to b, and c succeeds."""
    app = App(router=router)
    declare_failing(app, "a", ValueError("a"), fallback=["b"], max_attempts=2)
    declare_failing(app, "b", ValueError("b"))

    @app.workflow("c")
    async def c(ctx: TaskContext) -> str:
        if ctx.attempt == 1:
            raise Retry("the first time")
        return "c"

    return app


async def test_router_fallback_order_applies_to_every_attempt_of_the_task(tmp_path):
    app = build_three(FixedRouter(Route(workflow="a", fallback=("c",))))
    async with lab(app, tmp_path) as harness:
        id = (await app.emit(None, source="MESSAGE")).id
        assert (await harness.ended(id))["status"] == "DONE"
        assert [start["agent"] for start in event_payloads(harness, id, "AGENT_ATTEMPT_START")] == ["a", "c"] * 2


async def test_router_may_name_the_first_version_explicitly(tmp_path):
    app = build_three(FixedRouter(Route(workflow="a@1.0", fallback=("c@1.0",))))
    async with lab(app, tmp_path) as harness:
        id = (await app.emit(None, source="MESSAGE")).id
        assert (await harness.ended(id))["status"] == "DONE"
        assert [start["agent"] for start in event_payloads(harness, id, "AGENT_ATTEMPT_START")] == ["a", "c"] * 2


async def test_router_strategy_direct_ignores_the_declared_fallback(tmp_path):
    app = build_three(FixedRouter(Route(workflow="a", strategy=Strategy.DIRECT)))
    async with lab(app, tmp_path) as harness:
        id = (await app.emit(None, source="MESSAGE")).id
        assert (await harness.settled(id))["status"] == "DEAD"
        assert [start["agent"] for start in event_payloads(harness, id, "AGENT_ATTEMPT_START")] == ["a"] * 2
        assert (
            json.loads(harness.rows("SELECT routing_json FROM executions")[0]["routing_json"])["strategy"] == "DIRECT"
        )


async def test_retry_of_a_trigger_routed_into_a_session_asks_the_router_again(tmp_path):
    app = App(router=FixedRouter(Route(workflow="a", session_id="third", fallback=("b",))))
    declare_failing(app, "a", Retry("a"), max_attempts=2)
    declare_failing(app, "b", Retry("b"))

    @app.workflow("talk", sources=["MESSAGE"])
    async def talk(ctx: TaskContext) -> None:
        await ctx.wait_for("bye")

    async with lab(app, tmp_path) as harness:
        for session in ("first", "second"):
            await harness.waiting((await app.emit("talk", session_id=session)).id)
        id = (await app.emit(None, source="MESSAGE")).id
        assert (await harness.settled(id))["status"] == "DEAD"
        assert [start["agent"] for start in event_payloads(harness, id, "AGENT_ATTEMPT_START")] == ["a", "b"] * 2


async def test_route_without_a_fallback_uses_the_declared_fallback(tmp_path):
    app = build_three(FixedRouter(Route(workflow="a")))
    async with lab(app, tmp_path) as harness:
        id = (await app.emit(None, source="MESSAGE")).id
        await harness.settled(id)
        assert [start["agent"] for start in event_payloads(harness, id, "AGENT_ATTEMPT_START")] == ["a", "b"] * 2


async def test_undeclared_fallback_agent_fails_and_the_next_agent_is_tried(tmp_path):
    app = build_three(FixedRouter(Route(workflow="a", fallback=("ghost", "c"))))
    async with lab(app, tmp_path) as harness:
        id = (await app.emit(None, source="MESSAGE")).id
        assert (await harness.ended(id))["status"] == "DONE"
        assert "CAPABILITY_NOT_FOUND" in [fell["reason"] for fell in event_payloads(harness, id, "FALLBACK_TRIGGERED")]


@pytest.mark.parametrize(
    "route",
    [
        Route(workflow="a", fallback=("b",), strategy=Strategy.DIRECT),
        Route(workflow="a", fallback=("b", "a")),
        Route(workflow="a", fallback=("b", "a@1.0")),
        Route(workflow="a", fallback=["b"]),  # type: ignore[arg-type]
        Route(workflow="a", fallback=('b"',)),
        Route(session_id="s", fallback=("b",)),
        Route(workflow="a", strategy="PARALLEL"),  # type: ignore[arg-type]
    ],
)
async def test_route_with_an_invalid_fallback_order_fails_the_attempt(tmp_path, route):
    app = build_three(FixedRouter(route))
    async with lab(app, tmp_path) as harness:
        row = await harness.settled((await app.emit(None, source="MESSAGE")).id)
        assert (row["status"], row["error_code"]) == ("DEAD", "ROUTING_ERROR")


# Declarations


@pytest.mark.parametrize("fallback", ["b", ["a"], ["b", "b"], ["not a name"], [7], [f"w{n}" for n in range(21)]])
def test_declared_fallback_that_is_not_a_list_of_other_workflows_is_refused(fallback):
    with pytest.raises(ConfigInvalid, match="fallback"):
        App().workflow("a", fallback=fallback)(lambda: None)


async def test_engine_start_is_refused_with_an_undeclared_fallback(tmp_path):
    app = App()
    declare_failing(app, "a", ValueError("a"), fallback=["ghost"])
    with pytest.raises(ConfigInvalid, match="a falls back to ghost"):
        async with lab(app, tmp_path):
            pass


async def test_workflow_versions_are_separate_and_the_bare_name_is_the_first(tmp_path):
    app = App()

    @app.workflow("brief")
    async def first() -> str:
        return "first"

    @app.workflow("brief", version="2.0", fallback=["brief@1.0"])
    async def second(fails: bool = False) -> str:
        if fails:
            raise ValueError("second")
        return "second"

    with pytest.raises(ConfigInvalid, match="declared twice"):
        app.workflow("brief", version="1.0")(lambda: None)
    async with lab(app, tmp_path) as harness:
        for asked, version, payload in (
            ("brief", "1.0", "first"),
            ("brief@1.0", "1.0", "first"),
            ("brief@2.0", "2.0", "second"),
        ):
            id = (await app.emit(asked)).id
            await harness.settled(id)
            assert harness.response(id)["payload"] == payload
            [record] = harness.rows("SELECT envelope_json FROM executions WHERE trigger_id = :id", id=id)
            assert json.loads(record["envelope_json"])["intent"] == {"name": "brief", "version": version}


async def test_child_started_by_first_version_name_is_retried(tmp_path):
    app = App()

    @app.workflow("brief", max_attempts=2)
    async def brief(ctx: TaskContext) -> str:
        if ctx.attempt == 1:
            raise Retry("once more")
        return "first"

    @app.workflow("parent")
    async def parent(ctx: TaskContext) -> Any:
        return await (await ctx.start_child("brief@1.0")).result()

    async with lab(app, tmp_path) as harness:
        assert (await harness.ended((await app.emit("parent")).id))["result_json"] == '"first"'
