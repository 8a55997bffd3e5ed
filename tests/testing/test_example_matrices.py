"""Crash matrices of the examples: they keep their promises at each kill, and broken variants do not.

The default run kills each example at some of its points. The tests marked `acceptance` kill at all points and pairs.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import uuid4

import pytest

from craftcore import App
from craftcore.failpoints import Failpoint
from craftcore.testing import CrashMatrixFailed, Lab, ScenarioEnd, crash_matrix, happens_once, record_effect
from craftcore.testing.crash_point import CrashPoint
from tests.support.code_blocks import all_blocks
from tests.support.some_crashes import crash_some, first_changes

EXAMPLES = Path(__file__).parents[2] / "examples"
ASSISTANT = EXAMPLES / "assistant"


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], Any]:
    """Return a function that imports a program by its path, as if it were started without arguments."""

    def load(path: Path) -> ModuleType:
        monkeypatch.setattr(sys, "argv", [str(path)])
        spec = spec_from_file_location(f"example_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        spec.loader.exec_module(module)
        return module

    return load


def lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []


AT_EACH_POINT = pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.acceptance)])


def play(app: App, scenario: Callable[[Lab], Any], invariants: list[Any], *, whole: bool, pairs: bool = False) -> None:
    """Kill a scenario after the first change of each kind. `whole`: at all points, with `pairs` also twice."""
    if whole:
        crash_matrix(app, scenario, invariants, pairs=pairs)
    else:
        assert crash_some(app, scenario, invariants, choose=first_changes).reached > 0


def fails_at(point: str, app: App, scenario: Callable[[Lab], Any], invariants: list[Any]) -> str:
    """Return the text of a matrix that must fail at this point."""
    with pytest.raises(CrashMatrixFailed) as failed:
        crash_matrix(app, scenario, invariants, at=point)
    return str(failed.value)


def fails_after(name: str, app: App, scenario: Callable[[Lab], Any], invariants: list[Any]) -> str:
    """Return the text of a matrix that must fail when this step has run."""
    with pytest.raises(CrashMatrixFailed) as failed:
        crash_some(app, scenario, invariants, choose=after_steps)
    assert name in {row.where for row in failed.value.report.rows() if row.broken}, failed.value
    return str(failed.value)


def after_steps(points: Sequence[CrashPoint]) -> list[CrashPoint]:
    return [point for point in points if point.point is Failpoint.STEP_RAN]


# order.py


async def buy_lamp(lab: Lab) -> Any:
    return await lab.result(await lab.emit("order", {"what": "lamp", "price": 40}))


def lamp_is_charged_and_confirmed_once(ending: ScenarioEnd) -> None:
    assert ending.returned == "lamp is paid and confirmed"
    assert [line.split(" ", 1)[1] for line in lines("charges.txt")] == ["40 € for lamp"]
    assert lines("messages.txt") == ["lamp is paid: charge 1"]


@AT_EACH_POINT
def test_order_charges_and_confirms_once(load: Callable[[Path], Any], whole: bool):
    app = load(EXAMPLES / "order.py").app
    play(app, buy_lamp, [lamp_is_charged_and_confirmed_once], whole=whole, pairs=True)


def test_order_with_a_plain_step_charges_twice(load: Callable[[Path], Any]):
    example = load(EXAMPLES / "order.py")
    broken = App("orders")

    @broken.workflow("order")
    async def order(ctx: Any, what: str, price: int) -> str:
        charge = await ctx.step("pay", pay, what, price)
        await ctx.step("confirm", example.the_post, f"{what} is paid: {charge}")
        return f"{what} is paid and confirmed"

    async def pay(what: str, price: int) -> Any:
        return await example.the_bank(uuid4().hex, f"{price} € for {what}")

    text = fails_at("step.ran:1", broken, buy_lamp, [lamp_is_charged_and_confirmed_once])
    assert "lamp is charged and confirmed once" in text


# saga.py


async def travel(lab: Lab) -> Any:
    await lab.emit("trip", {"city": "Reykjavik"})
    await lab.emit("trip", {"city": "Lisbon"})
    await lab.advance(minutes=5)


def bookings_are_whole_or_cancelled(ending: ScenarioEnd) -> None:
    assert ending.statuses == ["FAILED", "DONE"]
    assert len(lines("bookings.txt")) == len(set(lines("bookings.txt")))
    booked = [line.removeprefix("booked ") for line in lines("bookings.txt") if line.startswith("booked")]
    cancelled = [line.removeprefix("cancelled ") for line in lines("bookings.txt") if line.startswith("cancelled")]
    assert sorted(line.partition(":")[0] for line in booked) == ["car", "flight", "flight", "hotel", "hotel"]
    assert [line.partition(":")[0] for line in cancelled] == ["hotel", "flight"]


@AT_EACH_POINT
def test_saga_books_or_cancels_everything(load: Callable[[Path], Any], whole: bool):
    app = load(EXAMPLES / "saga.py").app

    async def to_reykjavik(lab: Lab) -> Any:
        await lab.emit("trip", {"city": "Reykjavik"})
        await lab.advance(minutes=5)

    def is_cancelled(ending: ScenarioEnd) -> None:
        assert ending.statuses == ["FAILED"]
        kinds = [line.partition(":")[0] for line in lines("bookings.txt")]
        assert kinds == ["booked flight", "booked hotel", "cancelled hotel", "cancelled flight"]

    if whole:
        crash_matrix(app, to_reykjavik, [is_cancelled], pairs=True)
    play(app, travel, [bookings_are_whole_or_cancelled], whole=whole)


def test_saga_whose_provider_forgets_ids_books_twice(load: Callable[[Path], Any], monkeypatch: pytest.MonkeyPatch):
    example = load(EXAMPLES / "saga.py")

    def the_other_side(does: str) -> None:
        with Path("bookings.txt").open("a") as file:
            file.write(f"{does}\n")

    monkeypatch.setattr(example, "the_other_side", the_other_side)
    fails_at("step.ran:1", example.app, travel, [bookings_are_whole_or_cancelled])


# approval.py


async def approve_laptop(lab: Lab) -> Any:
    purchase = await lab.emit("purchase", {"what": "laptop", "price": 1200}, session_id="laptop")
    await lab.answer("approve", question="Buy laptop")
    return await lab.result(purchase)


def laptop_is_ordered_under_one_id(ending: ScenarioEnd) -> None:
    assert ending.returned.startswith("laptop is ordered as ")
    assert len({effect.arguments["request_id"] for effect in ending.effects_of("order")}) == 1
    reminders = ending.rows("SELECT result_json FROM tasks WHERE workflow = 'remind' AND status = 'DONE'")
    assert [row["result_json"].partition(",")[0] for row in reminders] in (['"reminded 0 times'], ['"reminded 1 times'])


def record_order(what: str, request_id: str) -> str:
    record_effect("order", request_id=request_id)
    return f"{what} is ordered as {request_id}"


@AT_EACH_POINT
def test_approval_orders_under_a_single_id(load: Callable[[Path], Any], monkeypatch: pytest.MonkeyPatch, whole: bool):
    example = load(EXAMPLES / "approval.py")
    monkeypatch.setattr(example, "order", record_order)
    play(example.app, approve_laptop, [laptop_is_ordered_under_one_id], whole=whole, pairs=True)

    async def approve_after_a_reminder(lab: Lab) -> Any:
        purchase = await lab.emit("purchase", {"what": "laptop", "price": 1200}, session_id="laptop")
        await lab.advance(hours=9)
        await lab.answer("approve", question="Buy laptop")
        return await lab.result(purchase)

    if whole:
        crash_matrix(example.app, approve_after_a_reminder, [laptop_is_ordered_under_one_id])


def test_approval_with_a_new_id_for_each_call_orders_twice(
    load: Callable[[Path], Any], monkeypatch: pytest.MonkeyPatch
):
    example = load(EXAMPLES / "approval.py")
    monkeypatch.setattr(example, "order", lambda what, request_id: record_order(what, uuid4().hex))
    text = fails_after("order", example.app, approve_laptop, [laptop_is_ordered_under_one_id])
    assert "laptop is ordered under one id" in text


# research_agent.py


async def research(lab: Lab) -> Any:
    task = await lab.emit("research", {"question": "When is a commit on disk?"})
    await lab.answer("yes", question="buy")
    return await lab.result(task)


def report_is_bought_under_one_id(ending: ScenarioEnd) -> None:
    assert ending.returned.startswith("Of 1 sources the last one says: durability-2026, bought as ")
    assert len({effect.arguments["request_id"] for effect in ending.effects_of("buy")}) == 1


def a_research_agent(load: Callable[[Path], Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the example with the model stub of its second terminal and a shop that records each purchase."""
    example, model = load(EXAMPLES / "research_agent.py"), load(EXAMPLES / "stub_model.py")
    use_tool = example.use_tool

    def use_and_record(name: str, arguments: str, request_id: str) -> Any:
        if name == "buy":
            record_effect("buy", request_id=request_id)
        return use_tool(name, arguments, request_id)

    monkeypatch.setattr(model, "PLAN", model.PLAN[-1:])
    monkeypatch.setattr(example, "ask_model", model.reply)
    monkeypatch.setattr(example, "use_tool", use_and_record)
    return example


