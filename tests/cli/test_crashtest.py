"""`craftcore crashtest`: the table of crashes, broken promises, and refusals of invalid input."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.processes import craftcore

PROGRAM = """
from datetime import datetime
from pathlib import Path
from craftcore import App, Call, Continue, Fail, TaskContext

app = App("shop")

@app.action("pay", irreversible=True)
async def pay(call: Call, *, cents: int) -> str:
    raise RuntimeError("the bank must not be called")

@app.action("tell", irreversible=False)
async def tell(call: Call, *, text: str) -> None:
    with open("told.txt", "a") as file:
        file.write(text)

@app.workflow("order")
async def order(ctx: TaskContext, cents: int) -> str:
    await ctx.step("count", len, "abc")
    receipt = await ctx.act(pay, cents=cents)
    await ctx.sleep("2d")
    if await ctx.ask("Send it?", ["yes", "no"]) == "no":
        raise Fail("NOT_SENT", "it is not sent")
    return f"{receipt}"

@app.action("bill", irreversible=True)
async def bill(call: Call) -> str: ...

@app.action("stamp", irreversible=True)
async def stamp(call: Call) -> datetime: ...

@app.workflow("billing")
async def billing(ctx: TaskContext) -> str:
    return (await ctx.act(bill)).upper()

@app.workflow("stamping")
async def stamping(ctx: TaskContext) -> str:
    return (await ctx.act(stamp)).isoformat()

@app.workflow("fragile")
async def fragile(ctx: TaskContext) -> str:
    await ctx.step("tell", told)
    return "told"

@app.workflow("short")
async def short(ctx: TaskContext) -> int:
    return await ctx.step("count", len, "abc")

@app.workflow("chat")
async def chat(ctx: TaskContext, text: str) -> Continue:
    await ctx.step("count", len, text)
    await ctx.sleep("1h")
    await ctx.act(bill)
    return Continue(None, on="message")

def told() -> None:
    with open("told.txt", "a") as file:
        file.write("x")
    if Path("told.txt").read_text() == "xx":
        raise Fail("TWICE", "it was told twice")
