"""Actions whose declaration changes in mid-turn: the recorded call decides, and no call is repeated."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from craftcore import App, Call, Continue, Fail, NoEffect, TaskContext
from tests.support.acts import Provider, ledger, questions, statuses
from tests.support.engine_harness import Lab, lab
from tests.support.turns import failure, result

Turn = Callable[[TaskContext], Awaitable[Any]]


def build_app(provider: Provider, turn: Turn, *, irreversible: bool) -> App:
    """Build one deployment from the declaration of `pay` and the turn of the workflow."""
    app = App("payer")

    async def pay(call: Call, *, to: str) -> Any:
        return await provider(call, to=to)

    app.action("pay", irreversible=irreversible)(pay)

    async def workflow(ctx: TaskContext) -> Any:
        return await turn(ctx)

    app.declare("pay", workflow, max_attempts=3)
    return app


async def run_over_deployment(folder: Path, first: App, second: App) -> tuple[dict[str, Any], Lab]:
    """Start a task under the first app, signal `go` under the second, and return the ended row and the second lab."""
    async with lab(first, folder) as harness:
        task_id = (await harness.app.emit("pay")).id
        await harness.waiting(task_id)
    async with lab(second, folder) as harness:
        await harness.app.signal(task_id, "go")
        return await harness.ended(task_id), harness


def acting_turn(key: str | None = None, to: str = "ada") -> Turn:
    async def turn(ctx: TaskContext) -> Any:
        done = await ctx.act("pay", key=key, to=to)
        await ctx.wait_for("go")
        return done

    return turn


def step_turn(provider: Provider, key: str | None = None) -> Turn:
    async def turn(ctx: TaskContext) -> Any:
        done = await ctx.step("pay", step_function(provider), "ada", key=key)
        await ctx.wait_for("go")
        return done

    return turn


def step_function(provider: Provider) -> Callable[[str], Awaitable[Any]]:
    async def pay(to: str) -> Any:
        provider.calls.append(("step", 1, to))
        return f"ref-{len(provider.calls)}"

    return pay


KEYS = [pytest.param(None, id="counted"), pytest.param("rent", id="keyed")]


@pytest.mark.anyio
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("was", [True, False], ids=["was irreversible", "becomes irreversible"])
async def test_changed_irreversible_flag_does_not_repeat_a_done_action(tmp_path, was, key):
    provider = Provider()
    first, second = (
        build_app(provider, acting_turn(key), irreversible=irreversible) for irreversible in (was, not was)
    )

    row, _ = await run_over_deployment(tmp_path, first, second)

    assert result(row) == "ref-1"
    assert len(provider.calls) == 1


@pytest.mark.anyio
async def test_action_made_irreversible_repeats_no_done_calls_and_makes_the_rest(tmp_path):
    provider = Provider()

    def paying_turn(count: int) -> Turn:
        async def turn(ctx: TaskContext) -> Any:
            done = [await ctx.act("pay", to=f"payee {number}") for number in range(count)]
            await ctx.wait_for("go")
            return done

        return turn

    first = build_app(provider, paying_turn(2), irreversible=False)
    row, harness = await run_over_deployment(tmp_path, first, build_app(provider, paying_turn(3), irreversible=True))

    assert result(row) == ["ref-1", "ref-2", "ref-3"]
    assert [to for _, _, to in provider.calls] == ["payee 0", "payee 1", "payee 2"]
    assert [row["idem_key"].rsplit(":", 1)[1] for row in ledger(harness)] == ["1.3"]


@pytest.mark.anyio
@pytest.mark.parametrize("was", [True, False], ids=["was irreversible", "becomes irreversible"])
async def test_used_key_with_other_arguments_is_refused_after_the_flag_changed(tmp_path, was):
    provider = Provider()
    first = build_app(provider, acting_turn("rent"), irreversible=was)

    row, harness = await run_over_deployment(
        tmp_path, first, build_app(provider, acting_turn("rent", "bob"), irreversible=not was)
    )

    assert failure(row)[0] == "IDEMPOTENCY_CONFLICT"
    assert questions(harness) == [("conflict", "OPEN")]
    assert len(provider.calls) == 1


@pytest.mark.anyio
async def test_act_in_doubt_still_needs_an_answer_after_becoming_reversible(tmp_path):
    provider = Provider(RuntimeError("connection lost"))
    async with lab(build_app(provider, acting_turn(), irreversible=True), tmp_path) as harness:
        task_id = (await harness.app.emit("pay")).id
        asked = await harness.question("activity")
    async with lab(build_app(provider, acting_turn(), irreversible=False), tmp_path) as harness:
        await harness.app.answer(asked["id"], "happened", reference="ref-0", answered_by="ada")
        await harness.app.signal(task_id, "go")
        assert result(await harness.ended(task_id)) == "ref-0"
    assert len(provider.calls) == 1


@pytest.mark.anyio
async def test_act_with_no_effect_is_called_again_after_becoming_reversible(tmp_path):
    provider = Provider(NoEffect("refused"))

    async def turn(ctx: TaskContext) -> Any:
        try:
            return await ctx.act("pay", to="ada")
        except NoEffect:
            await ctx.wait_for("go")
            raise

    first, second = (build_app(provider, turn, irreversible=irreversible) for irreversible in (True, False))
    row, harness = await run_over_deployment(tmp_path, first, second)

    assert result(row) == "ref-2"
    assert provider.attempts == [1, 2]
    assert statuses(harness) == ["DONE"]


@pytest.mark.anyio
async def test_act_key_of_an_earlier_turn_is_found_after_becoming_reversible(tmp_path):
    provider = Provider()

    async def turn(ctx: TaskContext) -> Any:
        done = await ctx.act("pay", key="rent", to="ada")
        return Continue(None, on="go") if ctx.turn == 1 else done

    first, second = (build_app(provider, turn, irreversible=irreversible) for irreversible in (True, False))
    row, _ = await run_over_deployment(tmp_path, first, second)

    assert result(row) == "ref-1"
    assert len(provider.calls) == 1


@pytest.mark.anyio
async def test_keyed_step_of_a_failed_agent_is_known_to_the_fallback_agent(tmp_path):
    provider = Provider()

    def build_apps(*, irreversible: bool) -> App:
        async def first(ctx: TaskContext) -> Any:
            await ctx.act("pay", key="rent", to="ada")
            raise Fail("NO", "no")

        async def second(ctx: TaskContext) -> Any:
            await ctx.wait_for("go")
            return await ctx.act("pay", key="rent", to="ada")

        app = build_app(provider, first, irreversible=irreversible)
        app.remove_workflow("pay")
        app.declare("pay", first, fallback=["second"])
        app.declare("second", second)
        return app

    row, _ = await run_over_deployment(tmp_path, build_apps(irreversible=False), build_apps(irreversible=True))

    assert result(row) == "ref-1"
    assert len(provider.calls) == 1


@pytest.mark.anyio
async def test_act_of_another_action_in_the_place_of_a_done_act_is_refused(tmp_path):
    provider = Provider()

    async def turn(ctx: TaskContext) -> Any:
        done = await ctx.act("charge", to="ada")
        await ctx.wait_for("go")
        return done

    first, second = (build_app(provider, one, irreversible=True) for one in (acting_turn(), turn))
    second.action("charge", irreversible=True)(provider)

    row, _ = await run_over_deployment(tmp_path, first, second)

    code, message = failure(row)
    assert code == "IDEMPOTENCY_CONFLICT"
    assert "was used before for pay" in message
    assert len(provider.calls) == 1


# Steps


@pytest.mark.anyio
@pytest.mark.parametrize("key", KEYS)
async def test_step_changed_to_an_act_of_the_same_name_is_not_repeated(tmp_path, key):
    provider = Provider()
    first = build_app(provider, step_turn(provider, key), irreversible=True)

    row, _ = await run_over_deployment(tmp_path, first, build_app(provider, acting_turn(key), irreversible=True))

    assert result(row) == "ref-1"
    assert len(provider.calls) == 1


@pytest.mark.anyio
@pytest.mark.parametrize("key", KEYS)
async def test_step_changed_to_an_act_with_other_arguments_is_a_conflict(tmp_path, key):
    provider = Provider()
    first = build_app(provider, step_turn(provider, key), irreversible=True)

    row, _ = await run_over_deployment(tmp_path, first, build_app(provider, acting_turn(key, "bob"), irreversible=True))

    code, message = failure(row)
    assert code == "IDEMPOTENCY_CONFLICT"
    assert "was used before for the step pay" in message
    assert len(provider.calls) == 1


@pytest.mark.anyio
@pytest.mark.parametrize("key", KEYS)
async def test_done_act_changed_to_a_step_of_the_same_name_is_refused(tmp_path, key):
    provider = Provider()
    first = build_app(provider, acting_turn(key), irreversible=True)

    row, _ = await run_over_deployment(
        tmp_path, first, build_app(provider, step_turn(provider, key), irreversible=True)
    )

    code, message = failure(row)
    assert code == "STEP_CONFLICT"
    assert message.startswith("step pay was not run: in this turn pay was called as an irreversible action, and acti")
    assert "is DONE: the provider answered. Call it with ctx.act again" in message
    assert len(provider.calls) == 1


@pytest.mark.anyio
async def test_act_with_no_effect_changed_to_a_step_is_run(tmp_path):
    provider = Provider(NoEffect("refused"))

    async def turn(ctx: TaskContext) -> Any:
        try:
            return await ctx.act("pay", to="ada")
        except NoEffect:
            await ctx.wait_for("go")
            raise

    first, second = (build_app(provider, one, irreversible=True) for one in (turn, step_turn(provider)))
    row, _ = await run_over_deployment(tmp_path, first, second)

    assert result(row) == "ref-2"


@pytest.mark.anyio
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("order", ["act, step", "step, act"])
async def test_step_and_act_of_the_same_name_in_a_turn_are_separate(tmp_path, order, key):
    provider = Provider()

    async def turn(ctx: TaskContext) -> Any:
        done = {}
        for call in order.split(", "):
            if call == "act":
                done[call] = await ctx.act("pay", key=key, to="ada")
            else:
                done[call] = await ctx.step("pay", step_function(provider), "ada", key=key)
            await ctx.wait_for("go")
        return [done["step"], done["act"]]

    async with lab(build_app(provider, turn, irreversible=True), tmp_path) as harness:
        task_id = (await harness.app.emit("pay")).id
        for _ in range(2):
            await harness.waiting(task_id)
            await harness.app.signal(task_id, "go")
        ended = await harness.ended(task_id)

    assert sorted(result(ended)) == ["ref-1", "ref-2"]
    assert sorted(key.partition(":")[0] for key, _, _ in provider.calls) == ["activity", "step"]


@pytest.mark.anyio
async def test_second_act_of_the_name_of_a_done_step_is_a_separate_act(tmp_path):
    provider = Provider()

    async def twice(ctx: TaskContext) -> Any:
        done = [await ctx.act("pay", to="ada") for _ in range(2)]
        await ctx.wait_for("go")
        return done

    first = build_app(provider, step_turn(provider), irreversible=True)
    async with lab(first, tmp_path) as harness:
        task_id = (await harness.app.emit("pay")).id
        await harness.waiting(task_id)
    async with lab(build_app(provider, twice, irreversible=True), tmp_path) as harness:
        await harness.app.signal(task_id, "go")
        assert result(await harness.ended(task_id)) == ["ref-1", "ref-2"]
    assert len(provider.calls) == 2
