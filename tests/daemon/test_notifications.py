"""Notifications of a running engine: webhooks, commands, mail, pings and functions of an app."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from craftcore import App, Call, ConfigInvalid, Fail, Notification, TaskContext, TriggerSpec
from craftcore.config import Config
from craftcore.daemon import notification_loop
from craftcore.daemon.lifespan import running
from craftcore.daemon.notify_targets import notify_rules, with_webhooks
from craftcore.notifications.model import LINES_MAX
from tests.support.engine_harness import Lab
from tests.support.http_provider import Asked, Handler, a_provider

pytestmark = pytest.mark.anyio


UNHANDLED = "SELECT 1 FROM notices WHERE seq > (SELECT CAST(value AS INTEGER) FROM facts WHERE name = 'notices_seen')"


@pytest.fixture(autouse=True)
def short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the intervals of the notification loop."""
    for name in ("LOOK_SECONDS", "REST_SECONDS", "HEALTH_SECONDS"):
        monkeypatch.setattr(notification_loop, name, 0.01)


def build_app() -> App:
    app = App("notified")

    @app.workflow("asks")
    async def asks(ctx: TaskContext) -> str | None:
        return await ctx.ask("Send it?", options=["send", "hold"])

    @app.workflow("fails")
    async def fails() -> None:
        raise Fail("VALIDATION_ERROR", "no such customer")

    @app.workflow("greet")
    async def greet() -> None: ...

    return app


def settings(folder: Path, text: str) -> Config:
    path = folder / "craftcore.toml"
    path.write_text(f"[http]\nallow_private = true\n[retry]\nmax_attempts = 1\nbase_seconds = 0\n{text}")
    return Config.load(path)


async def test_webhook_receives_each_event_as_json(tmp_path):
    app = build_app()
    with a_provider() as provider:
        config = settings(tmp_path, f'[[notify]]\non = ["question", "failed"]\nwebhook = "{provider.url}/hook?a=1"\n')
        async with running(app, tmp_path / "agent.db", config) as engine:
            harness = Lab(app, engine, tmp_path / "agent.db")
            await app.emit("asks")
            await harness.until(lambda: len(provider.effects) == 1)
            await app.emit("fails")
            await harness.until(lambda: len(provider.effects) == 2)

    question, failure = [json.loads(each.body) for each in provider.effects]
    assert {each.path for each in provider.effects} == {"/hook?a=1"}
    assert question["subject"] == "craftcore: question, asks"
    assert question["text"].startswith("asks asks: Send it? [send, hold] (craftcore inbox answer ")
    [one] = question["notifications"]
    assert (one["kind"], one["workflow"]) == ("question", "asks")
    assert failure["notifications"][0]["text"] == "fails has failed: VALIDATION_ERROR: no such customer"


async def test_webhook_that_is_refused_after_a_lost_answer_asks_no_person(tmp_path):
    app = build_app()

    def reset_then_refuse(handler: Handler, asked: Asked) -> None:
        if len(provider.asked) == 1:
            handler.reset()
        else:
            handler.begin(404, Content_Length="0")

    with a_provider() as provider:
        provider.behaviour = reset_then_refuse
        config = settings(tmp_path, f'[[notify]]\non = ["failed", "in_doubt"]\nwebhook = "{provider.url}/hook"\n')
        config = replace(config, retry=replace(config.retry, max_attempts=3))
        async with running(app, tmp_path / "agent.db", config) as engine:
            harness = Lab(app, engine, tmp_path / "agent.db")
            await app.emit("fails")
            await harness.until(lambda: len(provider.asked) == 2)
            sent = "SELECT * FROM triggers WHERE dedup_key GLOB 'notify:*' AND settled_at IS NOT NULL"
            await harness.until(lambda: [row["status"] for row in harness.rows(sent)] == ["FAILED"])
            [row] = harness.rows(sent)
            assert row["error_code"] == "ACTIVITY_UNKNOWN"
            assert harness.rows("SELECT * FROM questions") == []


async def test_command_receives_the_text_and_the_document(tmp_path):
    program = "import os,sys;open('received','w').write(os.environ['CRAFTCORE_NOTIFICATION']+'|'+sys.stdin.read())"
    argv = json.dumps([sys.executable, "-c", f"import os; os.chdir({str(tmp_path)!r}); {program}"])
    config = settings(tmp_path, f'[[notify]]\non = "failed"\nworkflow = "fa*"\ncommand = {argv}\n')
    app = build_app()
    async with running(app, tmp_path / "agent.db", config) as engine:
        harness = Lab(app, engine, tmp_path / "agent.db")
        await app.emit("fails")
        await harness.until(lambda: (tmp_path / "received").exists() and "|{" in (tmp_path / "received").read_text())
    text, _, document = (tmp_path / "received").read_text().partition("|")
    assert text.startswith("fails has failed: VALIDATION_ERROR: no such customer (craftcore trigger why ")
    assert json.loads(document)["count"] == 1


