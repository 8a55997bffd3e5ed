"""Corrupt rows of the ledger: a person decides about the call, and the daemon and other tasks continue."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from craftcore import App, Call, Fail, OnUnknown, TaskContext
from craftcore.activities.model import Activity
from tests.support.activity_steps import DONE, NOTHING, REFUSED, UNKNOWN, an_activity, look
from tests.support.acts import Provider, ledger, statuses
from tests.support.cells import cells
from tests.support.damage import NO_TEXT, damage
from tests.support.engine_harness import Lab, lab, settings
from tests.support.fakes import VirtualCore
from tests.support.task_steps import begin, finish, rows, the_question

TEXTS = ("idem_key", "task_id", "action", "status", "reason", "policy", "args_hash", "request_json", "result_json")
MORE_TEXTS = ("result_unstored", "provider_ref", "error_code", "error_message", "decision")
SPOILED = [
    *(f"{name} = {NO_TEXT}" for name in (*TEXTS, *MORE_TEXTS)),
    "status = 'NONSENSE'",
    "policy = 'moon'",
    "decision = 'sure'",
]
"""Corruptions of the row of a call that is in flight or in doubt."""


class Shop:
    """An app whose tasks pay once each. The call of `died` is in flight or in doubt, and `fine` pays normally."""

    def __init__(self, policy: OnUnknown = OnUnknown.RESEND) -> None:
        self.app = App("test")
        self.calls: list[str] = []
        self.inside = anyio.Event()
        self.app.action("pay", irreversible=True, on_unknown=policy, idempotent_provider=True)(self.pay)

        @self.app.workflow("shop", max_attempts=2)
        async def shop(ctx: TaskContext, name: str) -> Any:
            return await ctx.act("pay", name=name)

    async def pay(self, call: Call, *, name: str) -> str:
        self.calls.append(name)
        if name == "died" and len(self.calls) == 1:
            self.inside.set()
            await anyio.sleep_forever()
        return f"paid {name}"


async def leave_in_doubt(folder: Path, status: str, policy: OnUnknown = OnUnknown.RESEND) -> None:
    """Leave one activity in flight or in doubt, of a running task, without a daemon."""
    shop = Shop(policy)
    async with lab(shop.app, folder, settings(shutdown_grace=0.0)):
        await shop.app.emit("shop", {"name": "died"})
        await shop.inside.wait()
    if status == "INTENT":  # as after a kill
        damage(folder / "agent.db", "activity_log", "status = 'INTENT', in_doubt = 0", "seq = 1")


async def require_payment(it: Lab, shop: Shop) -> None:
    emitted = await shop.app.emit("shop", {"name": "fine"})
    assert (await it.ended(emitted.id))["result_json"] == '"paid fine"'


MOMENTS = ["last_call_at = 9e999", "first_call_at = -1e300"]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("status", "change"),
    cells(
        [
            *(("INTENT", change) for change in SPOILED),
            *(("UNKNOWN", change) for change in SPOILED if not change.startswith("idem_key")),
        ]
    ),
)
async def test_corrupt_activity_in_flight_or_in_doubt_is_asked_about_and_not_called_again(tmp_path, status, change):
    """Its policy would repeat the call. The daemon starts, and the other task pays."""
    await leave_in_doubt(tmp_path, status)
    damage(tmp_path / "agent.db", "activity_log", change, "seq = 1")
    shop = Shop()
    shop.calls.append("died")

    async with lab(shop.app, tmp_path) as it:
        await require_payment(it, shop)
        await it.until(lambda: it.rows("SELECT status FROM tasks WHERE seq = 1")[0]["status"] == "FAILED")
        [row, _] = ledger(it)
        question = await it.question("activity")

        assert shop.calls == ["died", "fine"]
        assert (row["status"], row["reason"], row["policy"]) == ("UNKNOWN", "corrupt row", "ask")
        assert "activity" in row["error_message"]
        assert question["activity_seq"] == row["seq"]
        assert [one.activity_key for one in await shop.app.questions()] == [row["idem_key"]]


@pytest.mark.anyio
async def test_timestamp_outside_the_calendar_does_not_prevent_the_question(tmp_path):
    await leave_in_doubt(tmp_path, "UNKNOWN", OnUnknown.ASK)
    damage(tmp_path / "agent.db", "activity_log", "last_call_at = 9e999", "seq = 1")
    shop = Shop(OnUnknown.ASK)
    shop.calls.append("died")

    async with lab(shop.app, tmp_path) as it:
        await require_payment(it, shop)
        assert (await it.question("activity"))["activity_seq"] == 1
        assert shop.calls == ["died", "fine"]


@pytest.mark.anyio
async def test_unreadable_key_falls_back_to_the_stream_so_a_retry_finds_the_activity(tmp_path):
    """Without a key to find it by, the activity would be called again although a person answered that it happened."""
    await leave_in_doubt(tmp_path, "INTENT")
    damage(tmp_path / "agent.db", "activity_log", f"idem_key = {NO_TEXT}", "seq = 1")
    shop = Shop()
    shop.calls.append("died")

    async with lab(shop.app, tmp_path) as it:
        [task] = it.rows("SELECT * FROM tasks")
        await it.ended(task["id"])
        await shop.app.answer((await it.question("activity"))["id"], "happened", reference="7", answered_by="ada")
        await shop.app.retry_task(task["id"])
        await it.until(lambda: it.task(task["id"])["status"] == "DONE")

        assert it.task(task["id"])["result_json"] == '"7"'
        assert shop.calls == ["died"]
        assert ledger(it)[0]["idem_key"] == f"activity:{task['id']}:1.1"


@pytest.mark.anyio
@pytest.mark.parametrize("change", [f"status = {NO_TEXT}", f"request_json = {NO_TEXT}", "policy = 'moon'"])
@pytest.mark.parametrize("found_by", ["its turn", "the end of its task"])
async def test_row_corrupted_under_a_running_daemon_stops_no_other_task(tmp_path, change, found_by):
    app, retried, go = App("test"), anyio.Event(), anyio.Event()
    provider = Provider(ConnectionResetError("reset"))
    app.action("pay", irreversible=True, on_unknown=OnUnknown.RESEND, idempotent_provider=True)(provider)

    @app.workflow("shop", max_attempts=2)
    async def shop(ctx: TaskContext, name: str) -> Any:
        if ctx.attempt == 2:
            retried.set()
            await go.wait()
            if found_by == "the end of its task":
                raise Fail("GONE", "no such shop")
        return await ctx.act("pay", to=name)

    async with lab(app, tmp_path) as it:
        task = (await app.emit("shop", {"name": "died"})).id
        await retried.wait()
        damage(it.path, "activity_log", change, "seq = 1")
        go.set()
        row = await it.ended(task)
        assert (await it.ended((await app.emit("shop", {"name": "fine"})).id))["result_json"] == '"ref-2"'

        assert row["status"] == "FAILED"
        assert provider.attempts == [1, 1]
        if found_by == "its turn" or "status" not in change:
            assert row["reason"] == "corrupt row"
            assert statuses(it) == ["UNKNOWN", "DONE"]
            assert [one.status for one in await app.questions()] == ["OPEN"]


def quarantine(core: VirtualCore, activity: Activity, change: str) -> Activity:
    damage(core.database.path, "activity_log", change, "seq = ?", activity.seq)
    [wrong] = core.do(core.tasks.set_aside_corrupt)
    assert wrong.startswith("activity ")
    assert core.do(core.tasks.set_aside_corrupt) == []
    return look(core, activity.seq)


@pytest.mark.parametrize("change", [change for change in (*SPOILED, *MOMENTS) if not change.startswith("status")])
def test_done_activity_stays_done(core, change):
    running = begin(core)
    activity = an_activity(core, running, DONE)

    after = quarantine(core, activity, change)

    assert (after.status, after.result_json) == ("DONE", None)
    assert after.result_unstored is not None
    [task] = rows(core, "tasks")
    assert (task["status"], task["reason"]) == ("FAILED", "corrupt row")
    assert rows(core, "questions") == []


@pytest.mark.parametrize("end", [NOTHING, REFUSED], ids=["may", "no"])
def test_verdict_not_done_is_not_accepted_for_a_corrupt_row(core, end):
    after = quarantine(core, an_activity(core, begin(core), end), f"error_message = {NO_TEXT}")
    assert (after.status, after.in_doubt) == ("UNKNOWN", True)
    assert the_question(core)["activity_seq"] == after.seq


@pytest.mark.parametrize("end", [None, UNKNOWN], ids=["INTENT", "UNKNOWN"])
def test_activity_of_an_ended_task_is_asked_about(core, end):
    running = begin(core)
    activity = an_activity(core, running, end)
    finish(core, running)

    after = quarantine(core, activity, f"reason = {NO_TEXT}")

    assert after.status == "UNKNOWN"
    assert the_question(core)["activity_seq"] == after.seq
    assert rows(core, "tasks")[0]["status"] == "DONE"


def test_unattended_corrupt_activity_is_searched_for_when_nothing_else_is_wrong(core):
    running = begin(core)
    activity = an_activity(core, running, DONE)
    finish(core, running)
    assert quarantine(core, activity, f"error_message = {NO_TEXT}").status == "DONE"


def test_sound_activity_is_left_unchanged(core):
    running = begin(core)
    for n, end in enumerate([None, DONE, NOTHING, REFUSED, UNKNOWN], 1):
        an_activity(core, running, end, f"1.{n}")
    before = rows(core, "activity_log")

    assert core.do(core.tasks.set_aside_corrupt) == []
    assert rows(core, "activity_log") == before
