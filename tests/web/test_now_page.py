"""`/now` over the socket of a real page, beside real daemons: running and due work, holds, pauses and safe mode."""

from __future__ import annotations

import re

import pytest

from craftcore.storage.facts import set_fact
from craftcore.triggers.model import TriggerSpec
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.processes import APP, a_daemon, until
from tests.support.web_site import in_process


@pytest.fixture
def folder(tmp_path):
    """Return a folder with an app and an empty database."""
    (tmp_path / "app.py").write_text(APP)
    VirtualCore(tmp_path / "agent.db", VirtualClock()).close()
    return tmp_path


def emit(site, workflow, **more):
    with site.services.transaction() as tx:
        return site.services.triggers.emit(tx, TriggerSpec(workflow=workflow, **more)).id


def section(text, name, *, raw=False):
    """Return the text of a section of the page, or its HTML if `raw`."""
    [found] = re.findall(rf'<section aria-label="{re.escape(name)}">(.*?)</section>', text, re.DOTALL)
    return found if raw else " ".join(re.sub(r"<[^>]*>", " ", found).split())


def test_work_of_a_daemon_is_shown_with_its_attempt_and_the_rates(folder):
    with a_daemon(folder, "app:app") as daemon, in_process(folder / "agent.db") as site:
        daemon.ready()
        emit(site, "greet")
        running = emit(site, "slow")
        until(lambda: running in site.get("/now").text and "1 attempts ended" in site.get("/now").text, "the work")

        text = site.get("/now").text

        assert "slow" in section(text, "At work")
        assert f'href="/triggers/{running}"' in text
        assert "0 of them failed; 1 has no end" in section(text, "Rates of the last hour")
        assert "No daemon runs" not in text


WRITER = """
import anyio
from craftcore import App, TaskContext
app = App("writer")

@app.workflow("report")
async def report(ctx: TaskContext) -> None:
    await ctx.progress({"doing": "writing", "token": "s3cret"})
    await anyio.sleep_forever()
"""


def test_running_task_has_its_progress_and_a_link_to_its_cancellation(folder):
    (folder / "app.py").write_text(WRITER)
    with a_daemon(folder, "app:app") as daemon, in_process(folder / "agent.db") as site:
        daemon.ready()
        id = emit(site, "report")
        until(lambda: "writing" in site.get("/now").text, "the progress")

        of_ada = section(site.get("/now").text, "At work", raw=True)
        assert f'href="/tasks/{id}"' in of_ada
        assert f'href="/tasks/{id}/cancel">cancel…</a>' in of_ada
        assert "s3cret" not in of_ada
        assert site.get(f"/tasks/{id}/cancel").status_code == 200

        of_bob = section(site.get("/now", "bob").text, "At work", raw=True)
        assert f'href="/tasks/{id}"' in of_bob
        assert "cancel" not in of_bob
        assert "writing" not in of_bob, "a person who may only look sees no payload"


def test_page_shows_the_end_of_the_last_daemon_and_its_interrupted_work(folder):
    with a_daemon(folder, "app:app") as daemon, in_process(folder / "agent.db") as site:
        daemon.ready()
        running = emit(site, "slow")
        until(lambda: running in section(site.get("/now").text, "At work", raw=True), "the work")
        daemon.kill()
        until(lambda: "No daemon runs" in site.get("/now").text, "the end")

        text = site.get("/now").text

        assert re.search(r"The last one, process \d+ of .*? died", text, re.DOTALL)
        assert "Cut off, due when a daemon starts" in text
        assert running in text


def test_trigger_that_is_due_is_shown_with_its_reason_and_the_query(site, world):
    text = section(site.get("/now").text, "Due, and why it waits")

    assert "everything is held: it was restored" in text
    assert "no daemon runs on this database" in text
    assert "SELECT value FROM facts WHERE name = &#39;held&#39;" in text


@pytest.mark.parametrize(
    ("fact", "value", "words"),
    [("held", "by ada: disk swap", "everything is held"), ("safe_mode", "3 crashes", "safe mode")],
)
def test_state_that_holds_work_is_named_on_the_page(folder, fact, value, words):
    with in_process(folder / "agent.db") as site:
        with site.services.transaction() as tx:
            set_fact(tx, fact, value)

        for address in ("/now", "/health"):
            page = site.get(address)
            assert page.status_code == 200
            assert words in page.text
        assert 'href="/health/release"' in site.get("/health").text
        assert 'href="/health/release"' not in site.get("/health", "bob").text


def test_paused_daemon_is_named_on_the_page(folder):
    with a_daemon(folder, "app:app", "--paused") as daemon, in_process(folder / "agent.db") as site:
        daemon.ready()
        emit(site, "greet")

        assert "paused: the daemon was started with --paused" in site.get("/now").text
        assert "paused" in site.get("/health").text


def test_empty_database_has_a_page_with_empty_states(folder):
    with in_process(folder / "agent.db") as site:
        text = site.get("/now").text

        assert "None ever did." in text
        assert "Nothing is running." in text
        assert "Nothing is due." in text
        assert "Nothing comes within 24 hours." in text


def test_next_day_is_a_picture_and_a_table_of_the_same(folder):
    with in_process(folder / "agent.db") as site:
        at = site.services.clock.now() + 3600
        later = emit(site, "sync", at=at)
        text = section(site.get("/now").text, "The next 24 hours")

        assert "sync" in text
        assert f'href="/triggers/{later}"' in site.get("/now").text
        assert site.get("/now").text.count("<circle") == 1


def test_hostile_names_are_text_on_the_page(folder):
    with in_process(folder / "agent.db") as site:
        with site.services.transaction() as tx:
            [id] = [site.services.triggers.emit(tx, TriggerSpec(workflow="x", at=site.services.clock.now() + 60)).id]
            tx.run("UPDATE triggers SET workflow = :name WHERE id = :id", name="<img src=x>\u202e\x1b[2J", id=id)

        text = site.get("/now").text

        assert "<img" not in text
        assert "&lt;img src=x&gt;" in text
        assert "\u202e" not in text
        assert "\x1b" not in text


def test_page_without_its_file_names_the_missing_file(folder):
    with in_process(folder / "agent.db") as site:
        site.services.close()
        for name in ("agent.db", "agent.db-wal", "agent.db-shm"):
            (folder / name).unlink(missing_ok=True)

        now, health, up = site.get("/now"), site.get("/health"), site.get("/up", "")

        assert "no such database" in now.text
        assert health.status_code == 200
        assert health.text.count("cannot be read") >= 2
        assert "MB free" in health.text
        assert (up.status_code, up.text) == (503, "down\n")
