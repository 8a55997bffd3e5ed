"""The embedded engine: it has the built-in actions, settings and schedules of the daemon."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import pytest

from craftcore import App, Producer
from craftcore.config import Config
from craftcore.errors import ConfigInvalid
from tests.support.engine_harness import look
from tests.support.processes import PATIENCE

SETTINGS = f"""
[command]
output_max_bytes = 1024

[[schedule]]
id = "note"
when = "on startup"
command = ["{sys.executable}", "-c", "print('by the file')"]
"""


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    path = tmp_path / "craftcore.toml"
    path.write_text(SETTINGS)
    return path


def output(path: Path, trigger_id: str) -> str:
    [row] = look(path, "SELECT response_json FROM executions WHERE trigger_id = :id", id=trigger_id)
    return str(row["response_json"])


async def wait_for_settled(path: Path, condition: str) -> str:
    """Wait until a trigger that matches the SQL condition is settled, and return its id."""
    with anyio.fail_after(PATIENCE):
        while True:
            rows = look(path, f"SELECT id, status FROM triggers WHERE {condition} AND settled_at IS NOT NULL")
            if rows:
                assert rows[0]["status"] == "DONE", rows
                return str(rows[0]["id"])
            await anyio.sleep(0.01)


@pytest.mark.anyio
@pytest.mark.parametrize("kind", [str, Path])
async def test_embedded_engine_runs_programs_and_configured_schedules(tmp_path, settings, kind):
    app, path = App(), tmp_path / "agent.db"

    async with app.running(path, config=kind(settings)):
        emitted = await app.emit("command.run", {"argv": [sys.executable, "-c", "print('from emit')"]})
        emitted_id = await wait_for_settled(path, f"id = '{emitted.id}'")
        scheduled_id = await wait_for_settled(path, "schedule_id = 'note'")

    assert "from emit" in output(path, emitted_id)
    assert "by the file" in output(path, scheduled_id)


@pytest.mark.anyio
async def test_embedded_engine_has_all_builtin_actions_and_leaves_the_app_unchanged(tmp_path):
    app = App()

    async with app.running(tmp_path / "agent.db"):
        assert {"email.send", "command.run", "http.request"} <= app.workflows.keys() & app.actions.keys()

    assert app.workflows.keys() == app.actions.keys() == set()


@pytest.mark.anyio
async def test_embedded_engines_of_an_app_use_their_own_settings(tmp_path, settings):
    app = App()
    async with app.running(tmp_path / "agent.db", config=settings):
        first = app.actions["command.run"]

    async with app.running(tmp_path / "agent.db"):
        assert app.actions["command.run"] is not first


def test_settings_that_cannot_be_read_are_refused_with_each_mistake(tmp_path):
    settings_path = tmp_path / "wrong.toml"
    settings_path.write_text("[daemon]\nconcurency = 3\n")

    with pytest.raises(ConfigInvalid, match="concurency"):
        App().running(tmp_path / "agent.db", config=settings_path)
    with pytest.raises(ConfigInvalid, match=r"missing\.toml"):
        App().running(tmp_path / "agent.db", config=str(tmp_path / "missing.toml"))
    with pytest.raises(ConfigInvalid, match="config is int: give a Config, or the path of a settings file"):
        App().running(tmp_path / "agent.db", config=3)  # type: ignore[arg-type]


def test_producer_accepts_a_path(tmp_path, settings):
    settings.write_text("[triggers]\npayload_max_bytes = 1024\n")

    with Producer(tmp_path / "agent.db", config=settings) as producer, pytest.raises(Exception, match="1,024"):
        producer.emit("greet", {"text": "x" * 2_000})
    with Producer(tmp_path / "agent.db", config=Config()) as producer:
        assert producer.emit("greet", {"text": "x" * 2_000}).created