async def test_ping_reports_success_and_failure_of_a_schedule(tmp_path):
    app = build_app()
    app.schedule("hourly", "every 1h", workflow="greet")
    app.schedule("broken", "every 1h", workflow="fails")
    with a_provider() as provider:
        pings = "".join(f'[[notify]]\nschedule = "{id}"\nping = "{provider.url}/{id}"\n' for id in ("hourly", "broken"))
        async with running(app, tmp_path / "agent.db", settings(tmp_path, pings)) as engine:
            harness = Lab(app, engine, tmp_path / "agent.db")
            for id in ("hourly", "broken"):
                await app.schedules.run_now(id)
            await harness.until(lambda: len(provider.asked) == 2)
    assert {(each.method, each.path) for each in provider.asked} == {("GET", "/hourly"), ("GET", "/broken/fail")}


async def test_functions_of_the_app_are_called_for_failures_and_questions(tmp_path):
    app = build_app()
    received: list[Any] = []

    @app.on_failure
    async def note(failure: Notification) -> None:
        received.append(failure)
        raise Fail("VALIDATION_ERROR", "and this fails, too")

    @app.on_question
    async def remind(ctx: TaskContext, question: Notification) -> None:
        received.append(question)

    async with running(app, tmp_path / "agent.db", settings(tmp_path, "")) as engine:
        harness = Lab(app, engine, tmp_path / "agent.db")
        failed = await app.emit("fails")
        await harness.until(lambda: len(received) == 1)
        await app.emit("asks")
        await harness.until(lambda: len(received) == 2)
        await harness.until(lambda: not harness.rows(UNHANDLED))
        await harness.idle()
    assert [(type(one), one.kind) for one in received] == [(Notification, "failed"), (Notification, "question")]
    assert received[0].id == failed.id


async def test_doubt_in_a_failure_handler_is_notified(tmp_path):
    """A doubt in a failure handler waits for a person, so it must be notified."""
    app, notifications = build_app(), list[Notification]()

    @app.action("pay_back", irreversible=True)
    async def pay_back(call: Call) -> str:
        raise ConnectionResetError("the answer got lost")

    @app.on_failure
    async def refund(ctx: TaskContext, failure: Notification) -> None:
        await ctx.act(pay_back)

    @app.on_question
    async def tell(question: Notification) -> None:
        notifications.append(question)

    async with running(app, tmp_path / "agent.db", settings(tmp_path, "")) as engine:
        harness = Lab(app, engine, tmp_path / "agent.db")
        await app.emit("fails")
        await harness.until(lambda: bool(notifications))

    assert [(one.kind, one.workflow) for one in notifications] == [("in_doubt", "on_failure.refund")]


@pytest.mark.parametrize("character", ["x", "\u4e2d", "\U0001f600", "\0"])
async def test_digest_of_long_texts_is_sent(tmp_path, monkeypatch, character):
    monkeypatch.setattr(notification_loop, "LOOK_SECONDS", 1.0)
    app = build_app()

    @app.workflow("breaks")
    async def breaks() -> None:
        raise Fail("VALIDATION_ERROR", character * 2_000)

    program = "import os,sys; os.environ['CRAFTCORE_NOTIFICATION']; sys.stdin.read()"
    argv = json.dumps([sys.executable, "-c", program])
    config = settings(tmp_path, f'[[notify]]\non = "failed"\ncommand = {argv}\n')
    async with running(app, tmp_path / "agent.db", config) as engine:
        harness = Lab(app, engine, tmp_path / "agent.db")
        await app.emit_many([TriggerSpec(workflow="breaks")] * (LINES_MAX + 10))
        sent = "SELECT status FROM triggers WHERE dedup_key GLOB 'notify:*'"
        await harness.until(lambda: bool(harness.rows(sent)))
        await harness.until(lambda: {row["status"] for row in harness.rows(sent)} == {"DONE"})


