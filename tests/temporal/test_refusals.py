"""Calls that a cluster cannot serve, and the journal of an ended entry: each is refused with a reason."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

import anyio
import pytest

from craftcore import App, RetryPolicy, TaskContext
from craftcore.activities.model import ActivityStatus, CallOutcome, Decision
from craftcore.errors import ConfigInvalid, DuplicateTrigger, InvalidInput, LeaseLost, NotFound, StateRefused
from craftcore.tasks.turn_event_store import NewEvent
from craftcore.temporal.entries.open_entry import OpenEntry
from craftcore.temporal.entries.update_journal import TemporalJournal
from craftcore.temporal.ids import task_id_of, workflow_id_of_key, workflow_id_of_task
from craftcore.temporal.settings import TemporalSettings
from craftcore.temporal.worker import list_unsupported, working
from craftcore.temporal.workflow.journal_messages import Outcome
from craftcore.temporal.workflow.messages import TaskEnd, TaskStart
from craftcore.triggers.model import OnDuplicate, TriggerSpec
from tests.support.processes import PATIENCE
from tests.temporal.task_client import TaskClient
from tests.temporal.views import see_waiting

pytestmark = pytest.mark.anyio
START = TaskStart(workflow="order", payload_json="{}", source="IMMEDIATE", due_at=0.0)


@pytest.fixture
def app(request: pytest.FixtureRequest) -> App:
    app = App(request.node.name)
    app.default_retry = RetryPolicy(max_attempts=1, base=0, cap=0)

    @app.workflow("order")
    async def order(ctx: TaskContext) -> None:
        await ctx.wait_for("go")

    @app.workflow("writes")
    async def writes(ctx: TaskContext) -> None:
        await ctx.transaction("write", lambda tx: None)

    @app.workflow("appends")
    async def appends(ctx: TaskContext) -> None:
        await ctx.history.append("a")

    return app


@pytest.fixture
async def client(app: App, cluster: TemporalSettings) -> AsyncIterator[TaskClient]:
    settings = replace(cluster, task_queue=app.name)
    with anyio.fail_after(PATIENCE):
        async with working(app, settings) as connection:
            yield TaskClient(connection, app, settings)


async def test_journal_of_an_entry_that_is_over_is_refused(client):
    task = await client.emit("order")
    await see_waiting(client, task)
    journal = TemporalJournal(OpenEntry(client=client.connection, workflow_id=task, task_id=task, token=1), START)
    event = NewEvent(0, "1", 1, 1, 1, "NOTE", "{}", "note:late")
    with pytest.raises(LeaseLost):
        await journal.record(event)


async def test_transaction_of_a_turn_is_refused(client):
    end = await client.result(await client.emit("writes"))
    assert (end.status, end.error_code) == ("FAILED", "VALIDATION_ERROR")
    assert "ctx.transaction is not there on a cluster" in (end.error_message or "")


async def test_conversation_of_a_turn_is_refused(client):
    end = await client.result(await client.emit("appends"))
    assert (end.status, end.error_code) == ("FAILED", "VALIDATION_ERROR")
    assert "ctx.history is not there on a cluster" in (end.error_message or "")


async def test_dedup_key_emits_once(client):
    first, again = [await client.emit("order", dedup_key="order:1") for _ in range(2)]
    assert first == again
    with pytest.raises(DuplicateTrigger):
        await client.emit("order", dedup_key="order:1", on_duplicate="error")


@pytest.mark.parametrize("scope", ["active", pytest.param("ever", marks=pytest.mark.cluster)])
async def test_turn_that_emits_a_taken_key_has_the_task_that_holds_the_key(app, client, scope):
    @app.workflow("parent")
    async def parent(ctx: TaskContext) -> str:
        return (await ctx.emit("order", dedup_key=f"taken:{scope}", dedup_scope=scope)).id

    first = await client.emit("order", dedup_key=f"taken:{scope}", dedup_scope=scope)
    if scope == "ever":
        await client.signal(first, "go")
        await client.result(first)
    assert (await client.result(await client.emit("parent"))).result_json == f'"{first}"'


@pytest.mark.parametrize("by", [{"id": "019acb4d-0000-7000-8000-000000000001"}, {"dedup_key": "held"}], ids=str)
async def test_emission_in_a_turn_is_answered_as_that_of_a_program(app, client, by):
    """An id is held for ever, also after the end of its task; a key may be held only by a live task."""
    options = by if "id" in by else {**by, "dedup_scope": "active"}

    @app.workflow("plain")
    async def plain() -> None: ...

    workflow = "plain" if "id" in by else "order"

    @app.workflow("emits")
    async def emits(ctx: TaskContext, on_duplicate: OnDuplicate) -> list[Any]:
        emitted = await ctx.emit(workflow, on_duplicate=on_duplicate, **options)
        await ctx.sleep(0.01)  # the second entry returns the recorded answer
        return [emitted.id, emitted.created, emitted.held, emitted.dedup_scope]

    async def end(on_duplicate: str) -> TaskEnd:
        found: TaskEnd = await client.result(await client.emit("emits", {"on_duplicate": on_duplicate}))
        return found

    first = json.loads((await end("keep")).result_json or "null")
    scope = None if "id" in by else "active"
    assert first[1:] == [True, None, scope]
    if "id" in by:
        await client.result(first[0])
    held = "id" if "id" in by else "dedup_key"
    assert json.loads((await end("keep")).result_json or "null") == [first[0], False, held, scope]
    emitted = await client.emit_spec(TriggerSpec(workflow=workflow, **options))
    assert [emitted.id, emitted.created, emitted.held, emitted.dedup_scope] == [first[0], False, held, scope]
    for on_duplicate, reason in (("error", f"is held by task {first[0]}"), ("replace", "takes no on_duplicate")):
        refused = await end(on_duplicate)
        assert (refused.status, reason in (refused.error_message or "")) == ("FAILED", True)
        with pytest.raises(InvalidInput, match=reason):
            await client.emit(workflow, on_duplicate=on_duplicate, **options)


@pytest.mark.parametrize("by", [{"dedup_key": "order:3"}, {"id": "01900000-0000-7000-8000-000000000003"}], ids=str)
async def test_key_or_id_of_another_workflow_is_refused_and_names_its_holder(client, by):
    holder = await client.emit("order", **by)
    with pytest.raises(DuplicateTrigger, match="which runs another workflow, order; nothing was written") as refused:
        await client.emit("writes", **by)
    assert refused.value.details["id"] == holder


async def test_free_dedup_key_makes_another_task_with_other_action_keys(client):
    first = await client.emit("order", dedup_key="order:2", dedup_scope="active")
    assert await client.emit("order", dedup_key="order:2", dedup_scope="active") == first
    await client.signal(first, "go")
    await client.result(first)
    assert await client.emit("order", dedup_key="order:2", dedup_scope="active") != first


@pytest.mark.parametrize(
    "options",
    [
        {"task_id": "t-1"},
        {"id": "t-1", "dedup_key": "x"},
        {"on_duplicate": "replace", "dedup_key": "x"},
        {"dedup_key": "x" * 151},
    ],
    ids=str,
)
async def test_emit_with_unsupported_options_is_refused(client, options):
    with pytest.raises(InvalidInput):
        await client.emit("order", **options)


async def test_answer_without_an_open_question_is_refused(client):
    task = await client.emit("order")
    await see_waiting(client, task)
    with pytest.raises(StateRefused, match="is not open"):
        await client.answer(task, "none", "yes", by="ada")
    with pytest.raises(StateRefused, match="no activity"):
        await client.decide(task, "activity:none", Decision.HAPPENED, by="ada")


async def test_work_without_a_workflow_fails_without_a_rule(client):
    end = await client.result(await client.emit(None, source="MESSAGE"))
    assert (end.status, end.error_code) == ("FAILED", "CAPABILITY_NOT_FOUND")


async def test_unknown_task_is_not_found(client):
    for call in (client.signal("none", "go"), client.cancel("none"), client.view("none"), client.result("none")):
        with pytest.raises(NotFound):
            await call


def test_unsupported_declarations_are_named(app):
    assert list_unsupported(app) == []

    async def nothing() -> None: ...

    app.declare("nothing", nothing)
    app.schedule("daily", "every 1d", workflow="nothing", session_id="ada")
    assert len(list_unsupported(app)) == 1


async def test_worker_of_an_unsupported_app_does_not_start():
    app = App("scheduled")

    async def nothing() -> None: ...

    app.declare("nothing", nothing)
    app.schedule("daily", "every 1d", workflow="nothing", session_id="ada")
    with pytest.raises(ConfigInvalid, match="schedule daily"):
        async with working(app, TemporalSettings()):
            pass


def test_task_id_leads_to_its_workflow():
    for workflow_id in ("t-1", workflow_id_of_key("order:1"), workflow_id_of_key("a@b")):
        assert workflow_id_of_task(task_id_of(workflow_id, str(uuid4()))) == workflow_id
    assert task_id_of("k:one", "run-1") != task_id_of("k:one", "run-2")


def test_outcome_has_the_fields_of_the_ledger():
    end: Any = CallOutcome(ActivityStatus.DONE, "the provider answered")
    assert Outcome(**end._asdict()).status == "DONE"
