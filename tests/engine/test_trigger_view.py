"""The trigger view that a workflow receives by annotation."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from craftcore import App, RetryPolicy, TaskContext, TriggerView
from craftcore.errors import ConfigInvalid
from tests.support.engine_harness import lab

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("is_async", [True, False])
async def test_trigger_view_carries_the_id_attempt_record_and_schedule(tmp_path, is_async):
    app = App()
    seen: list[tuple[str, TriggerView]] = []

    def note(path: str, by: TriggerView) -> None:
        seen.append((path, by))
        if by.attempt == 1:
            raise OSError("not yet")

    if is_async:

        @app.workflow("backup", retry=RetryPolicy(base=0, cap=0))
        async def backs_up(path: str, *, by: TriggerView) -> None:
            note(path, by)

    else:

        @app.workflow("backup", retry=RetryPolicy(base=0, cap=0))
        def backs_up_plainly(path: str, *, by: TriggerView) -> None:
            note(path, by)

    app.schedule("nightly", "on startup", workflow="backup", payload={"path": "/srv"}, description="at night")
    async with lab(app, tmp_path) as harness:
        await harness.until(lambda: bool(harness.rows("SELECT 1 FROM triggers WHERE settled_at IS NOT NULL")))
        [trigger] = harness.rows("SELECT id, nominal_at FROM triggers")
        records = [row["id"] for row in harness.rows("SELECT id FROM executions ORDER BY seq")]

    assert [path for path, _ in seen] == ["/srv", "/srv"]
    views = [view for _, view in seen]
    assert [view.attempt for view in views] == [1, 2]
    assert [view.execution_id for view in views] == records
    assert {(view.id, view.schedule_id, view.source, view.description) for view in views} == {
        (trigger["id"], "nightly", "SCHEDULED", "at night")
    }
    assert views[0].nominal_at == datetime.fromtimestamp(trigger["nominal_at"], UTC)


async def test_trigger_view_cannot_be_set_by_the_payload(tmp_path):
    app = App()

    @app.workflow("strict")
    async def strict(*, trigger: TriggerView) -> None: ...

    @app.workflow("open")
    async def takes_all(*, trigger: TriggerView, **rest: Any) -> None: ...

    async with lab(app, tmp_path) as harness:
        for workflow in ("strict", "open"):
            with pytest.raises(Exception, match="trigger"):
                await app.emit(workflow, {"trigger": {"id": "forged"}})
        emitted = await app.emit("open", {"other": 1})
        assert (await harness.settled(emitted.id))["status"] == "DONE"


async def test_parameter_named_trigger_of_another_type_comes_from_the_payload(tmp_path):
    app = App()
    seen: list[str] = []

    @app.workflow("plain")
    async def plain(trigger: str) -> None:
        seen.append(trigger)

    async with lab(app, tmp_path) as harness:
        await harness.settled((await app.emit("plain", {"trigger": "mine"})).id)

    assert seen == ["mine"]


def test_trigger_view_parameter_that_is_misplaced_or_repeated_is_refused():
    app = App()

    async def positional(trigger: TriggerView) -> None: ...

    async def twice(*, one: TriggerView, other: TriggerView) -> None: ...

    async def with_context(ctx: TaskContext, *, trigger: TriggerView) -> None: ...

    for fn, reason in ((positional, "after a \\*"), (twice, "declare one"), (with_context, "ctx.trigger is the same")):
        with pytest.raises(ConfigInvalid, match=reason):
            app.workflow(fn.__name__)(fn)