async def test_failing_target_neither_loops_nor_delays_work(tmp_path):
    app = build_app()
    config = settings(tmp_path, '[[notify]]\non = ["failed", "dead"]\ncommand = ["false"]\n')
    async with running(app, tmp_path / "agent.db", config) as engine:
        harness = Lab(app, engine, tmp_path / "agent.db")
        for _ in range(3):
            await (await app.emit("fails")).state()
        ended = "SELECT id FROM triggers WHERE dedup_key GLOB 'notify:*' AND status = 'DEAD'"
        await harness.until(lambda: len(harness.rows(ended)) == 3)
        assert (await harness.settled((await app.emit("greet")).id))["status"] == "DONE"
        await harness.until(lambda: not harness.rows(UNHANDLED))
        await harness.idle()
        assert len(harness.rows("SELECT id FROM triggers WHERE dedup_key GLOB 'notify:*'")) == 3


async def test_damaged_notice_is_skipped_and_later_events_are_notified(tmp_path):
    app = build_app()
    config = settings(tmp_path, '[[notify]]\non = "failed"\ncommand = ["true"]\n')
    async with running(app, tmp_path / "agent.db", config) as engine:
        harness = Lab(app, engine, tmp_path / "agent.db")
        damaged = "INSERT INTO notices (kind, subject, at) VALUES ('failed', CAST(x'ff' AS TEXT), 1.0)"
        await engine.writer.commit(lambda tx: tx.run(damaged))
        seen = "SELECT 1 FROM facts WHERE name = 'notices_seen'"
        await harness.until(lambda: bool(harness.rows(seen)))
        failed = await app.emit("fails")
        sent = "SELECT payload_json FROM triggers WHERE dedup_key GLOB 'notify:*'"
        await harness.until(lambda: bool(harness.rows(sent)))
        [row] = harness.rows(sent)
        assert failed.id in row["payload_json"]


async def test_lasting_trouble_and_its_end_are_notified_once_each(tmp_path):
    app = build_app()
    config = settings(tmp_path, '[[notify]]\non = "unhealthy"\ncommand = ["true"]\n')
    async with running(app, tmp_path / "agent.db", config) as engine:
        harness = Lab(app, engine, tmp_path / "agent.db")
        await app.hold(reason="maintenance")

        def texts() -> list[str]:
            rows = harness.rows("SELECT payload_json FROM triggers WHERE dedup_key GLOB 'notify:*' ORDER BY seq")
            return [json.loads(json.loads(row["payload_json"])["stdin"])["notifications"][0]["text"] for row in rows]

        await harness.until(lambda: len(texts()) == 1)
        assert texts()[0].endswith(": maintenance")
        await app.release()
        await harness.until(lambda: len(texts()) == 2)
        assert texts()[1] == "craftcore is well again"


def test_handler_with_other_arguments_is_refused():
    app = App()
    with pytest.raises(ConfigInvalid, match="must take one argument, a Notification"):

        @app.on_failure
        async def without_argument() -> None: ...

    with pytest.raises(ConfigInvalid, match=r"declare it with @app\.on_question"):
        app.on_question("asks")  # type: ignore[type-var]


def test_mail_has_a_subject_and_a_line_for_each_event(tmp_path):
    config = settings(
        tmp_path,
        '[email]\nhost = "localhost"\nsecurity = "none"\nsender = "a@example.org"\n'
        '[[notify]]\non = "dead"\nemail = "ops@example.org"\n',
    )
    [rule] = notify_rules(App(), config)
    events = [Notification(kind="dead", id=str(n), text=f"event {n}", at=0.0, workflow="w") for n in range(60)]

    assert rule.compose(events[:1]) == (
        "email.send",
        {"to": ["ops@example.org"], "subject": "craftcore: dead, w", "body": "event 0"},
    )
    many = rule.compose(events).payload
    assert many["subject"] == "craftcore: 60 notifications"
    assert many["body"].splitlines()[LINES_MAX:] == ["and 10 more: craftcore status"]


@pytest.mark.parametrize("kind", ["dead", "failed"])
def test_ping_of_a_failure_keeps_the_query_of_the_address(tmp_path, kind):
    config = settings(tmp_path, '[[notify]]\nschedule = "nightly"\nping = "https://hc-ping.com/key/?create=1"\n')
    [rule] = notify_rules(App(), config)
    event = Notification(kind=kind, id="x", text="", at=0.0, schedule="nightly")
    assert rule.compose([event]).payload == {"url": "https://hc-ping.com/key/fail?create=1"}


def test_webhook_without_a_target_may_be_sent_again(tmp_path):
    config = settings(tmp_path, '[[notify]]\non = "dead"\nwebhook = "https://example.org/a/b"\n')
    [target] = with_webhooks(config).target.values()
    assert (target.base_url, target.provider_dedupes) == ("https://example.org/", True)
    assert with_webhooks(Config()).target == {}
