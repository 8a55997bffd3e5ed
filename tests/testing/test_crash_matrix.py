"""The crash matrix: it kills a scenario at each point, and reports the point of a broken promise."""

from __future__ import annotations

import os
import re
import signal
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from craftcore import App, Call, Continue, OnUnknown, StateRefused, TaskContext
from craftcore.errors import InvalidInput
from craftcore.failpoints import Failpoint
from craftcore.testing import (
    CrashMatrixFailed,
    Lab,
    ScenarioEnd,
    crash_matrix,
    happens_once,
    record_effect,
    running_life,
)
from craftcore.testing.crash_point import CrashPoint, parse_points
from craftcore.testing.matrix import Choose
from tests.support.some_crashes import after_changes, after_first_step, choose_some, crash_some, first_changes

app = App("signup")


@app.action("bank.charge", irreversible=True)
async def charge(call: Call, *, cents: int) -> str:
    raise AssertionError("the bank of a test takes the call")


@app.action("bank.look", irreversible=True, on_unknown=OnUnknown.RECONCILE, settle_after=0)
async def charge_with_lookup(call: Call, *, cents: int) -> str:
    raise AssertionError("the bank of a test takes the call")


@charge_with_lookup.reconcile
async def look_up(call: Call, *, cents: int) -> None:
    raise AssertionError("the bank of a test is asked")


@app.workflow("guarded")
async def guarded(ctx: TaskContext, user: str) -> str:
    await ctx.step("reserve", len, user)
    receipt = await ctx.act(charge, cents=100)
    await ctx.act("email.send", to=f"{user}@example.org", subject="Welcome", body="Hello")
    return f"{user}: {receipt}"


@app.workflow("looking")
async def looking(ctx: TaskContext) -> str:
    return await ctx.act(charge_with_lookup, cents=100)


@app.workflow("chat")
async def chat(ctx: TaskContext, user: str = "") -> Continue[None]:
    await ctx.step("reserve", len, user)
    await ctx.act(charge, cents=100)
    return Continue(None, on="message")


@app.workflow("naive")
async def naive(ctx: TaskContext, user: str) -> str:
    await ctx.step("mail", mail, user)
    return "sent"


def mail(user: str) -> None:
    record_effect("mail", to=user)


async def sign_up_guarded(lab: Lab) -> Any:
    lab.provider("bank.charge", returns="r-1", resets_after=1)
    return await lab.result(await lab.emit("guarded", {"user": "ada"}))


async def sign_up_naively(lab: Lab) -> Any:
    return await lab.result(await lab.emit("naive", {"user": "ada"}))


def after_first_call(points: Sequence[CrashPoint]) -> list[CrashPoint]:
    return [point for point in points if point.point is Failpoint.WRITER_FLUSHED][5:6]


def around_first_step(points: Sequence[CrashPoint]) -> list[CrashPoint]:
    return [point for point in points if str(point) in ("step.ran:1", "reclaim.committed:1")]


def choose_a_fourth(points: Sequence[CrashPoint]) -> list[CrashPoint]:
    return choose_some(points)[::4]


def choose_around_the_intent(points: Sequence[CrashPoint]) -> list[CrashPoint]:
    """Return the first changes, the changes of the four commits in which the email is planned and sent, and a
    twelfth of all points."""
    flushed = [point for point in points if point.point is Failpoint.WRITER_FLUSHED]
    middle = len(flushed) // 2
    chosen = {*first_changes(points), *flushed[middle : middle + 4], *points[::12]}
    return [point for point in points if point in chosen]


def first_changes_of_a_call(points: Sequence[CrashPoint]) -> list[CrashPoint]:
    """Return the first point after a mark of a call, and after an answer of a provider."""
    return [point for point in first_changes(points) if point.point is not Failpoint.STEP_RAN]