"""

ORDER = ("app:app", "--emit", "order", "--payload", '{"cents": 5}', "--advance", "2d")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(PROGRAM)
    return tmp_path


@pytest.mark.parametrize(
    "points",
    [
        {"step.ran:1": "count"},
        {"provider.answered:1": "pay"},
        pytest.param({"step.ran:1": "count", "provider.answered:1": "pay"}, marks=pytest.mark.acceptance),
    ],
    ids=["after a step", "after a call", "at each point"],
)
def test_crashtest_of_a_guarded_workflow_passes(folder, points):
    at = ("--at", *points) if len(points) == 1 else ()
    result = craftcore(folder, "crashtest", *ORDER, "--answer", "Send=yes", "--provider", 'pay:returns="r-1"', *at)

    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert lines[0].split() == ["crash", "at", "where", "pairs", "promises"]
    for point, name in points.items():
        assert [point, name, "-", "kept"] in [line.split() for line in lines]
    if "step.ran:1" in points:
        assert lines[-2] == "Steps that ran again after a crash: count. Use an action for what must not happen twice."
    assert lines[-1].endswith("every promise holds")
    assert [path.name for path in folder.iterdir() if path.name != "__pycache__"] == ["app.py"]


def test_stand_in_returns_the_declared_type_and_a_doubt_its_result(folder):
    given = ("--provider", "bill:resets_after=1", "--at", "provider.answered:1")
    result = craftcore(folder, "crashtest", "app:app", "--emit", "billing", *given)

    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines()[-1].endswith("every promise holds")


def test_stand_in_without_a_value_of_its_type_asks_for_returns(folder):
    result = craftcore(folder, "crashtest", "app:app", "--emit", "stamping")

    assert (result.code, result.out) == (64, "")
    assert result.err == (
        "craftcore: provider 'stamp': no value of its type can be made up: give --provider stamp:returns=JSON, or "
        "returns=… in a test\n"
    )


def test_workflow_that_fails_without_a_crash_must_fail_the_same(folder):
    result = craftcore(folder, "--json", "crashtest", *ORDER, "--answer", "Send=no", "--at", "call.marked:1")

    assert result.code == 0
    assert result.json["broken"] == []
    assert [point["at"] for point in result.json["points"]] == ["call.marked:1"]


@pytest.mark.parametrize(
    "at",
    [
        pytest.param(("--at", "step.ran:1"), id="after the step"),
        pytest.param((), id="at each point", marks=pytest.mark.acceptance),
    ],
)
def test_email_in_a_plain_action_breaks_a_promise(folder, at):
    result = craftcore(folder, "crashtest", "app:app", "--emit", "fragile", *at)

    assert result.code == 1
    assert "crash at step.ran:1\n  same statuses: work 1 is FAILED, and DONE without a crash" in result.out
    assert ["step.ran:1", "tell", "-", "broken"] in [line.split() for line in result.out.splitlines()]
    again = craftcore(folder, "--json", "crashtest", "app:app", "--emit", "fragile", "--at", "step.ran:1", "--pairs")
    assert (again.code, again.json["crashes"]) == (1, 1)
    assert again.json["broken"][0]["at"] == "step.ran:1"


def test_promise_that_is_broken_without_a_crash_kills_nothing(folder):
    result = craftcore(
        folder, "--json", "crashtest", "app:app", "--emit", "order", "--payload", '{"cents": 5}', "--pairs"
    )

    assert result.json["broken"][0]["at"] == "", "the task sleeps for two days"
    assert (result.code, result.json["crashes"]) == (1, 0)


def test_crash_that_is_not_reached_fails_the_crashtest(folder):
    result = craftcore(folder, "crashtest", "app:app", "--emit", "short", "--at", "step.ran:1 call.marked:1")

    assert (result.code, result.out) == (64, "")
    assert result.err == "craftcore: the scenario ended before it came to call.marked:1: it was not killed there\n"


@pytest.mark.acceptance
def test_pairs_kill_the_second_life_as_well(folder):
    result = craftcore(folder, "--json", "crashtest", "app:app", "--emit", "short", "--pairs")

    points = {point["at"]: point["pairs"] for point in result.json["points"]}
    assert (result.code, points["step.ran:1"] > 3, points["step.entered:1"]) == (0, True, 0)
    assert result.json["crashes"] == len(points) + sum(points.values())
    assert result.json["reached"] > 0.8 * result.json["crashes"], "a run may have fewer commits than the run before"


def test_crashtest_without_an_app_exits_78(folder):
    assert craftcore(folder, "crashtest", "nothing:app", "--emit", "order").code == 78


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--emit", "order", "--payload", '{"cents": "x"}'), "the payload does not fit order"),
        (("--emit", "nothing"), "no workflow is named nothing"),
        ((*ORDER[1:], "--answer", "yes"), "write TEXT=CHOICE"),
        (
            (*ORDER[1:], "--provider", "bank"),
            "there is no such action; there are bill, email.send",
        ),
        ((*ORDER[1:], "--provider", "pay:colour=1"), "there is no option 'colour'"),
        ((*ORDER[1:], "--provider", "pay:calls=1"), "there is no option 'calls'"),
        ((*ORDER[1:], "--provider", "pay:_done=1"), "there is no option '_done'"),
        ((*ORDER[1:], "--provider", "pay:dedupes=1"), "dedupes is 1: give True or False"),
        ((*ORDER[1:], "--provider", "pay:delay=-1"), "delay is -1: give seconds, 0 or more"),
        ((*ORDER[1:], "--provider", "pay:resets_after=0.5"), "resets_after is 0.5: give a number of calls, 0 or more"),
        ((*ORDER[1:], "--provider", "pay:resets_after"), "resets_after is True: give a number of calls, 0 or more"),
        ((*ORDER[1:], "--at", "here"), "'here' is not a crash point"),
        ((*ORDER[1:], "--advance", "soon"), "soon"),
    ],
)
def test_wrong_input_is_refused_before_anything_runs(folder, options, text):
    result = craftcore(folder, "crashtest", "app:app", *options)

    assert (result.code, text in result.err) == (64, True), result.err


def test_chat_is_killed_until_the_wait_for_a_message(folder):
    chat = ("app:app", "--emit", "chat", "--payload", '{"text": "hi"}')

    result = craftcore(folder, "--json", "crashtest", *chat, "--until-waiting", "--at", "provider.answered:1")
    endless = craftcore(folder, "--json", "crashtest", *chat, "--at", "provider.answered:1")

    assert (result.code, result.json["broken"], result.json["reached"]) == (0, [], 1)
    assert endless.code == 1
    assert "has not ended" in endless.out


def test_workflow_that_never_waits_breaks_a_test_until_waiting(folder):
    result = craftcore(folder, "crashtest", "app:app", "--emit", "short", "--until-waiting", "--at", "step.ran:1")

    assert result.code == 1
    assert "does not wait for an event, a message or an answer" in result.out