@AT_EACH_POINT
def test_research_agent_buys_under_a_single_id(
    load: Callable[[Path], Any], monkeypatch: pytest.MonkeyPatch, whole: bool
):
    example = a_research_agent(load, monkeypatch)
    play(example.app, research, [report_is_bought_under_one_id], whole=whole, pairs=True)


def test_research_agent_with_a_new_id_for_each_call_buys_twice(
    load: Callable[[Path], Any], monkeypatch: pytest.MonkeyPatch
):
    example = a_research_agent(load, monkeypatch)
    use_tool = example.use_tool
    monkeypatch.setattr(example, "use_tool", lambda name, arguments, _: use_tool(name, arguments, uuid4().hex))
    fails_after("tool", example.app, research, [report_is_bought_under_one_id])


# assistant/agent.py, email_sent_folder.py


@AT_EACH_POINT
def test_assistant_sends_an_approved_email_once(
    load: Callable[[Path], Any], monkeypatch: pytest.MonkeyPatch, whole: bool
):
    agent, model = load(ASSISTANT / "agent.py"), load(ASSISTANT / "model_stub.py")
    monkeypatch.setattr(agent, "ask_model", model.reply)

    async def chat(lab: Lab) -> Any:
        text = "mail ada@example.org about lunch: at noon?"
        task = await lab.emit("chat", {"user": "eve", "text": text}, session_id="eve")
        await lab.answer("send", question="Send to ada")
        return await lab.result(task)

    def is_answered_once(ending: ScenarioEnd) -> None:
        [row] = ending.rows("SELECT state_json FROM tasks")
        said = json.loads(row["state_json"])
        assert [one["role"] for one in said] == ["user", "assistant"]
        assert (ending.returned, said[-1]["content"]) == ("sent", "sent")

    play(agent.app, chat, [happens_once("email.send"), is_answered_once], whole=whole)


