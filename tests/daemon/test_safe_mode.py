"""Safe mode after many crashes: it is notified at once, and ends by itself when no crash follows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from craftcore import App
from craftcore.config import Config
from craftcore.daemon import notification_loop, safe_mode
from craftcore.daemon.lifespan import running
from craftcore.engine.boot import UNCLEAN_STARTS_MAX
from tests.support.engine_harness import Lab
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.schedule_steps import put, start_daemon

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOOK_SECONDS", "REST_SECONDS"):
        monkeypatch.setattr(notification_loop, name, 0.01)


def crash(path: Path, clock: VirtualClock, starts: int) -> None:
    """Start a daemon the given number of times without an ordered end, with a reminder due."""
    core = VirtualCore(path, clock)
    put(core, id="reminder", when="in 1s", workflow="remind")
    for _ in range(starts):
        start_daemon(core)
        clock.advance(10)
    core.close()


def build_app() -> App:
    app = App("safe")

    @app.workflow("remind")
    async def remind() -> None: ...

    return app


def config(folder: Path) -> Config:
    (folder / "craftcore.toml").write_text('[[notify]]\non = "unhealthy"\ncommand = ["true"]\n')
    return Config.load(folder / "craftcore.toml")


def notification_texts(harness: Lab) -> list[str]:
    rows = harness.rows("SELECT payload_json FROM triggers WHERE dedup_key GLOB 'notify:*' ORDER BY seq")
    return [json.loads(json.loads(row["payload_json"])["stdin"])["notifications"][0]["text"] for row in rows]


async def test_safe_mode_is_notified_at_once_and_ends_after_healthy_minutes(tmp_path, monkeypatch):
    """Held reminders depend on the notification, since they wait for the end of safe mode."""
    monkeypatch.setattr(safe_mode, "HEALTHY_SECONDS", 0.3)
    path, app, clock = tmp_path / "agent.db", build_app(), VirtualClock()
    crash(path, clock, UNCLEAN_STARTS_MAX)

    async with running(app, path, config(tmp_path), clock) as engine:
        harness = Lab(app, engine, path)
        assert harness.rows("SELECT 1 FROM facts WHERE name = 'safe_mode'")
        await harness.until(lambda: len(notification_texts(harness)) == 1)
        assert notification_texts(harness)[0].startswith(
            "craftcore is in safe mode: 6 unclean starts within 10 minutes."
        )

        await harness.until(lambda: len(notification_texts(harness)) == 2)
        assert notification_texts(harness)[1] == "craftcore has left safe mode: scheduled and resumed work starts again"
        reminded = "SELECT 1 FROM triggers WHERE schedule_id = 'reminder' AND status = 'DONE'"
        await harness.until(lambda: bool(harness.rows(reminded)))
        assert not harness.rows("SELECT 1 FROM facts WHERE name = 'safe_mode'")


async def test_safe_mode_that_goes_on_is_not_notified_again(tmp_path):
    path, app, clock = tmp_path / "agent.db", build_app(), VirtualClock()
    crash(path, clock, UNCLEAN_STARTS_MAX + 1)

    async with running(app, path, config(tmp_path), clock) as engine:
        harness = Lab(app, engine, path)
        assert harness.rows("SELECT 1 FROM facts WHERE name = 'safe_mode'")

    assert not harness.rows("SELECT 1 FROM notices")
