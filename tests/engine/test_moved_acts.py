"""Acts whose key is added, removed or changed in mid-turn: the action is not repeated."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from benchmarks.cost import counted
from craftcore import App, Call, Continue, TaskContext
from tests.support.acts import Provider, ledger, questions
from tests.support.engine_harness import Lab, lab
from tests.support.log_capture import capture_logs
from tests.support.turns import failure, result

pytestmark = pytest.mark.anyio

Turn = Callable[[TaskContext], Awaitable[Any]]


def build_app(provider: Provider, turn: Turn) -> App:
    app = App("payer")

    @app.action("pay", irreversible=True)
    async def pay(call: Call, *, to: str) -> Any:
        return await provider(call, to=to)

    async def workflow(ctx: TaskContext) -> Any:
        return await turn(ctx)

    app.declare("pay", workflow, max_attempts=3)
    return app


def paying_turn(*acts: tuple[str | None, str], then: tuple[tuple[str | None, str], ...] = ()) -> Turn:
    """Return a turn that makes the `acts` as (key, to), waits for `go`, and makes the acts of `then`."""

    async def turn(ctx: TaskContext) -> Any:
        done = [await ctx.act("pay", key=key, to=to) for key, to in acts]
        await ctx.wait_for("go")
        return done + [await ctx.act("pay", key=key, to=to) for key, to in then]

    return turn


async def start_task(folder: Path, app: App) -> str:
    """Run a task of the first app until it waits and return its id."""
    async with lab(app, folder) as harness:
        task_id = (await harness.app.emit("pay")).id
        await harness.waiting(task_id)
    return task_id


async def finish_task(harness: Lab, task_id: str) -> dict[str, Any]:
    await harness.app.signal(task_id, "go")
    return await harness.ended(task_id)


def act_names(harness: Lab) -> list[str]:
    return [row["idem_key"].rsplit(":", 1)[1] for row in ledger(harness)]


@pytest.mark.parametrize(
    ("was", "now"), [(None, "fee"), ("fee", None), ("fee", "rent")], ids=["added", "removed", "renamed"]
)
async def test_act_with_a_changed_key_is_not_done_again(tmp_path, was, now):
    provider = Provider()
    task_id = await start_task(tmp_path, build_app(provider, paying_turn((was, "ada"))))

    async with lab(build_app(provider, paying_turn((now, "ada"))), tmp_path) as harness:
        assert result(await finish_task(harness, task_id)) == ["ref-1"]

        assert act_names(harness) == [was or "1.1"]
    assert len(provider.calls) == 1


@pytest.mark.parametrize(("was", "now"), [(None, "fee"), ("fee", None)], ids=["added", "removed"])
async def test_act_in_doubt_with_a_changed_key_keeps_its_question(tmp_path, was, now):
    provider = Provider(RuntimeError("connection lost"))
    async with lab(build_app(provider, paying_turn((was, "ada"))), tmp_path) as harness:
        task_id = (await harness.app.emit("pay")).id
        asked = await harness.question("activity")

    async with lab(build_app(provider, paying_turn((now, "ada"))), tmp_path) as harness:
        await harness.app.answer(asked["id"], "resend", answered_by="ada")
        assert result(await finish_task(harness, task_id)) == ["ref-2"]

        assert questions(harness) == [("activity", "ANSWERED")]
    assert [(key.rsplit(":", 1)[1], attempt) for key, attempt, _ in provider.calls] == [
        (was or "1.1", 1),
        (was or "1.1", 2),
    ]


async def test_first_act_with_a_new_key_leaves_the_later_ones_their_acts(tmp_path):
    """The later acts are then counted from 1, and one of them is not yet done."""
    provider = Provider()
    task_id = await start_task(tmp_path, build_app(provider, paying_turn((None, "ada"), (None, "bob"))))
    code = paying_turn(("fee", "ada"), (None, "bob"), then=((None, "eve"),))

    async with lab(build_app(provider, code), tmp_path) as harness:
        assert result(await finish_task(harness, task_id)) == ["ref-1", "ref-2", "ref-3"]

        assert act_names(harness) == ["1.1", "1.2", "1.3"]
    assert [to for _, _, to in provider.calls] == ["ada", "bob", "eve"]


async def test_acts_after_a_moved_act_are_found_at_later_entries(tmp_path):
    provider = Provider()

    async def turn(ctx: TaskContext) -> Any:
        done = [await ctx.act("pay", key="fee", to="ada")]
        for _ in range(2):
            await ctx.wait_for("go")
            done.append(await ctx.act("pay", to="bob"))
        await ctx.wait_for("go")
        return done

    task_id = await start_task(tmp_path, build_app(provider, paying_turn((None, "ada"))))
    async with lab(build_app(provider, turn), tmp_path) as harness:
        for count in (2, 3):
            await harness.app.signal(task_id, "go")
            await harness.until(lambda count=count: len(provider.calls) == count)  # type: ignore[misc]
            await harness.waiting(task_id)

        assert result(await finish_task(harness, task_id)) == ["ref-1", "ref-2", "ref-3"]
        assert questions(harness) == []


async def test_new_act_with_other_arguments_is_done(tmp_path):
    provider = Provider()
    task_id = await start_task(tmp_path, build_app(provider, paying_turn((None, "ada"))))

    async with lab(build_app(provider, paying_turn(("fee", "bob"))), tmp_path) as harness:
        assert result(await finish_task(harness, task_id)) == ["ref-2"]


async def test_new_act_like_an_act_that_is_still_called_is_done_once(tmp_path):
    provider = Provider()
    task_id = await start_task(tmp_path, build_app(provider, paying_turn((None, "ada"))))

    async with lab(build_app(provider, paying_turn(("fee", "ada"), (None, "ada"))), tmp_path) as harness:
        assert sorted(result(await finish_task(harness, task_id))) == ["ref-1", "ref-2"]
    assert len(provider.calls) == 2


async def test_act_whose_row_was_taken_by_another_key_is_refused(tmp_path):
    provider = Provider()
    task_id = await start_task(tmp_path, build_app(provider, paying_turn(("fee", "ada"))))

    async with lab(build_app(provider, paying_turn(("rent", "ada"), ("fee", "ada"))), tmp_path) as harness:
        await harness.app.signal(task_id, "go")
        code, message = failure(await harness.ended(task_id))

        assert code == "IDEMPOTENCY_CONFLICT"
        assert f"the act with its key activity:{task_id}:fee was taken for another call" in message
    assert len(provider.calls) == 1


@pytest.mark.parametrize(
    ("answer", "kept", "calls"), [("same", ["ref-1"], 2), ("another", ["ref-3"], 3)], ids=["same", "another"]
)
async def test_act_like_several_acts_is_held_until_a_person_answers(tmp_path, answer, kept, calls):
    provider = Provider()
    task_id = await start_task(tmp_path, build_app(provider, paying_turn((None, "ada"), (None, "ada"))))

    async with lab(build_app(provider, paying_turn(("fee", "ada"))), tmp_path) as harness:
        await harness.app.signal(task_id, "go")
        asked = await harness.question("conflict")
        assert len(provider.calls) == 2
        assert f"{task_id}:1.1 is: it has the same arguments, is DONE" in asked["question"]
        await harness.app.answer(asked["id"], answer, answered_by="ada")

        assert result(await harness.ended(task_id)) == kept
        assert len(provider.calls) == calls


async def test_concurrent_act_with_a_changed_key_is_held_until_a_person_answers(tmp_path):
    provider = Provider()

    def sibling_turn(key: str) -> Turn:
        async def turn(ctx: TaskContext) -> Any:
            async with anyio.create_task_group() as group:
                group.start_soon(partial(ctx.act, "pay", key=key, to="ada"))
            await ctx.wait_for("go")
            return "over"

        return turn

    task_id = await start_task(tmp_path, build_app(provider, sibling_turn("fee")))
    async with lab(build_app(provider, sibling_turn("rent")), tmp_path) as harness:
        await harness.app.signal(task_id, "go")
        asked = await harness.question("conflict")
        await harness.app.answer(asked["id"], "same", answered_by="ada")

        assert result(await harness.ended(task_id)) == "over"
    assert len(provider.calls) == 1


async def test_concurrent_acts_with_the_same_arguments_keep_their_keys(tmp_path):
    """The code is unchanged. One of several acts with the same arguments was done when the process ended."""
    provider = Provider()

    def concurrent_turn(*keys: str) -> Turn:
        async def turn(ctx: TaskContext) -> Any:
            async with anyio.create_task_group() as group:
                for key in keys:
                    group.start_soon(partial(ctx.act, "pay", key=key, to="ada"))
            await ctx.wait_for("go")
            return "over"

        return turn

    task_id = await start_task(tmp_path, build_app(provider, concurrent_turn("b")))
    async with lab(build_app(provider, concurrent_turn("a", "b")), tmp_path) as harness:
        assert result(await finish_task(harness, task_id)) == "over"
        assert sorted(act_names(harness)) == ["a", "b"]


async def test_separate_keys_of_each_attempt_make_separate_acts(tmp_path):
    """Both attempts run in the same process, so no other code can have run before."""
    provider = Provider()

    async def turn(ctx: TaskContext) -> Any:
        sent = await ctx.act("pay", key=f"attempt-{ctx.attempt}", to="ada")
        if ctx.attempt == 1:
            raise ValueError("not yet")
        return sent

    async with lab(build_app(provider, turn), tmp_path) as harness:
        assert result(await harness.ended((await harness.app.emit("pay")).id)) == "ref-2"


@pytest.mark.parametrize(
    ("names", "warned"),
    [(("ask", "say"), True), (("ask/1", "ask/2"), True), (("ask", "ask"), False)],
    ids=["renamed", "another key", "unchanged"],
)
async def test_step_that_runs_again_under_another_name_is_logged(tmp_path, names, warned):
    def asking_turn(named: str) -> Turn:
        async def turn(ctx: TaskContext) -> Any:
            name, _, key = named.partition("/")
            answer = await ctx.step(name, str.upper, "what", key=key or None)
            await ctx.wait_for("go")
            return answer

        return turn

    first, second = (build_app(Provider(), asking_turn(named)) for named in names)
    task_id = await start_task(tmp_path, first)
    with capture_logs() as logs:
        async with lab(second, tmp_path) as harness:
            assert result(await finish_task(harness, task_id)) == "WHAT"

    logged = [(line["step"], line["completed_as"]) for line in logs if line["event"] == "step.run_again"]
    assert logged == [(f"step:{names[1]}", f"step:{names[0]}")] * warned


async def test_act_of_an_earlier_turn_keeps_its_key(tmp_path):
    """A key applies to the whole task, and the code is unchanged."""
    provider = Provider()

    async def turn(ctx: TaskContext) -> Any:
        paid = [await ctx.act("pay", key=f"month-{month}", to="ada") for month in range(1, ctx.turn + 1)]
        if ctx.turn == 1:
            return Continue(None)
        await ctx.wait_for("go")
        return paid

    task_id = await start_task(tmp_path, build_app(provider, turn))
    async with lab(build_app(provider, turn), tmp_path) as harness:
        assert result(await finish_task(harness, task_id)) == ["ref-1", "ref-2"]
    assert len(provider.calls) == 2


async def test_acts_after_a_wait_cost_as_many_statements_as_before(tmp_path):
    """An entry reads the earlier acts of its turn once, and not at each act."""
    costs: dict[str, float] = {}

    async def turn(ctx: TaskContext) -> None:
        await ctx.act("pay", to="first")
        for part in ("before", "after"):
            if part == "after":
                await ctx.wait_for("go")
            with counted(harness.engine) as cost:
                for number in range(20):
                    await ctx.act("pay", to=f"{part}-{number}")
            costs.setdefault(part, cost.statements)

    async with lab(build_app(Provider(), turn), tmp_path) as harness:
        task_id = (await harness.app.emit("pay")).id
        await harness.waiting(task_id)
        await finish_task(harness, task_id)

    assert costs["after"] <= costs["before"] + 3
