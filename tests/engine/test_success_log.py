"""Log lines of successes, which are optional, and the schedule in each log line of a trigger."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from craftcore import App, Fail
from craftcore.config import LogSettings
from tests.support.engine_harness import lab, settings
from tests.support.log_capture import capture_logs

pytestmark = pytest.mark.anyio


async def log_lines_of(tmp_path: Any, workflow: str, *, successes: bool) -> list[dict[str, Any]]:
    app = App()

    @app.workflow("works")
    async def works() -> None: ...

    @app.workflow("fails")
    async def fails() -> None:
        raise Fail("VALIDATION_ERROR", "it never will")

    app.schedule("nightly", "every day at 3am", workflow=workflow)
    config = replace(settings(), log=LogSettings(successes=successes))
    with capture_logs() as lines:
        async with lab(app, tmp_path, config) as harness:
            fired = await app.schedules.run_now("nightly")
            assert fired.trigger_id is not None
            await harness.settled(fired.trigger_id)
            await (await app.emit("works")).result()
    return [dict(line) for line in lines if line["event"].startswith("trigger.")]


async def test_success_is_logged_with_its_schedule_when_asked_for(tmp_path):
    of_schedule, plain = await log_lines_of(tmp_path, "works", successes=True)

    assert (of_schedule["event"], of_schedule["log_level"]) == ("trigger.done", "info")
    assert (of_schedule["schedule"], of_schedule["workflow"], of_schedule["reason"]) == (
        "nightly",
        "works",
        "succeeded",
    )
    assert "schedule" not in plain


async def test_success_is_not_logged_by_default(tmp_path):
    assert await log_lines_of(tmp_path, "works", successes=False) == []


async def test_failure_is_logged_with_its_schedule(tmp_path):
    [failed] = await log_lines_of(tmp_path, "fails", successes=False)

    assert (failed["event"], failed["schedule"], failed["error"]) == ("trigger.settled", "nightly", "it never will")
