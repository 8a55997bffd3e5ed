"""The public types under a type checker: it infers results, and finds mistakes in calls."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mypy import api

APP = """
from dataclasses import dataclass
from craftcore import App, AsyncProducer, Call, Config, Producer, Question, Schedule, StorageFull, Task, TaskContext
from craftcore import Trigger, TriggerSpec

@dataclass
class Sum:
    total: int

app = App("typed")

async def fetch(url: str, timeout: float = 5) -> bytes:
    return b""

def length(text: str) -> int:
    return len(text)

@app.action("pay", irreversible=True)
async def pay(call: Call, *, amount: int, note: str = "") -> str:
    return "receipt"

@app.action("print")
def show(call: Call, *, text: str) -> int:
    return len(text)

@app.workflow("buy")
async def buy(ctx: TaskContext) -> str:
    characters: int = await ctx.step("length", length, "text")
    await ctx.step("fetch", fetch, "https://example.org", 5.0, key="slow")
    await ctx.step("fetch", fetch, 3)  # wrong
    await ctx.step("length", length)  # wrong
    wrong_length: str = await ctx.step("length", length, "text")  # wrong
    receipt: str = await ctx.act(pay, amount=3)
    receipt = await ctx.act(pay, amount=3, note="for tea", key="tea")
    await ctx.act(pay, amoun=3)  # wrong
    await ctx.act(pay, amount="3")  # wrong
    await ctx.act(pay)  # wrong
    wrong_receipt: int = await ctx.act(pay, amount=3)  # wrong
    shown: int = await ctx.act(show, text=receipt)
    wrong_text: str = await ctx.act(show, text=receipt)  # wrong
    await ctx.act("email.send", to="ada@example.org")
    return receipt

@app.workflow("agent")
async def agent(ctx: TaskContext[int], url: str) -> int:
    page: bytes = await ctx.step("fetch", fetch, url)
    wrong_page: str = await ctx.step("fetch again", fetch, url)  # wrong
    schedule: Schedule = await ctx.schedules.add("tea", "in 10m", workflow="agent", jitter=5)
    await ctx.schedules.add("tea", "in 10m", workflow="agent", jiter=5)  # wrong
    await ctx.schedules.edit("tea", wen="in 20m")  # wrong
    delivered: bool = await ctx.signal("id", "event")
    return ctx.state or len(page)

@app.every("5m", "sweep", jitter=10)
async def sweep() -> None: ...

@app.every("5m", jiter=10)  # wrong
async def swept() -> None: ...

async def use_functions() -> None:
    count: int = await (await app.start_workflow(agent, url="x")).result()
    await app.start_workflow(agent, ur="x")  # wrong
    await app.start_workflow(agent, url=3)  # wrong
    await (await app.start_workflow(sweep)).result()
    text: str = await (await app.start_workflow(agent, url="x")).result()  # wrong

async def use(producer: AsyncProducer) -> None:
    work = await app.emit("agent", {"url": "x"}, delay=5, id="1")
    await app.emit("agent", {"url": "x"}, dely=5)  # wrong
    total: Sum = await work.result(Sum, timeout=5)
    wrong_total: str = await work.result(Sum)  # wrong
    state: Task | Trigger = await work.state()
    wrong_state: str = await work.state()  # wrong
    created: bool = work.created
    for found in await app.find(workflow="agent", limit=5):
        number: int = await found.result(int)
    waited: bool = await app.signal(None, "go", start=TriggerSpec(workflow="agent"))
    moments: list[float] = await app.schedules.preview(when="every 1h", timezone="UTC")
    await app.schedules.preview("tea", when="every 1h")  # wrong
    questions: list[Question] = await app.questions()
    either: int | str = await work.result(int | str)
    several: list[int] = await work.result(list[int])
    text: str = await (await producer.emit("agent")).result(str)

def use_blocking(config: Config) -> None:
    with Producer("agent.db", config=config) as producer:
        try:
            total: Sum = producer.emit("agent", max_attempts=2).result(Sum)
            wrong_total: int = producer.handle("id").result(Sum)  # wrong
            producer.emit("agent", max_attempts="2")  # wrong
            producer.schedules.pause("tea", because="holidays")  # wrong
        except StorageFull:
            raise
"""


CACHE = Path(__file__).parents[1] / ".mypy_cache" / "user_types"
"""The cache for later runs. To analyse craftcore and the libraries again takes 15 seconds of processor."""


@pytest.mark.packaging
def test_type_checker_finds_each_mistake_and_no_other(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text(APP)
    report, _, _ = api.run(["--strict", "--no-error-summary", f"--cache-dir={CACHE}", str(app)])

    found = {int(number) for number in re.findall(r"app\.py:(\d+): error", report)}
    wrong = {number for number, line in enumerate(APP.splitlines(), 1) if line.endswith("# wrong")}
    assert found == wrong, report
