"""Activity events of a task: their order, and the request and result text that they leave out."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from craftcore import App, Done, Fail, NoEffect, OnUnknown, TaskContext
from craftcore.activities.listing_store import ActivityListStore
from craftcore.activities.store import ActivityStore
from craftcore.services import Services
from tests.support.acts import Gate, Provider, activity_events, assert_records_are_whole, event_payload, ledger, stream
from tests.support.engine_harness import Lab, lab, settings
from tests.support.turns import begin, result, run

pytestmark = pytest.mark.anyio

LOST = ConnectionResetError("reset")
SECRET = "the private body of the letter"
RESULT = "the private response of the provider"


def texts_by_column(harness: Lab) -> dict[str, list[str]]:
    """Return every text value of the database by table and column."""
    found: dict[str, list[str]] = {}
    for table in harness.rows("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"):
        for row in harness.rows(f"SELECT * FROM {table['name']}"):
            for column, value in row.items():
                if isinstance(value, str):
                    found.setdefault(f"{table['name']}.{column}", []).append(value)
    return found


def columns_with(harness: Lab, text: str) -> set[str]:
    return {column for column, values in texts_by_column(harness).items() if any(text in value for value in values)}


@pytest.mark.parametrize(
    ("answers", "terms", "events"),
    [
        (["ok"], {}, ["INTENT", "DONE"]),
        ([NoEffect("no"), "ok"], {}, ["INTENT", "FAILED", "INTENT", "DONE"]),
        ([Fail("NO", "no")], {}, ["INTENT", "FAILED"]),
        ([LOST], {"on_unknown": "assume_done"}, ["INTENT", "UNKNOWN", "RESOLVED"]),
        (
            [LOST, NoEffect("no"), "ok"],
            {"on_unknown": "resend", "idempotent_provider": True},
            ["INTENT", "UNKNOWN", "INTENT", "UNKNOWN", "INTENT", "DONE"],
        ),
    ],
    ids=["done", "retried", "refused", "assumed", "resent"],
)
async def test_stream_of_a_task_lists_the_activity_events_in_order(tmp_path, answers, terms, events):
    app = App()
    send = app.action("send", irreversible=True, **terms)(Provider(*answers))

    async def turn(ctx: TaskContext) -> Any:
        return await ctx.act(send)

    async with lab(app, tmp_path) as harness:
        row = await run(harness, turn)

        assert activity_events(harness, row["id"]) == events
        assert_records_are_whole(harness)
        history = event_types(harness)
        assert [event.removeprefix("ACTIVITY_") for event in history] == events
        calls = harness.rows("SELECT * FROM events WHERE type = 'ACTIVITY_INTENT' ORDER BY execution_seq")
        assert [event_payload(call)["attempt"] for call in calls] == list(range(1, events.count("INTENT") + 1))
        assert {event_payload(call)["key"] for call in calls} == {f"activity:{row['id']}:1.1"}


def event_types(harness: Lab) -> list[str]:
    """Return the event types of the first activity."""
    with Services(harness.path, settings()).reading() as reader:
        store = ActivityStore()
        return [event["type"] for event in ActivityListStore().list_history(reader, store.get_by_seq(reader, 1))]


async def test_task_reads_own_activity_events_without_request_or_result(tmp_path):
    app = App()
    send = app.action("send", irreversible=True)(Provider("msg-7"))

    async def turn(ctx: TaskContext) -> Any:
        await ctx.act(send, to=SECRET)
        return [event.data for event in await ctx.events() if event.type.startswith("ACTIVITY")]

    async with lab(app, tmp_path) as harness:
        row = await run(harness, turn)
        key = f"activity:{row['id']}:1.1"
        assert result(row) == [
            {"action": "send", "attempt": 1, "key": key},
            {
                "action": "send",
                "attempt": 1,
                "error": None,
                "key": key,
                "provider_ref": "msg-7",
                "reason": "the provider answered",
            },
        ]


async def test_act_request_and_result_text_are_stored_only_in_the_ledger(tmp_path):
    """Retention removes the texts from the ledger only, so no other table may contain them."""
    app = App()
    send = app.action("send", irreversible=True)(Provider({"provider_ref": "msg-7", "body": RESULT}))

    async def turn(ctx: TaskContext) -> None:
        await ctx.act(send, to=SECRET)

    async with lab(app, tmp_path) as harness:
        await run(harness, turn)
        assert columns_with(harness, SECRET) == {"activity_log.request_json"}
        assert columns_with(harness, RESULT) == {"activity_log.result_json"}
        assert "event_rows.payload_json" in columns_with(harness, "msg-7")


@pytest.mark.parametrize("end", ["answered", "cancelled"])
async def test_question_about_an_act_shows_the_request_and_stores_no_copy(tmp_path, end):
    app = App()
    send = app.action("send", irreversible=True)(Provider(LOST))

    async def turn(ctx: TaskContext) -> None:
        await ctx.act(send, to=SECRET)

    async with lab(app, tmp_path) as harness:
        task = await begin(harness, turn)
        await harness.waiting(task)
        [question] = await app.questions()
        assert SECRET in question.question
        if end == "cancelled":
            await app.cancel_task(task)
        await app.answer(question.id, "happened", answered_by="ada")
        await harness.ended(task)

        assert columns_with(harness, SECRET) == {"activity_log.request_json"}


async def test_concurrent_acts_have_separate_activity_histories(tmp_path):
    app, gate = App(), Gate()
    send = app.action("send", irreversible=True)(Provider(gate))
    pay = app.action("pay", irreversible=True)(Provider())

    async def turn(ctx: TaskContext) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: ctx.act(send, key="send"))
            await gate.inside.wait()
            await ctx.act(pay, key="pay")
            gate.go.set()

    async with lab(app, tmp_path) as harness:
        row = await run(harness, turn)
        assert activity_events(harness, row["id"]) == ["INTENT", "INTENT", "DONE", "DONE"]
        rows = harness.rows("SELECT activity_seq, type FROM events WHERE activity_seq IS NOT NULL ORDER BY seq")
        assert [(one["activity_seq"], one["type"][9:]) for one in rows] == [
            (1, "INTENT"),
            (2, "INTENT"),
            (2, "DONE"),
            (1, "DONE"),
        ]
        assert event_types(harness) == ["ACTIVITY_INTENT", "ACTIVITY_DONE"]


async def test_reconcile_answer_is_recorded_in_the_asking_record(tmp_path):
    app = App()
    pay = app.action("pay", irreversible=True, on_unknown=OnUnknown.RECONCILE, settle_after=0)(Provider(LOST))

    @pay.reconcile
    async def find_payment(call: Any, *, to: Any = None) -> Any:
        return Done("pay-7")

    async def turn(ctx: TaskContext) -> Any:
        return await ctx.act(pay, to=SECRET)

    async with lab(app, tmp_path) as harness:
        row = await run(harness, turn)
        [event] = harness.rows("SELECT * FROM events WHERE type = 'ACTIVITY_RESOLVED'")
        assert event_payload(event) == {
            "action": "pay",
            "by": "reconcile",
            "decision": "happened",
            "key": f"activity:{row['id']}:1.1",
            "reference": "pay-7",
        }
        assert columns_with(harness, SECRET) == {"activity_log.request_json"}


async def test_done_act_met_again_on_retry_writes_no_event(tmp_path):
    app = App()
    send = app.action("send", irreversible=True)(Provider())

    async def turn(ctx: TaskContext) -> None:
        await ctx.act(send)
        if ctx.attempt == 1:
            raise ValueError("not yet")

    async with lab(app, tmp_path) as harness:
        row = await run(harness, turn)
        before, after = ledger(harness)[0], stream(harness, row["id"])
        assert before["calls"] == 1
        assert [type_ for type_ in after if type_.startswith("ACTIVITY")] == ["ACTIVITY_INTENT", "ACTIVITY_DONE"]