@AT_EACH_POINT
def test_reminder_of_the_assistant_arrives_once(
    load: Callable[[Path], Any], monkeypatch: pytest.MonkeyPatch, whole: bool
):
    agent, model = load(ASSISTANT / "agent.py"), load(ASSISTANT / "model_stub.py")
    monkeypatch.setattr(agent, "ask_model", model.reply)

    async def chat(lab: Lab) -> Any:
        await lab.result(await lab.emit("chat", {"user": "eve", "text": "remind me to eat in 10m"}, session_id="eve"))
        await lab.advance(minutes=11)

    def is_reminded_once(ending: ScenarioEnd) -> None:
        [row] = ending.rows("SELECT state_json FROM tasks WHERE workflow = 'chat'")
        assert [one["content"] for one in json.loads(row["state_json"])].count("eat") == 1

    play(agent.app, chat, [is_reminded_once], whole=whole)


@AT_EACH_POINT
def test_email_app_sends_once(load: Callable[[Path], Any], monkeypatch: pytest.MonkeyPatch, whole: bool):
    monkeypatch.delenv("IMAP_HOST", raising=False)
    app = load(EXAMPLES / "email_sent_folder.py").app

    @app.workflow("tell")
    async def tell(ctx: Any) -> None:
        await ctx.act("email.send", to="ada@example.org", subject="Lunch", body="At noon?")

    async def send(lab: Lab) -> Any:
        lab.provider("email.send", resets_after=1)
        await lab.result(await lab.emit("tell"))

    play(app, send, [happens_once("email.send")], whole=whole)


# docs/tutorial


@AT_EACH_POINT
def test_watch_of_the_tutorial_orders_once(load: Callable[[Path], Any], tmp_path: Path, whole: bool):
    [program] = [block for block in all_blocks() if block.first == "# watch.py"]
    (tmp_path / "watch.py").write_text(program.text)
    app = load(tmp_path / "watch.py").app

    async def watch(lab: Lab) -> Any:
        task = await lab.emit("watch", {"item": "lamp", "limit": 50})
        await lab.answer("buy", question="lamp costs 42")
        return await lab.result(task)

    play(app, watch, [happens_once("order")], whole=whole)


def test_examples_have_a_matrix_here():
    text = Path(__file__).read_text()
    programs = [path for path in EXAMPLES.rglob("*.py") if "App(" in path.read_text()]
    assert len(programs) == 6
    assert [path.name for path in programs if f'"{path.name}"' not in text] == []
    assert os.environ.get("IMAP_HOST") is None
