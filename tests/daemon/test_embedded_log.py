"""The log of an engine inside a program: the settings of `[log]`, and `ctx.log` in the log of the program."""

from __future__ import annotations

import io
import json
import logging
import re
from pathlib import Path
from typing import Any

import anyio
import pytest
import structlog

from craftcore import App, TaskContext
from craftcore.config import Config, LogSettings
from craftcore.daemon.logging import configure
from tests.support.code_blocks import ROOT
from tests.support.processes import PATIENCE

PAGE = ROOT / "docs/how-to/logging.md"


@pytest.fixture
def app() -> App:
    app = App("shop")

    @app.workflow("sell")
    async def sell(ctx: TaskContext[Any]) -> None:
        ctx.log.info("order.sold", order="o-1")

    return app


def run_sale(app: App, path: Path, payload: dict[str, Any] | None = None, **settings: Any) -> None:
    """Run one task in an engine of this program."""

    async def emit_and_wait() -> None:
        async with app.running(path / "agent.db", config=Config(log=LogSettings(**settings))):
            with anyio.fail_after(PATIENCE):
                await (await app.emit("sell", payload or {})).result()

    anyio.run(emit_and_wait)


def test_program_without_a_log_gets_the_level_and_format_of_the_settings(app, tmp_path, capsys) -> None:
    logging.getLogger().handlers.clear()  # the handlers of pytest
    run_sale(app, tmp_path, level="info", format="json")

    events = [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()]
    assert {"engine.booted", "order.sold"} <= set(events)


def test_program_without_a_log_gets_warnings_alone_by_default(app, tmp_path, capsys) -> None:
    logging.getLogger().handlers.clear()  # the handlers of pytest
    run_sale(app, tmp_path)

    assert capsys.readouterr().err == ""


def test_level_of_the_settings_is_that_of_the_records_of_a_program(app, tmp_path, caplog) -> None:
    """The root logger keeps its level WARNING."""
    run_sale(app, tmp_path, level="info")

    assert {"craftcore.task", "craftcore.daemon.lifespan"} <= {record.name for record in caplog.records}
    assert logging.getLogger().level == logging.WARNING


def test_level_that_the_program_set_wins_over_the_settings(app, tmp_path, caplog) -> None:
    caplog.set_level("ERROR", "craftcore")
    run_sale(app, tmp_path, level="info")

    assert caplog.records == []


def test_task_log_is_a_record_of_the_program_with_its_fields(app, tmp_path, caplog) -> None:
    caplog.set_level("INFO")
    run_sale(app, tmp_path)

    [record] = [record for record in caplog.records if record.name == "craftcore.task"]
    assert record.filename == "test_embedded_log.py"
    fields = record.craftcore
    assert (fields["event"], fields["order"], fields["turn"], fields["attempt"]) == ("order.sold", "o-1", 1, 1)


def test_task_log_arrives_in_the_structlog_of_the_program(app, tmp_path) -> None:
    with structlog.testing.capture_logs() as lines:
        run_sale(app, tmp_path)

    [line] = [line for line in lines if line["event"] == "order.sold"]
    assert (line["order"], line["turn"], line["log_level"]) == ("o-1", 1, "info")


def test_logging_page_describes_its_program(tmp_path) -> None:
    """docs/how-to/logging.md shows a program shop.py that logs in its handler and sets the level of two loggers."""
    [text] = re.findall(r"```python\n(# shop\.py\n.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    namespace: dict[str, Any] = {}
    try:
        exec(text, namespace)
        stream = io.StringIO()
        configure("auto", "json", stream=stream, under_systemd=False)
        run_sale(namespace["app"], tmp_path, {"order": "o-1"})
    finally:
        for name in ("craftcore.engine", "craftcore.task"):
            logging.getLogger(name).setLevel(logging.NOTSET)

    [line] = [line for line in map(json.loads, stream.getvalue().splitlines()) if line["event"] == "order.sold"]
    assert (line["level"], line["order"], line["turn"]) == ("debug", "o-1", 1)


def test_task_log_of_a_daemon_arrives_in_its_log(app, tmp_path) -> None:
    stream = io.StringIO()
    configure("auto", "json", stream=stream, under_systemd=False)
    structlog.configure(processors=[])
    run_sale(app, tmp_path, level="error", format="text")

    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    [line] = [line for line in lines if line["event"] == "order.sold"]
    assert (line["level"], line["order"], line["turn"], line["attempt"]) == ("info", "o-1", 1, 1)
