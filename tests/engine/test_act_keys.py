"""Keys of acts, concurrent acts with one key, unstorable results, and a ledger that cannot be written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import anyio
import pytest

from craftcore import App, Call, Continue, Fail, NoEffect, TaskContext
from craftcore.errors import IdempotencyConflict, KeyRequired, PermissionRefused, StorageError, StorageFull
from craftcore.storage.transaction import Transaction
from craftcore.tasks.activity_events import ActivityEvents, NewAct
from craftcore.testing.faulty_disk import FaultyDisk
from tests.support.acts import Gate, Provider, activity_events, ledger, questions, statuses
from tests.support.engine_harness import lab, settings
from tests.support.fakes import VirtualClock
from tests.support.processes import PATIENCE
from tests.support.turns import begin, failure, result, run

pytestmark = pytest.mark.anyio


def declare_send(app: App, provider: Provider, **options: Any) -> Any:
    return app.action("send", **{"irreversible": True, **options})(provider)


# Actions without the flag


async def test_reversible_action_runs_as_a_step_and_is_not_in_the_ledger(tmp_path):
    app, provider = App(), Provider()
    look = declare_send(app, provider, irreversible=False)

    async def turn(ctx: TaskContext) -> Any:
        got = [await ctx.act(look, to="ada"), await ctx.act(look, to="ada")]
        if ctx.attempt == 1:
            raise ValueError("not yet")
        return got

    async with lab(app, tmp_path) as harness:
        assert result(await run(harness, turn)) == ["ref-1", "ref-2"]
        assert len(provider.calls) == 2
        assert ledger(harness) == []


# Keys


async def test_same_act_twice_in_a_turn_is_called_twice_over_all_attempts(tmp_path):
    app, provider = App(), Provider()
    send = declare_send(app, provider)

    async def turn(ctx: TaskContext) -> Any:
        got = [await ctx.act(send, to="happy birthday") for _ in range(2)]
        if ctx.attempt == 1:
            raise ValueError("not yet")
        return got

    async with lab(app, tmp_path) as harness:
        assert result(await run(harness, turn)) == ["ref-1", "ref-2"]
        assert [to for _, _, to in provider.calls] == ["happy birthday"] * 2
        assert len({key for key, _, _ in provider.calls}) == 2


async def test_keyed_act_returns_the_first_result_in_a_later_turn(tmp_path):
    app, provider = App(), Provider()
    send = declare_send(app, provider)

    async def turn(ctx: TaskContext) -> Any:
        ref = await ctx.act(send, to="ada", key="welcome")
        return Continue([ref]) if ctx.turn == 1 else [*(ctx.state or []), ref]

    async with lab(app, tmp_path) as harness:
        row = await run(harness, turn)
        assert result(row) == ["ref-1", "ref-1"]
        assert provider.calls == [(f"activity:{row['id']}:welcome", 1, "ada")]


@pytest.mark.parametrize("key", [None, "welcome"])
async def test_act_with_changed_arguments_on_retry_fails_the_task_and_asks_a_person(tmp_path, key):
    app, provider = App(), Provider()
    send = declare_send(app, provider)

    async def turn(ctx: TaskContext) -> Any:
        await ctx.act(send, to=f"attempt {ctx.attempt}", key=key)
        if ctx.attempt == 1:
            raise ValueError("not yet")

    async with lab(app, tmp_path) as harness:
        code, message = failure(await run(harness, turn))

        assert code == "IDEMPOTENCY_CONFLICT"
        assert "with other arguments" in message
        assert len(provider.calls) == 1
        assert statuses(harness) == ["DONE"]
        assert questions(harness) == [("conflict", "OPEN")]


async def test_act_key_already_used_by_another_action_is_refused(tmp_path):
    app, provider, other = App(), Provider(), Provider()
    send, post = declare_send(app, provider), app.action("post", irreversible=True)(other)

    async def turn(ctx: TaskContext) -> Any:
        await ctx.act(send, key="it")
        with pytest.raises(IdempotencyConflict, match="was used before for send"):
            await ctx.act(post, key="it")

    async with lab(app, tmp_path) as harness:
        result(await run(harness, turn))
        assert other.calls == []


@pytest.mark.parametrize("where", ["in a concurrent task", "inside a step"])
async def test_act_in_a_concurrent_task_or_a_step_needs_a_key(tmp_path, where):
    app, provider = App(), Provider()
    send = declare_send(app, provider)

    async def turn(ctx: TaskContext) -> Any:
        async def send_own() -> None:
            with pytest.raises(KeyRequired):
                await ctx.act(send)
            await ctx.act(send, key="mine")

        if where == "inside a step":
            await ctx.step("one", send_own)
        else:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(send_own)

    async with lab(app, tmp_path) as harness:
        result(await run(harness, turn))
        assert len(provider.calls) == 1


async def test_act_inside_an_action_needs_a_key(tmp_path):
    """A done action does not run again on a retry, so acts inside it cannot be identified by their order."""
    app, provider = App(), Provider()
    send = app.action("send", irreversible=True)(provider)
    entered: list[TaskContext] = []

    @app.action("pay_twice", irreversible=True)
    async def pay_twice(call: Call) -> str:
        with pytest.raises(KeyRequired, match="inside a step or an action"):
            await entered[-1].act(send, to="ada")
        await entered[-1].act(send, key="within", to="ada")
        return "both"

    async def turn(ctx: TaskContext) -> Any:
        entered.append(ctx)
        done = [await ctx.act(pay_twice), await ctx.act(send, to="ada")]
        if ctx.attempt == 1:
            raise ValueError("not yet")
        return done

    async with lab(app, tmp_path) as harness:
        assert result(await run(harness, turn)) == ["both", "ref-2"]
        assert len(provider.calls) == 2


async def test_act_place_does_not_depend_on_the_emits_of_the_turn(tmp_path):
    """With one counter for acts and emits, the second entry would give the act another number and send it again."""
    app, provider = App(), Provider()
    send = declare_send(app, provider)

    @app.workflow("notify")
    async def notify() -> None: ...

    async def turn(ctx: TaskContext) -> Any:
        if ctx.attempt == 1:
            await ctx.emit("notify")
            await ctx.act(send)
            raise ValueError("not yet")
        return await ctx.act(send)

    async with lab(app, tmp_path) as harness:
        assert result(await run(harness, turn)) == "ref-1"
        assert len(provider.calls) == 1


# Concurrent calls


async def test_concurrent_acts_with_the_same_key_share_a_single_call(tmp_path):
    app, gate = App(), Gate("once")
    provider = Provider(gate)
    send = declare_send(app, provider)

    async def turn(ctx: TaskContext) -> Any:
        got: list[Any] = []

        async def one() -> None:
            got.append(await ctx.act(send, to="ada", key="it"))

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(one)
        return got

    async with lab(app, tmp_path) as harness:
        task = await begin(harness, turn)
        await gate.inside.wait()
        gate.go.set()

        assert result(await harness.ended(task)) == ["once"] * 5
        assert len(provider.calls) == 1
        assert activity_events(harness, task) == ["INTENT", "DONE"]


async def test_act_with_the_key_of_a_running_call_and_other_arguments_is_refused(tmp_path):
    app, gate = App(), Gate()
    provider = Provider(gate)
    send = declare_send(app, provider)

    async def turn(ctx: TaskContext) -> Any:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: ctx.act(send, to="ada", key="it"))
            await gate.inside.wait()
            with pytest.raises(IdempotencyConflict):
                await ctx.act(send, to="grace", key="it")
            gate.go.set()

    async with lab(app, tmp_path) as harness:
        result(await run(harness, turn))
        assert [to for _, _, to in provider.calls] == ["ada"]


async def test_act_waiting_on_the_same_key_calls_when_the_first_had_no_effect(tmp_path):
    app, gate = App(), Gate(NoEffect("busy"))
    provider = Provider(gate)
    send = declare_send(app, provider)

    async def turn(ctx: TaskContext) -> Any:
        got: list[Any] = []

        async def one() -> None:
            try:
                got.append(await ctx.act(send, key="it"))
            except NoEffect:
                got.append("nothing")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one)
            await gate.inside.wait()
            tasks.start_soon(one)
            await anyio.lowlevel.checkpoint()
            gate.go.set()
        return got

    async with lab(app, tmp_path) as harness:
        assert sorted(result(await run(harness, turn))) == ["nothing", "ref-2"]


# Results


@pytest.mark.parametrize(
    ("value", "reason"), [({"a": object()}, "not JSON"), (float("nan"), "NaN"), ("x" * 20_000, "the limit is")]
)
async def test_act_with_an_unstorable_result_is_done_and_not_called_again(tmp_path, value, reason):
    app, provider = App(), Provider(value)
    send = declare_send(app, provider)

    async def turn(ctx: TaskContext) -> Any:
        got = await ctx.act(send)
        if ctx.attempt == 1:
            raise ValueError("not yet")
        return got

    config = settings()
    config = replace(config, tasks=replace(config.tasks, result_max_bytes=10_000))
    async with lab(app, tmp_path, config) as harness:
        got = result(await run(harness, turn))
        [row] = ledger(harness)

        assert reason in got["result_unstored"]
        assert (row["status"], row["result_json"]) == ("DONE", None)
        assert reason in row["result_unstored"]
        assert len(provider.calls) == 1


async def test_act_result_mapping_is_returned_whole_and_gives_the_provider_reference(tmp_path):
    app = App()

    @app.action("pay", irreversible=True)
    async def pay(call: Call) -> dict[str, Any]:
        return {"provider_ref": "ch_7", "amount": 7}

    async def turn(ctx: TaskContext) -> Any:
        return await ctx.act(pay)

    async with lab(app, tmp_path) as harness:
        assert result(await run(harness, turn)) == {"provider_ref": "ch_7", "amount": 7}
        assert ledger(harness)[0]["provider_ref"] == "ch_7"


async def test_act_is_done_when_the_returned_mapping_raises_on_get(tmp_path):
    """The call has returned, so the act is done even if its reference cannot be read."""

    class Broken(dict[str, Any]):
        def get(self, *_: Any) -> Any:
            raise RuntimeError("broken")

    app = App()
    send = app.action("send", irreversible=True)(Provider(Broken(id=7)))

    async def turn(ctx: TaskContext) -> Any:
        return await ctx.act(send)

    async with lab(app, tmp_path) as harness:
        assert result(await run(harness, turn)) == {"id": 7}
        assert [(row["status"], row["provider_ref"]) for row in ledger(harness)] == [("DONE", None)]


async def test_refusal_with_an_overlong_invalid_code_is_recorded_as_failed(tmp_path):
    """The code is stored without invalid characters, and cut to 100 characters."""
    app = App()
    pay = app.action("pay", irreversible=True)(Provider(Fail("\ud800" + "X" * 10_000, "declined")))

    async def turn(ctx: TaskContext) -> Any:
        return await ctx.act(pay)

    async with lab(app, tmp_path) as harness:
        code, message = failure(await run(harness, turn))
        assert (code[:3], len(code), message) == ("?XX", 100, "declined")
        assert [(row["status"], row["error_code"]) for row in ledger(harness)] == [("FAILED", code)]


async def test_act_request_and_result_are_in_the_ledger_and_not_in_events(tmp_path):
    app, provider = App(), Provider({"body": "the private answer"})
    send = declare_send(app, provider)

    async def turn(ctx: TaskContext) -> None:
        await ctx.act(send, to="a private letter")

    async with lab(app, tmp_path) as harness:
        await run(harness, turn)
        [row] = ledger(harness)
        events = "".join(event["payload_json"] for event in harness.rows("SELECT payload_json FROM events"))

        assert "private letter" in row["request_json"]
        assert "private answer" in row["result_json"]
        assert "private letter" not in events
        assert "private answer" not in events


# Failing databases


async def test_act_on_a_full_disk_is_called_once_after_space_is_free(tmp_path, monkeypatch):
    monkeypatch.setattr("craftcore.engine.durable_commit.FULL_DISK_SECONDS", 0.01)
    app, provider = App(), Provider()
    send = declare_send(app, provider)
    refused: list[int] = []

    with FaultyDisk() as disk:

        async def turn(ctx: TaskContext) -> Any:
            if ctx.attempt == 1:
                disk.fill()
            try:
                return await ctx.act(send)
            except StorageFull:
                refused.append(len(provider.calls))
                disk.free()
                raise

        with anyio.fail_after(PATIENCE):
            async with lab(app, tmp_path) as harness:
                assert result(await run(harness, turn)) == "ref-1"
                assert refused == [0]
                assert len(provider.calls) == 1


async def test_act_is_not_called_when_the_database_is_read_only(tmp_path):
    """The database becomes read-only as after a read-only remount, and the engine stops with the reason."""
    app, provider = App(), Provider()
    send = declare_send(app, provider)
    reached: list[str] = []

    with anyio.fail_after(PATIENCE), pytest.raises(PermissionRefused, match="cannot be written"):
        async with lab(app, tmp_path) as harness:

            async def turn(ctx: TaskContext) -> Any:
                await harness.engine.writer.commit(lambda tx: tx.fetch_value("PRAGMA query_only = 1"))
                try:
                    return await ctx.act(send)
                except StorageError as error:
                    reached.append(error.message)
                    raise

            await begin(harness, turn)
            await anyio.sleep_forever()

    assert len(reached) == 1
    assert provider.calls == []


async def test_act_result_is_written_when_cancelled_while_the_disk_is_full(tmp_path, monkeypatch):
    """The act has already happened. A canceller waits until the result is on disk, for as long as the disk is full."""
    monkeypatch.setattr("craftcore.engine.durable_commit.FULL_DISK_SECONDS", 0.01)
    app = App()
    scope = anyio.CancelScope()

    with FaultyDisk() as disk:

        async def fill(call: Call) -> str:
            disk.fill()
            return "ref-1"

        send = declare_send(app, Provider(fill))

        async def turn(ctx: TaskContext) -> Any:
            with scope:
                await ctx.act(send)
            return scope.cancelled_caught

        with anyio.fail_after(PATIENCE):
            async with lab(app, tmp_path) as harness:
                task_id = await begin(harness, turn)
                await harness.until(lambda: harness.engine.writer.group_commit.full)
                scope.cancel()
                for _ in range(3):  # further writes are refused after the cancellation
                    refused = disk.refused_writes
                    await harness.until(lambda refused=refused: disk.refused_writes > refused)  # type: ignore[misc]
                disk.free()

                assert result(await harness.ended(task_id)) is True
                assert [(row["status"], row["provider_ref"]) for row in ledger(harness)] == [("DONE", "ref-1")]


async def test_call_deadline_counts_from_before_the_intent(tmp_path, monkeypatch):
    """The deadline in the intent is an upper bound for the time of the call."""
    app, deadlines, clock = App(), list[float](), VirtualClock()

    @app.action("send", irreversible=True, timeout=30)
    async def send(call: Call) -> None:
        deadlines.append(call.deadline.timestamp())

    async def turn(ctx: TaskContext) -> None:
        await ctx.act(send)

    begin_all = ActivityEvents.begin_all

    def begin_late(self: ActivityEvents, tx: Transaction, acts: list[NewAct]) -> Any:
        deadlines.append(acts[0].ends_at)
        clock.advance(seconds=10)
        return begin_all(self, tx, acts)

    monkeypatch.setattr(ActivityEvents, "begin_all", begin_late)
    async with lab(app, tmp_path, clock=clock) as harness:
        await harness.ended(await begin(harness, turn))

    assert deadlines == [deadlines[0], deadlines[0]]
    assert deadlines[0] == clock.now() - 10 + 30


async def test_act_whose_deadline_passes_during_the_intent_commit_is_not_called(tmp_path, monkeypatch):
    app, provider, clock = App(), Provider("ref-1"), VirtualClock()
    send = app.action("send", irreversible=True, timeout=5)(provider)

    async def turn(ctx: TaskContext) -> None:
        with pytest.raises(NoEffect, match="its time was over before it was called"):
            await ctx.act(send)

    begin_all = ActivityEvents.begin_all

    def begin_late(self: ActivityEvents, tx: Transaction, acts: list[NewAct]) -> Any:
        clock.advance(seconds=6)
        return begin_all(self, tx, acts)

    monkeypatch.setattr(ActivityEvents, "begin_all", begin_late)
    async with lab(app, tmp_path, clock=clock) as harness:
        await harness.ended(await begin(harness, turn))

        assert provider.calls == []
        assert statuses(harness) == ["FAILED"]