@pytest.mark.parametrize(
    ("choose", "least"), [(choose_around_the_intent, 8), pytest.param(list, 26, marks=pytest.mark.acceptance)]
)
def test_guarded_handler_keeps_its_promises_at_each_point(choose: Choose, least: int):
    def is_charged_and_answered(ending: ScenarioEnd) -> None:
        assert ending.returned == "ada: r-1"  # the connection was lost, and a person entered the result
        assert [row["status"] for row in ending.rows("SELECT status FROM activity_log")] == ["DONE", "DONE"]

    invariants = [happens_once("bank.charge"), happens_once("email.send"), is_charged_and_answered]
    report = crash_some(app, sign_up_guarded, invariants, choose=choose)
    rows = report.rows()
    assert len(rows) == len(report.results) - 1 >= least
    assert report.reached >= 0.9 * len(rows), "concurrent commits may be one batch"
    places = {str(row.point): row.where for row in rows}
    assert places["step.ran:1"] == "reserve"
    assert places["call.marked:1"] == places["provider.answered:1"] == "bank.charge"
    assert "commit of intent.committed email.send" in places.values()
    assert re.fullmatch(r"\d+ crashes in [\d.]+ s(, \d not reached)?: every promise holds", report.summary())


def test_short_workflow_keeps_its_promise_at_every_point():
    """By default, the matrix has every point."""
    short = App("short")

    @short.workflow("measure")
    async def measure(user: str) -> int:
        return len(user)

    async def scenario(lab: Lab) -> Any:
        return await lab.result(await lab.emit("measure", {"user": "ada"}))

    def is_measured(ending: ScenarioEnd) -> None:
        assert ending.returned == 3

    report = crash_matrix(short, scenario, [is_measured])

    rows = report.rows()
    passed = {row.point.point for row in rows}
    assert passed == {Failpoint.RECLAIM_COMMITTED, Failpoint.WRITER_FLUSHING, Failpoint.WRITER_FLUSHED}
    assert len(rows) == len(report.results) - 1 > 9
    assert report.reached >= 0.9 * len(rows), "concurrent commits may be one batch"


def test_email_in_a_plain_step_is_sent_twice_at_the_named_point():
    with pytest.raises(CrashMatrixFailed) as failed:
        crash_some(app, sign_up_naively, [happens_once("mail")], choose=around_first_step)
    text = str(failed.value)
    assert "crash at step.ran:1\n  mail happens once: mail happened 2 times, not 1" in text
    sent = r'effect +mail \{"to": "ada"\}\n.* step\.ran:1 +mail\n    SIGKILL'
    assert re.search(rf"life 1\n(.*\n)*    lab\.emit\n(.*\n)*.* {sent}", text)
    assert re.search(r"life 2\n(.*\n)*.* step\.entered:1 +mail\n", text)
    assert 'this crash alone: crash_matrix(…, at="step.ran:1")' in text
    broken = {str(result.points[0]) for result in failed.value.report.broken}
    assert broken < {str(row.point) for row in failed.value.report.rows()}

    with pytest.raises(CrashMatrixFailed, match="1 of 1 crash break a promise"):
        crash_matrix(app, sign_up_naively, [happens_once("mail")], at="step.ran:1")
    assert len(crash_matrix(app, sign_up_naively, [happens_once("mail")], at="step.entered:1").results) == 2


def test_memory_of_a_process_is_no_guard():
    remembered: set[str] = set()
    fragile = App("fragile")

    def mail_unless_remembered(user: str) -> None:
        if user not in remembered:
            remembered.add(user)
            record_effect("mail", to=user)

    @fragile.workflow("naive")
    async def naive(ctx: TaskContext, user: str) -> str:
        await ctx.step("mail", mail_unless_remembered, user)
        return "sent"

    with pytest.raises(CrashMatrixFailed, match="mail happened 2 times"):
        crash_matrix(fragile, sign_up_naively, [happens_once("mail")], at="step.ran:1")
    assert remembered == set(), "each life has a memory of its own"


def test_pairs_find_a_guard_that_survives_a_single_crash():
    fragile = App("fragile")
    sent = Path("sent")

    def mail_unless_marked(user: str) -> None:
        if sent.exists():
            sent.unlink()  # the removal of the mark removes the guard
            return
        record_effect("mail", to=user)
        sent.touch()

    @fragile.workflow("naive")
    async def naive(ctx: TaskContext, user: str) -> str:
        await ctx.step("mail", mail_unless_marked, user)
        return "sent"

    assert crash_some(fragile, sign_up_naively, [happens_once("mail")], choose=around_first_step).broken == []
    with pytest.raises(CrashMatrixFailed) as failed:
        crash_some(fragile, sign_up_naively, [happens_once("mail")], choose=after_first_step, pairs=True)
    assert "crash at step.ran:1, then at step.ran:1\n" in str(failed.value)
    assert not sent.exists(), "the scenario has a working directory of its own"

    pairs = [result for result in failed.value.report.results if len(result.points) == 2]
    broken = [result for result in pairs if result.broken]
    for copied in [*broken, *pairs[::12]]:
        at = " ".join(map(str, copied.points))
        if copied.broken:
            with pytest.raises(CrashMatrixFailed) as failed:
                crash_matrix(fragile, sign_up_naively, [happens_once("mail")], at=at)
            [killed] = failed.value.report.broken
            assert (killed.broken, killed.crashes, killed.steps) == (copied.broken, 2, copied.steps)
        else:
            assert crash_matrix(fragile, sign_up_naively, [happens_once("mail")], at=at).reached == 1


