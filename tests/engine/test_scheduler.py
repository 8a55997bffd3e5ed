"""The scheduler in a running engine: declarations, restarts, wrong clocks and safe mode."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

import anyio
import pytest

from craftcore import App, Continue, RetryPolicy, TaskContext
from craftcore.config import Config
from craftcore.daemon.lifespan import running
from craftcore.engine import boot as booting
from craftcore.engine import scheduler
from craftcore.errors import ConfigInvalid
from craftcore.schedules.clock_guard import ClockTrust
from craftcore.schedules.model import CatchUp, Origin, Overlap
from craftcore.storage.facts import get_fact
from craftcore.triggers.start_holds import release as release_holds
from tests.support.engine_harness import Lab, lab, settings
from tests.support.fakes import NEW_YEAR, VirtualClock, VirtualCore
from tests.support.processes import PATIENCE
from tests.support.schedule_steps import DAY, HOUR, account, put, start_daemon, stop_daemon, stored

pytestmark = pytest.mark.anyio

YEAR = 365 * DAY


class Run(NamedTuple):
    """The schedule data that a run receives."""

    schedule_id: str | None
    nominal_at: datetime | None
    overdue_seconds: float | None


def moment(*, hours: float) -> datetime:
    return datetime.fromtimestamp(NEW_YEAR + hours * HOUR, UTC)


def build_app(ran: list[Run]) -> App:
    app = App("test")

    @app.workflow("greet")
    async def greet(ctx: TaskContext, name: str = "you") -> str:
        ran.append(Run(ctx.trigger.schedule_id, ctx.trigger.nominal_at, ctx.trigger.overdue_seconds))
        return f"Hello {name}"

    return app


def is_held(harness) -> bool:
    held: bool = harness.engine.scheduler.held
    return held


@pytest.fixture
def only_bells(monkeypatch):
    """Make the scheduler recheck so seldom that only bells wake it."""
    monkeypatch.setattr(scheduler, "RECHECK_SECONDS", 10 * PATIENCE)


async def wait_for_look(harness):
    """Wait until the scheduler has completed a look that began after this call."""
    looks = harness.engine.scheduler.polls
    harness.engine.scheduler.ring()
    await harness.until(lambda: harness.engine.scheduler.polls > looks and harness.engine.scheduler.is_drained)


async def test_declared_schedule_fires_with_the_nominal_time_of_the_occurrence(tmp_path):
    clock, ran = VirtualClock(), list[Run]()
    app = build_app(ran)
    app.schedule("brief", "every 1h", workflow="greet", payload={"name": "Ada"})
    async with lab(app, tmp_path, clock=clock) as harness:
        await wait_for_look(harness)
        clock.advance(hours=1)
        await wait_for_look(harness)
        await harness.idle()

    assert ran == [Run("brief", moment(hours=1), None)]


async def test_schedule_of_a_second_fires_without_a_bell_in_real_time(tmp_path):
    ran: list[Run] = []
    app = build_app(ran)
    app.schedule("tick", "every 1s", workflow="greet", overlap=Overlap.ALLOW)
    async with lab(app, tmp_path) as harness:
        await harness.until(lambda: len(ran) >= 2)

    assert len({one.nominal_at for one in ran}) == len(ran)


async def test_schedule_in_ten_minutes_fires_once_on_time_over_three_restarts(tmp_path):
    clock, ran = VirtualClock(), list[Run]()
    for _ in range(3):
        app = build_app(ran)
        app.schedule("reminder", "in 10 minutes", workflow="greet")
        async with lab(app, tmp_path, clock=clock) as harness:
            await wait_for_look(harness)
            clock.advance(minutes=3)
            await wait_for_look(harness)
    assert ran == []

    for _ in range(2):
        app = build_app(ran)
        app.schedule("reminder", "in 10 minutes", workflow="greet")
        async with lab(app, tmp_path, clock=clock) as harness:
            clock.advance(minutes=1)
            await wait_for_look(harness)
            await harness.idle()

    assert ran == [Run("reminder", moment(hours=1 / 6), None)]


async def test_clock_trusted_before_the_step_is_noticed_does_not_hold_schedules(tmp_path):
    clock, ran = VirtualClock(), list[Run]()
    app = build_app(ran)
    app.schedule("brief", "every 1h", workflow="greet")
    async with lab(app, tmp_path, clock=clock) as harness:
        await wait_for_look(harness)
        clock.set_back(4 * HOUR)
        VirtualCore(harness.path, clock).do(ClockTrust().trust)
        await wait_for_look(harness)
        assert not is_held(harness)

        clock.advance(hours=5)
        await wait_for_look(harness)
        clock.set_back(4 * HOUR)
        await wait_for_look(harness)
        assert is_held(harness)


async def test_work_delayed_by_a_clock_ahead_runs_after_the_clock_is_corrected(tmp_path):
    """The clock is a year ahead and then correct. A delay, a backoff, a sleep, a timeout and a next turn are due on
    time."""
    clock, app = VirtualClock(), App()
    tries: list[str] = []

    @app.workflow("later")
    async def later() -> None: ...

    @app.workflow("fails", retry=RetryPolicy(max_attempts=2, base=600, cap=600))
    async def fails() -> None:
        tries.append("")
        if len(tries) == 1:
            raise RuntimeError("once more")

    @app.workflow("sleeps")
    async def sleeps(ctx: TaskContext) -> None:
        await ctx.sleep(600)

    @app.workflow("hears")
    async def hears(ctx: TaskContext) -> None:
        with contextlib.suppress(TimeoutError):
            await ctx.wait_for("paid", timeout=600)

    @app.workflow("turns")
    async def turns(ctx: TaskContext[int]) -> Continue[int] | None:
        return Continue(1, after=600) if ctx.state is None else None

    async with lab(app, tmp_path, clock=clock) as harness:
        await wait_for_look(harness)
        clock.set_back(-YEAR)
        await wait_for_look(harness)
        tasks = [(await app.emit(name)).id for name in ("sleeps", "hears", "turns")]
        delayed = (await app.emit("later", delay=600)).id
        retried = (await app.emit("fails")).id
        scheduled = (await app.emit("later", at=clock.now() + YEAR)).id
        for task_id in tasks:
            await harness.waiting(task_id)
        await harness.until(lambda: harness.trigger(retried)["reason"] == "INTERNAL_AGENT_ERROR")

        clock.set_back(YEAR)
        await wait_for_look(harness)
        clock.advance(700)
        harness.engine.feeder.ring()

        for task_id in tasks:
            assert (await harness.ended(task_id))["status"] == "DONE"
        for trigger_id in (delayed, retried):
            assert (await harness.settled(trigger_id))["status"] == "DONE"
        assert harness.trigger(scheduled)["due_at"] == clock.now() - 700 + 2 * YEAR
        kinds = [row["kind"] for row in harness.rows("SELECT kind FROM clock_events ORDER BY seq")]
        assert kinds[:2] == ["forward", "backward"]


async def test_startup_schedule_runs_while_others_wait_for_the_clock(tmp_path):
    """A machine without a clock battery starts in the past each time."""
    clock, ran = VirtualClock(), list[Run]()
    for _ in range(2):
        app = build_app(ran)
        app.schedule("begin", "on startup", workflow="greet")
        async with lab(app, tmp_path, clock=clock) as harness:
            await wait_for_look(harness)
            await harness.idle()
        clock.set_back(DAY)
    assert len(ran) == 2


async def test_schedule_moved_from_code_to_the_config_file_goes_on(tmp_path):
    clock, ran = VirtualClock(), list[Run]()
    app = build_app(ran)
    app.schedule("brief", "every 1h", workflow="greet", timezone="UTC")
    async with lab(app, tmp_path, clock=clock) as harness:
        await wait_for_look(harness)
    clock.advance(hours=5)
    table = {"id": "brief", "when": "every 1h", "workflow": "greet", "timezone": "UTC"}
    async with lab(build_app(ran), tmp_path, replace(settings(), schedule=(table,)), clock=clock) as harness:
        await wait_for_look(harness)
        await harness.idle()

    assert [one.nominal_at for one in ran] == [moment(hours=5)]


async def test_missed_occurrences_are_caught_up_with_the_overdue_time(tmp_path):
    clock, ran = VirtualClock(), list[Run]()
    app = build_app(ran)
    app.schedule("brief", "every 1h", workflow="greet", catch_up=CatchUp.ALL, overlap=Overlap.ALLOW)
    async with lab(app, tmp_path, clock=clock) as harness:
        await wait_for_look(harness)
    clock.advance(hours=5.5)
    app = build_app(ran)
    app.schedule("brief", "every 1h", workflow="greet", catch_up=CatchUp.ALL, overlap=Overlap.ALLOW)
    async with lab(app, tmp_path, clock=clock) as harness:
        await wait_for_look(harness)
        clock.advance(minutes=1)
        harness.engine.feeder.ring()
        await harness.until(lambda: len(ran) == 5)

    assert {one.nominal_at for one in ran} == {moment(hours=hour) for hour in range(1, 6)}
    for one in ran:
        assert one.nominal_at is not None
        assert one.overdue_seconds is not None
        assert clock.now() - 60 <= one.nominal_at.timestamp() + one.overdue_seconds <= clock.now()


async def test_buffered_occurrence_fires_when_the_earlier_trigger_is_settled(tmp_path, only_bells):
    clock, began = VirtualClock(), list[float]()
    app = App("test")
    door = anyio.Event()

    @app.workflow("greet")
    async def greet() -> None:
        began.append(clock.now())
        await door.wait()

    app.schedule("slow", "every 1h", workflow="greet")
    async with lab(app, tmp_path, clock=clock) as harness:
        for _ in range(2):
            clock.advance(hours=1)
            await wait_for_look(harness)
        await harness.until(lambda: len(began) == 1)
        door.set()
        await harness.until(lambda: len(began) == 2)


async def test_schedule_of_the_config_file_is_stored_and_disabled_after_removal(tmp_path):
    table = {"id": "nightly", "when": "0 3 * * *", "workflow": "greet", "timezone": "UTC"}
    clock = VirtualClock()
    async with running(build_app([]), tmp_path / "agent.db", Config(schedule=(table,)), clock):
        pass
    core = VirtualCore(tmp_path / "agent.db", clock)
    assert (stored(core, "nightly").origin, stored(core, "nightly").next_at) == (Origin.FILE, NEW_YEAR + 3 * HOUR)

    async with running(build_app([]), tmp_path / "agent.db", Config(), clock):
        pass

    assert stored(core, "nightly").reason == "no longer declared in the configuration file"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"when": "every weekday"}, "every weekday at"),
        ({"workflow": "nobody"}, "no workflow is named nobody"),
        ({"payload": {"names": 1}}, "does not fit greet"),
        ({"jitter": -1}, "jitter -1"),
        ({"id": "brief"}, "declared twice"),
    ],
)
async def test_invalid_schedule_declaration_stops_the_start_and_writes_nothing(tmp_path, changes, message):
    app = build_app([])
    app.schedule("brief", "every 1h", workflow="greet")
    table = {"id": "nightly", "when": "0 3 * * *", "workflow": "greet", **changes}

    with pytest.raises(ConfigInvalid) as refused:
        async with running(app, tmp_path / "agent.db", Config(schedule=(table,))):
            pass

    assert message in refused.value.message
    assert not (tmp_path / "agent.db").exists()


def test_schedule_declared_twice_is_refused():
    app = App("test")
    app.schedule("brief", "every 1h", workflow="greet")

    with pytest.raises(ConfigInvalid, match="declared twice"):
        app.schedule("brief", "every 2h", workflow="greet")


async def test_schedule_declared_while_the_app_runs_is_refused(tmp_path):
    app = App("late")
    app.declare("nothing", lambda: None)

    async with app.running(tmp_path / "agent.db"):
        with pytest.raises(ConfigInvalid, match="schedule brief: the app runs already"):
            app.schedule("brief", "every 1h", workflow="nothing")


async def test_startup_schedule_runs_once_each_start(tmp_path):
    clock, ran = VirtualClock(), list[Run]()
    for _ in range(2):
        clock.advance(1)
        app = build_app(ran)
        app.schedule("hello", "on startup", workflow="greet")
        async with lab(app, tmp_path, clock=clock) as harness:
            await wait_for_look(harness)
            await harness.idle()

    assert [one.schedule_id for one in ran] == ["hello", "hello"]


async def test_clock_set_back_by_two_hours_delays_schedules_and_repeats_none(tmp_path):
    clock, ran = VirtualClock(), list[Run]()
    app = build_app(ran)
    app.schedule("brief", "every 1h", workflow="greet")
    async with lab(app, tmp_path, clock=clock) as harness:
        await wait_for_look(harness)
        clock.advance(hours=3)
        await wait_for_look(harness)
        await harness.idle()
        clock.set_back(2 * HOUR)
        for _ in range(2):
            await wait_for_look(harness)
            clock.advance(hours=1)
        assert len(ran) == 1
        assert not is_held(harness)
        clock.advance(hours=1)
        await wait_for_look(harness)
        await harness.until(lambda: len(ran) == 2)
        assert "backward" in [row["kind"] for row in harness.rows("SELECT kind FROM clock_events")]


async def test_clock_set_back_by_a_day_holds_only_schedules_until_trusted(tmp_path):
    clock, ran = VirtualClock(), list[Run]()
    app = build_app(ran)
    app.schedule("brief", "every 1h", workflow="greet")
    async with lab(app, tmp_path, clock=clock) as harness:
        await wait_for_look(harness)
        clock.set_back(DAY)
        await wait_for_look(harness)
        assert is_held(harness)

        emitted = await app.emit("greet", {})
        await harness.settled(emitted.id)
        await harness.engine.writer.commit(ClockTrust().trust)
        await wait_for_look(harness)
        assert not is_held(harness)
        await wait_for_look(harness)
        assert not is_held(harness)


async def test_clock_wrong_at_boot_releases_schedules_once_corrected(tmp_path):
    clock, ran = VirtualClock(), list[Run]()
    app = build_app(ran)
    app.schedule("brief", "every 1h", workflow="greet")
    async with lab(app, tmp_path, clock=clock) as harness:
        await wait_for_look(harness)
    clock.set_back(365 * DAY)
    app = build_app(ran)
    app.schedule("brief", "every 1h", workflow="greet")
    async with lab(app, tmp_path, clock=clock) as harness:
        await wait_for_look(harness)
        assert is_held(harness)

        clock.set_back(-365 * DAY)
        clock.advance(hours=1)
        await wait_for_look(harness)
        await harness.until(lambda: len(ran) == 1)


async def test_suspended_machine_catches_up_and_records_the_suspend(tmp_path):
    clock, ran = VirtualClock(), list[Run]()
    app = build_app(ran)
    app.schedule("brief", "every 1h", workflow="greet")
    async with lab(app, tmp_path, clock=clock) as harness:
        await wait_for_look(harness)
        clock.advance(hours=3)  # wall and boot time advance, and the clock of the loop does not
        await wait_for_look(harness)
        await harness.until(lambda: len(ran) == 1)
        assert [row["kind"] for row in harness.rows("SELECT kind FROM clock_events")] == ["suspend"]


async def test_schedule_does_not_fire_while_the_engine_is_paused(tmp_path):
    clock, ran = VirtualClock(), list[Run]()
    app = build_app(ran)
    app.schedule("brief", "every 1h", workflow="greet")
    async with lab(app, tmp_path, clock=clock) as harness:
        harness.engine.pause()
        clock.advance(hours=1)
        await wait_for_look(harness)
        assert harness.rows("SELECT * FROM schedule_occurrences") == []


# Safe mode


def start_after_crashes(core: VirtualCore, clock: VirtualClock, number: int, *, interval: float = 10.0) -> booting.Boot:
    """Start the daemon the given number of times without an ordered end, and once more."""
    for _ in range(number):
        start_daemon(core)
        clock.advance(interval)
    return start_daemon(core)


def test_safe_mode_begins_after_six_unclean_starts_within_ten_minutes(core, clock):
    assert start_after_crashes(core, clock, 5).safe_mode is None
    clock.advance(10)

    assert start_daemon(core).safe_mode == "6 unclean starts within 10 minutes"


def test_safe_mode_does_not_begin_after_unclean_starts_ten_minutes_apart(core, clock):
    assert start_after_crashes(core, clock, 8, interval=600).safe_mode is None


def test_safe_mode_does_not_count_starts_that_ended_in_order(core, clock):
    for _ in range(10):
        stop_daemon(core, start_daemon(core).epoch)

    assert start_daemon(core).safe_mode is None


def test_safe_mode_lasts_until_released_and_the_count_restarts(core, clock):
    start_after_crashes(core, clock, 6)
    clock.advance(DAY)
    stop_daemon(core, start_daemon(core).epoch)
    assert core.do(get_fact, "safe_mode") is not None

    assert core.do(release_holds) == {"safe_mode": "6 unclean starts within 10 minutes"}
    assert core.do(release_holds) == {}

    assert start_after_crashes(core, clock, 5).safe_mode is None


async def test_safe_mode_holds_scheduled_work_and_lets_emitted_triggers_run(tmp_path):
    clock, ran = VirtualClock(), list[Run]()
    core = VirtualCore(tmp_path / "agent.db", clock)
    put(core, id="due", when="in 1s", workflow="greet")
    start_after_crashes(core, clock, 6)
    core.do(core.ticks.tick)
    put(core, id="comes", when="immediate", workflow="greet")
    core.close()
    app = build_app(ran)
    async with lab(app, tmp_path, clock=clock) as harness:
        await wait_for_look(harness)
        emitted = await app.emit("greet", {"name": "Ada"})
        await harness.settled(emitted.id)
        await harness.idle()
        assert [one.schedule_id for one in ran] == [None]
        assert account(core, "comes") == []

        await harness.engine.writer.commit(release_holds)
        harness.engine.ring(schedules=True)
        await harness.until(lambda: len(ran) == 3)


async def test_engine_without_schedules_writes_no_clock_facts(tmp_path):
    async with lab(build_app([]), tmp_path, settings()) as harness:
        before = harness.rows("SELECT * FROM facts")
        await wait_for_look(harness)
        await wait_for_look(harness)
        assert harness.rows("SELECT * FROM facts") == before


def clock_seen_at(harness: Lab) -> float:
    [row] = harness.rows("SELECT value FROM facts WHERE name = 'clock_seen_at'")
    return float(row["value"])


async def test_clock_time_is_stored_at_each_firing_and_every_quarter_hour(tmp_path):
    """The next boot compares its clock with the stored time, also after a crash."""
    clock, stored_at = VirtualClock(), []
    app = build_app([])
    app.schedule("brief", "every 20m", workflow="greet")
    async with lab(app, tmp_path, clock=clock) as harness:
        for _ in range(5):
            clock.advance(minutes=5)
            await wait_for_look(harness)
            stored_at.append((clock_seen_at(harness) - NEW_YEAR) / 60)

    assert stored_at == [0, 0, 15, 20, 20]


async def test_engine_is_not_idle_after_a_ring_of_the_scheduler(tmp_path):
    async with lab(build_app([]), tmp_path, clock=VirtualClock()) as harness:
        await wait_for_look(harness)
        await harness.idle()

        harness.engine.scheduler.ring()

        assert not harness.engine.is_idle


async def test_buffered_occurrence_fires_at_once_after_the_earlier_trigger_expires(tmp_path, only_bells):
    clock, ran, door = VirtualClock(), list[Run](), anyio.Event()
    app = build_app(ran)

    @app.workflow("block")
    async def block() -> None:
        await door.wait()

    app.schedule("brief", "every 1h", workflow="greet", expires_after=HOUR / 2)
    async with lab(app, tmp_path, settings(concurrency=1), clock=clock) as harness:
        await app.emit("block")
        await harness.until(lambda: harness.engine.running == 1)
        for _ in range(2):
            clock.advance(hours=1)
            await wait_for_look(harness)
            await harness.idle_window()
        door.set()
        await harness.until(lambda: len(ran) == 1)

    assert ran[0].nominal_at == moment(hours=2)


async def test_buffered_occurrence_fires_at_once_after_the_earlier_trigger_is_cancelled(tmp_path, only_bells):
    clock, ran = VirtualClock(), list[Run]()
    app = build_app(ran)
    app.schedule("brief", "every 1h", workflow="greet", jitter=3 * DAY)
    async with lab(app, tmp_path, clock=clock) as harness:
        for _ in range(2):
            clock.advance(hours=1)
            await wait_for_look(harness)
        [first] = harness.rows("SELECT id FROM triggers")

        await harness.engine.client.cancel(first["id"])

        await harness.until(lambda: len(harness.rows("SELECT id FROM triggers")) == 2)


# Occurrences that wait for an earlier task


def build_asking_app(ran: list[str]) -> App:
    """Build an app with an hourly schedule whose tasks wait for an answer."""
    app = App("test")

    @app.workflow("brief")
    async def brief(ctx: TaskContext) -> None:
        ran.append(await ctx.ask("Send it?", options=["send", "hold"]) or "")

    app.schedule("hourly", "every 1h", workflow="brief")
    return app


async def buffer_second_occurrence(harness: Lab, clock: VirtualClock) -> str:
    """Fire the first occurrence, buffer the second, and return the id of the first task."""
    for outcomes in (["fired"], ["fired", "buffered"]):
        clock.advance(hours=1)
        await wait_for_look(harness)
        assert [row["outcome"] for row in harness.rows("SELECT * FROM schedule_occurrences ORDER BY seq")] == outcomes
        await harness.question()
    [task] = harness.rows("SELECT id FROM tasks")
    await harness.idle()
    return str(task["id"])


async def wait_for_both_fired(harness: Lab) -> None:
    fired = "SELECT 1 FROM schedule_occurrences WHERE outcome = 'fired'"
    await harness.until(lambda: len(harness.rows(fired)) == 2)


async def test_buffered_occurrence_fires_when_the_earlier_task_ends(tmp_path, only_bells):
    clock, ran = VirtualClock(), list[str]()
    app = build_asking_app(ran)
    async with lab(app, tmp_path, clock=clock) as harness:
        first = await buffer_second_occurrence(harness, clock)

        await app.answer((await harness.question())["id"], "send", answered_by="ada")
        await wait_for_both_fired(harness)

        assert (harness.task(first)["status"], ran) == ("DONE", ["send"])


async def test_buffered_occurrence_fires_when_the_earlier_task_is_cancelled(tmp_path, only_bells):
    clock, ran = VirtualClock(), list[str]()
    app = build_asking_app(ran)
    async with lab(app, tmp_path, clock=clock) as harness:
        first = await buffer_second_occurrence(harness, clock)

        await app.cancel_task(first)
        await wait_for_both_fired(harness)

        assert (harness.task(first)["status"], ran) == ("CANCELLED", [])


async def test_buffered_occurrence_fires_at_start_after_an_outside_task_cancel(tmp_path):
    clock, ran = VirtualClock(), list[str]()
    async with lab(build_asking_app(ran), tmp_path, clock=clock) as harness:
        first = await buffer_second_occurrence(harness, clock)
    core = VirtualCore(harness.path, clock)
    core.do(core.tasks.cancel, first)
    core.close()

    async with lab(build_asking_app(ran), tmp_path, clock=clock) as harness:
        await wait_for_both_fired(harness)
