"""A complete story in the browser: a daemon is killed, and a person answers a question on a phone.

`CRAFTCORE_SCREENSHOTS=docs/how-to/images pytest tests/web/test_story_in_browser.py` makes the pictures of the how-to.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from craftcore.config import Config
from craftcore.producer import Producer
from craftcore.services import Services
from tests.support.metrics_client import free_port
from tests.support.processes import a_daemon, until
from tests.support.web_site import serving
from tests.web.browser import CHROMIUM, NO_BROWSER, chromium, find_serious, visitor

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=NO_BROWSER)

APP = """
import asyncio
from craftcore import App, Call, TaskContext
app = App("story")

@app.action("publish", irreversible=True, timeout=60)
async def publish(call: Call, *, title: str) -> str:
    return "p-881"

@app.workflow("report")
async def report(ctx: TaskContext, title: str = "Tides") -> str:
    async def collect() -> list[str]:
        await asyncio.sleep(0.3)
        return ["a note", "another note"]
    async def write() -> str:
        while not __import__("os").path.exists("go"):
            await asyncio.sleep(0.05)
        return "the text"
    notes = await ctx.step("notes", collect)
    await ctx.step("write", write)
    question = f'Publish "{title}" with {len(notes)} notes?'
    if await ctx.ask(question, options=["publish", "hold"], timeout=3600, default="hold") == "publish":
        await ctx.act(publish, title=title)
    return title

@app.workflow("transfer")
async def transfer(ctx: TaskContext) -> None:
    await ctx.act(pay, amount=240, to="DE89 3704 0044 0532 0130 00", token="sesame")

@app.action("bank.transfer", irreversible=True, timeout=60)
async def pay(call: Call, *, amount: int, to: str, token: str) -> str:
    open("paying", "w").close()
    await asyncio.sleep(600)
    return "never"
"""


def keep_picture(page, name):
    if folder := os.environ.get("CRAFTCORE_SCREENSHOTS"):
        Path(folder).mkdir(exist_ok=True)
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


def test_person_answers_on_a_phone_and_sees_the_crash(tmp_path):
    (tmp_path / "story.py").write_text(APP)
    database = tmp_path / "agent.db"
    with a_daemon(tmp_path, "story:app") as daemon:
        daemon.ready()
        with Producer(database) as producer:
            report, transfer = producer.emit("report"), producer.emit("transfer")
        until((tmp_path / "paying").exists, "the call")
        until(lambda: '"notes"' in events_of(database, report.id), "the first step")
        daemon.kill()
    (tmp_path / "go").touch()
    with (
        a_daemon(tmp_path, "story:app") as daemon,
        serving(database, port=free_port(), CRAFTCORE_DB=str(database)) as site,
        chromium() as browser,
    ):
        daemon.ready()
        question = until(lambda: question_of(site, report.id), "the question")
        until(lambda: question_of(site, transfer.id), "the doubt")
        with visitor(browser, site, width=360) as person:
            page = person.open("/")
            assert "Did it happen?" in page.inner_text("main")
            assert "sesame" not in page.content()
            assert find_serious(page) == []
            keep_picture(page, "inbox")
            page.click("text=review")
            assert "240" in page.inner_text("main")
            assert "sesame" not in page.content()
            keep_picture(page, "did-it-happen")

            page = person.open(f"/q/{question}")  # the link in a message
            page.click("button:text-is('publish')")
            page.wait_for_selector(".notice")
            until(lambda: status_of(site, report.id) == "DONE", "the end of the task")
            assert person.faults == []
        with visitor(browser, site) as person:
            page = person.open(f"/tasks/{report.id}")
            text = page.inner_text("main")
            assert "daemon died between" in text
            assert "ada (web): publish" in text
            assert "reference p-881" in text
            keep_picture(page, "task")
            keep_picture(person.open("/now"), "now")
            assert "sesame" not in person.open(f"/tasks/{transfer.id}").content()
            assert person.faults == []


@pytest.mark.browser
def test_change_is_in_the_browser_without_a_reload(tmp_path):
    (tmp_path / "story.py").write_text(APP)
    with a_daemon(tmp_path, "story:app") as daemon, serving(tmp_path / "agent.db", port=free_port()) as site:
        daemon.ready()
        with chromium() as browser, visitor(browser, site) as person:
            page = person.open("/now")
            page.wait_for_load_state("load")
            with Producer(tmp_path / "agent.db") as producer:
                producer.emit("report")
            page.wait_for_selector("main >> text=report", timeout=60_000)
            daemon.kill()
            page.wait_for_selector("header >> text=down: no daemon runs", timeout=60_000)
            assert person.faults == []


def events_of(database, task_id):
    with Services(database, Config()).reading() as reader:
        rows = reader.fetch_tuples(
            "SELECT payload_json FROM event_rows JOIN tasks ON tasks.seq = task_seq WHERE tasks.id = ?1", (task_id,)
        )
        return str(list(rows))


def question_of(site, task_id):
    with site.services.reading() as reader:
        return reader.fetch_value(
            "SELECT questions.id FROM questions JOIN tasks ON tasks.seq = task_seq WHERE tasks.id = :id", id=task_id
        )


def status_of(site, task_id):
    with site.services.reading() as reader:
        return reader.fetch_value("SELECT status FROM tasks WHERE id = :id", id=task_id)