@pytest.mark.parametrize(
    ("backend", "choose", "least"),
    [
        ("asyncio", choose_a_fourth, 3),
        ("trio", after_first_call, 1),
        *(pytest.param(loop, list, 25, marks=pytest.mark.acceptance) for loop in ("asyncio", "trio")),
    ],
)
def test_calls_of_a_scenario_are_made_once(backend: Any, choose: Choose, least: int):
    story = App("story")

    @story.workflow("order")
    async def order(ctx: TaskContext[int], id: int) -> Continue[int] | str:
        if ctx.state is None:
            await ctx.sleep("2h")
            return Continue(1)
        paid = await ctx.wait_for("paid")
        answer = await ctx.ask("Send it?", ["yes", "no"])
        record_effect("mails read", count=len(paid))
        return f"{answer} {paid}"

    async def scenario(lab: Lab) -> Any:
        order = await lab.emit("order", {"id": 7})
        started = lab.clock.now()
        await lab.signal(order, "paid", "early")
        await lab.advance(hours=3)
        assert lab.clock.now() == started + 3 * 3600
        asked = [question.question for question in await lab.questions()]
        turns = lab.rows("SELECT turn FROM tasks")
        reasons = await lab.why(order)
        await lab.answer("yes", question="Send")
        state = await order.state()
        return asked, turns, reasons, await lab.result(order), state.status

    def is_the_same(ending: ScenarioEnd) -> None:
        asked, turns, reasons, result, status = ending.returned
        assert (asked, turns, result, status) == (["Send it?"], [{"turn": 2}], "yes early", "DONE")
        assert "waits for an answer" in reasons[0]
        assert [row["event"] for row in ending.rows("SELECT event FROM mailbox")] == ["paid"]

    report = crash_some(story, scenario, [is_the_same], choose=choose, backend=backend)
    assert report.reached >= least


@pytest.mark.parametrize(
    ("workflow", "faults"),
    [
        ("guarded", {"resets_before": 1}),
        ("guarded", {"fails_before": 1}),
        ("guarded", {"resets_before": 1, "acts_late": 600.0}),
        ("guarded", {"delay": 5.0}),
        ("looking", {"resets_after": 1}),
        ("looking", {"resets_before": 1}),
    ],
)
@pytest.mark.parametrize("choose", [first_changes_of_a_call, pytest.param(list, marks=pytest.mark.acceptance)])
def test_faults_of_a_provider_outlive_a_crash(workflow: str, faults: dict[str, float], choose: Choose):
    action = "bank.charge" if workflow == "guarded" else "bank.look"

    async def scenario(lab: Lab) -> int:
        bank = lab.provider(action, returns="r-1", **faults)
        await lab.result(await lab.emit(workflow, {"user": "ada"} if workflow == "guarded" else {}))
        assert [bank.fails_before, bank.resets_before, bank.resets_after] == [0, 0, 0]
        return bank.calls

    def is_called_again_at_most_once_for_a_crash(ending: ScenarioEnd) -> None:
        assert ending.baseline is None or ending.returned <= ending.baseline.returned + 1

    invariants = [happens_once(action), is_called_again_at_most_once_for_a_crash]
    assert crash_some(app, scenario, invariants, choose=choose).reached > 0


def test_broken_promise_without_a_crash_ends_the_matrix():
    with pytest.raises(CrashMatrixFailed, match="a promise is broken without a crash") as failed:
        crash_matrix(app, sign_up_naively, [happens_once("mail", times=2)])
    assert len(failed.value.report.results) == 1


def test_scenario_that_raises_is_a_broken_promise():
    async def scenario(lab: Lab) -> None:
        await lab.result(await lab.emit("naive", {"user": "ada"}))
        raise ValueError("not this one")

    with pytest.raises(CrashMatrixFailed, match=r"ValueError: not this one in test_crash_matrix\.py, line \d+"):
        crash_matrix(app, scenario)


def test_scenario_that_changes_between_lives_is_refused():
    async def scenario(lab: Lab) -> None:
        if Path("been-here").exists():
            await lab.advance(hours=1)
        Path("been-here").touch()
        await lab.emit("naive", {"user": "ada"})
        await lab.run_until_idle()

    with pytest.raises(CrashMatrixFailed, match="the scenario was emit in an earlier life, and is advance now"):
        crash_matrix(app, scenario, at="writer.flushed:1")


def test_lost_work_is_a_broken_promise():
    careless = App("careless")

    @careless.workflow("naive")
    async def naive(ctx: TaskContext, user: str) -> str:
        if Path("begun").exists():
            raise ctx_refused
        Path("begun").touch()
        await ctx.step("mail", len, user)
        return "sent"

    ctx_refused = StateRefused("begun before")

    async def scenario(lab: Lab) -> None:
        await lab.emit("naive", {"user": "ada"})

    with pytest.raises(CrashMatrixFailed, match="work 1 is FAILED, and DONE without a crash"):
        crash_matrix(careless, scenario, at="step.ran:1")


def test_life_that_hangs_or_breaks_off_is_a_broken_promise(monkeypatch: pytest.MonkeyPatch):
    careless = App("careless")

    @careless.workflow("naive")
    async def naive(ctx: TaskContext, user: str) -> str:
        if Path("begun").exists():
            if user == "exit":
                print("about to leave")
                os._exit(3)
            time.sleep(600)
        Path("begun").touch()
        await ctx.step("mail", len, user)
        return "sent"

    monkeypatch.setattr(running_life, "LIFE_SECONDS", 3.0)
    for user, text in (("exit", "the last life ended by exit code 3: about to leave"), ("hang", "the scenario hangs")):

        async def scenario(lab: Lab, user: str = user) -> None:
            await lab.result(await lab.emit("naive", {"user": user}))

        with pytest.raises(CrashMatrixFailed, match=text):
            crash_matrix(careless, scenario, at="step.ran:1")


def test_single_crash_that_is_not_reached_is_refused():
    for at, point in (("step.ran:9", "step.ran:9"), ("step.ran:1 call.marked:1", "call.marked:1")):
        with pytest.raises(
            InvalidInput, match=f"the scenario ended before it came to {point}: it was not killed there"
        ):
            crash_matrix(app, sign_up_naively, at=at)


def test_crashes_that_are_not_reached_are_counted(tmp_path: Path):
    has_run = tmp_path / "has_run"
    uneven = App("uneven")

    @uneven.workflow("work")
    async def work(ctx: TaskContext) -> None:
        for number in range(1 if has_run.exists() else 2):
            await ctx.step(f"step-{number}", len, "abc")
        has_run.touch()

    async def scenario(lab: Lab) -> None:
        await lab.result(await lab.emit("work"))

    report = crash_some(uneven, scenario, choose=after_changes)

    missed = [str(row.point) for row in report.rows() if row.verdict == "not reached"]
    assert "step.ran:2" in missed
    assert f", {len(missed)} not reached: every promise holds" in report.summary()


@pytest.mark.parametrize("jobs", [0, -1])
def test_matrix_without_jobs_is_refused(jobs: int):
    with pytest.raises(InvalidInput, match=f"jobs is {jobs}: give how many crashes run at once, 1 or more"):
        crash_matrix(app, sign_up_naively, jobs=jobs)


def test_matrix_is_refused_within_an_event_loop():
    async def call_in_a_loop() -> None:
        crash_matrix(app, sign_up_naively)

    with pytest.raises(InvalidInput, match="call crash_matrix in a plain function"):
        anyio.run(call_in_a_loop)


@pytest.mark.parametrize("text", ["", "step.ran", "step.ran:0", "stepran:1", "step.ran:1,step.ran:2", "no.point:1"])
def test_text_without_crash_points_is_refused(text: str):
    with pytest.raises(InvalidInput, match="crash point"):
        crash_matrix(app, sign_up_naively, at=text)


def test_crash_points_are_read_as_shown():
    points = (CrashPoint(Failpoint.STEP_RAN, 1), CrashPoint(Failpoint.WRITER_FLUSHED, 12))
    assert parse_points(" ".join(map(str, points))) == points


def test_invariants_refuse_by_assertion_text_or_false():
    def returns_text(ending: ScenarioEnd) -> str:
        return "no"

    def is_false(ending: ScenarioEnd) -> bool:
        return False

    def fails(ending: ScenarioEnd) -> None:
        raise KeyError("x")

    with pytest.raises(CrashMatrixFailed) as failed:
        crash_matrix(app, sign_up_naively, [returns_text, is_false, fails])
    assert failed.value.report.results[0].broken == [
        "returns text: no",
        "is false: it returned False",
        "fails: it raised KeyError: 'x'",
    ]


def test_scenario_cannot_crash_its_lab():
    async def scenario(lab: Lab) -> None:
        await lab.crash()

    with pytest.raises(CrashMatrixFailed, match="a crash matrix kills the scenario by itself"):
        crash_matrix(app, scenario)


def test_effect_outside_of_a_lab_is_refused():
    with pytest.raises(StateRefused, match=r"record_effect\('mail'\): no lab is open"):
        record_effect("mail", to="ada")


def list_children() -> set[str]:
    """Return the ids of this process's children, including the ended ones that were not awaited."""
    return {child for task in Path("/proc/self/task").iterdir() for child in (task / "children").read_text().split()}


def test_matrix_leaves_no_processes():
    before = list_children()  # other tests share a server
    crash_some(app, sign_up_naively, choose=lambda points: points[:2])
    assert list_children() == before
    assert signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL


def test_matrix_that_is_interrupted_ends_its_stopped_lives(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = list_children()
    descriptors = len(os.listdir("/proc/self/fd"))

    cells: list[int] = []

    def interrupt(done: int, known: int) -> None:
        cells.append(known)
        if done > 1 and known > cells[1]:  # the current lives stop for pairs
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        crash_matrix(app, sign_up_naively, pairs=True, progress=interrupt)
    assert list_children() == before
    assert list(tmp_path.iterdir()) == []
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_pairs_are_played_for_each_distinct_point_of_the_second_life():
    """A crash that breaks a promise has no pairs."""
    with pytest.raises(CrashMatrixFailed) as failed:
        crash_some(app, sign_up_naively, [happens_once("mail")], choose=around_first_step, pairs=True)

    report = failed.value.report
    rows = {str(row.point): row for row in report.rows()}
    assert (rows["step.ran:1"].verdict, rows["step.ran:1"].pairs) == ("broken", 0)
    assert rows["reclaim.committed:1"].pairs > 5
    pairs = [tuple(map(str, result.points)) for result in report.results if len(result.points) == 2]
    seconds = {second for first, second in pairs if first == "reclaim.committed:1"}
    assert {"step.ran:1", "writer.flushing:1", "reclaim.committed:1"} <= seconds
    assert "step.entered:1" not in seconds, "nothing has changed since the commit before it"
    assert report.reached >= 0.9 * (len(report.results) - 1)


def test_chat_keeps_its_promises_at_each_point_of_two_turns():
    async def talk(lab: Any) -> None:
        lab.provider("bank.charge", returns="r-1")
        work = await lab.emit("chat")
        await lab.run_until_waiting(work)
        await lab.signal(work, "message", "again")
        await lab.run_until_waiting(work)

    report = crash_matrix(app, talk, [happens_once("bank.charge", 2)])

    assert report.results[0].ending is not None
    assert report.results[0].ending.statuses == ["WAITING"]
    assert report.reached > 20


def test_missed_night_of_a_scenario_is_killed_at_each_point():
    night = App("night")

    @night.workflow("wake")
    async def wake(ctx: TaskContext) -> str:
        await ctx.sleep("8h")
        return "awake"

    async def sleep(lab: Any) -> str:
        began, work = lab.clock.now(), await lab.emit("wake")
        await lab.run_until_idle()
        await lab.down(hours=34)
        with pytest.raises(StateRefused, match="leave killed out"):
            await lab.down(hours=1, killed=True)
        assert lab.clock.now() == began + 34 * 3600
        result: str = await lab.result(work)
        return result

    report = crash_matrix(night, sleep)

    assert report.results[0].ending is not None
    assert report.results[0].ending.returned == "awake"
