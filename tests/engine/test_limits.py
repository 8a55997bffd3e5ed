"""Concurrency and rate limits of workflows in a running engine, and their effect on unlimited workflows."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from craftcore import App, Rate, Route, RoutedTrigger, RoutingContext, TriggerSpec
from craftcore.engine.feeder import ClaimRequest, Feeder
from craftcore.errors import ConfigInvalid
from craftcore.producer import Producer
from craftcore.services import Services
from craftcore.triggers.model import TriggerStatus
from tests.engine.test_limit_rules import max_in_span
from tests.engine.test_stress import stress
from tests.support.engine_harness import Lab, lab, look, settings
from tests.support.fakes import NEW_YEAR, VirtualClock
from tests.support.processes import PATIENCE, a_daemon, craftcore, until

pytestmark = pytest.mark.anyio


class Mailer:
    """An app with a limited workflow `mail`, which records its runs and waits at a gate, and unlimited workflows."""

    def __init__(self, **limits: Any) -> None:
        self.app = App()
        self.gate = anyio.Event()
        self.seen: list[int] = []
        self.inside = 0
        self.most = 0

        @self.app.workflow("mail", sources=["MESSAGE"], **limits)
        async def mail(n: int = 0) -> None:
            self.seen.append(n)
            self.inside += 1
            self.most = max(self.most, self.inside)
            await self.gate.wait()
            self.inside -= 1

        @self.app.workflow("quick")
        async def quick() -> None: ...

        @self.app.workflow("wait")
        async def wait() -> None:
            await self.gate.wait()


def mail_specs(count: int, **fields: Any) -> list[TriggerSpec]:
    return [TriggerSpec(workflow="mail", payload={"n": n}, **fields) for n in range(count)]


def count_claimed(harness: Lab, workflow: str) -> int:
    [row] = harness.rows(
        "SELECT count(*) AS n FROM triggers WHERE status = 'CLAIMED' AND workflow = :name", name=workflow
    )
    count: int = row["n"]
    return count


def start_times(path: Path, workflow: str = "mail") -> list[float]:
    rows = look(path, "SELECT created_at FROM executions WHERE workflow = :name ORDER BY seq", name=workflow)
    return [row["created_at"] for row in rows]


class BlockedWriter:
    """A block during which the writer is busy, so every request to it stays queued."""

    def __init__(self, harness: Lab) -> None:
        self._writer = harness.engine.writer
        self._inside, self._go_on = threading.Event(), threading.Event()

    def _hold(self, _tx: Any) -> None:
        self._inside.set()
        self._go_on.wait(PATIENCE)

    async def __aenter__(self) -> None:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._writer.commit, self._hold)
        await anyio.to_thread.run_sync(self._inside.wait)

    async def __aexit__(self, *error: Any) -> None:
        self._go_on.set()
        await self._tasks.__aexit__(*error)


async def begin_poll(feeder: Feeder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ring and wait until the feeder has decided what to claim."""
    decided = anyio.Event()
    decide = feeder._claim_request

    def decide_and_note() -> ClaimRequest:
        want = decide()
        decided.set()
        return want

    monkeypatch.setattr(feeder, "_claim_request", decide_and_note)
    feeder.ring()
    with anyio.fail_after(PATIENCE):
        await decided.wait()


# Concurrency


async def test_trigger_of_a_full_workflow_is_not_overtaken_within_its_session(tmp_path):
    mailer = Mailer(concurrency=1)
    order: list[str] = []

    @mailer.app.workflow("says")
    async def says(word: str) -> None:
        order.append(f"{word} with {mailer.seen[-1]}")

    def says_spec(word: str, session: str) -> TriggerSpec:
        return TriggerSpec(workflow="says", payload={"word": word}, session_id=session)

    async with lab(mailer.app, tmp_path) as harness:
        await mailer.app.emit_many(mail_specs(1))
        await harness.until(lambda: mailer.inside == 1)
        second = TriggerSpec(workflow="mail", payload={"n": 1}, session_id="s")
        await mailer.app.emit_many([second, says_spec("later", "s"), says_spec("other", "t")])
        await harness.until(lambda: "other with 0" in order)
        mailer.gate.set()
        await harness.until(lambda: harness.engine.counts["DONE"] == 4)
    assert order == ["other with 0", "later with 1"]


async def test_workflow_concurrency_is_never_exceeded_in_a_flood_of_triggers(tmp_path):
    app = App()
    inside: Counter[str] = Counter()
    most: Counter[str] = Counter()
    full = anyio.Event()  # each waits until every slot is taken

    async def work(name: str) -> None:
        inside[name] += 1
        most[name] = max(most[name], inside[name])
        if (inside["mail"], inside["fetch"]) == (3, 1):
            full.set()
        await full.wait()
        await anyio.sleep(0.001)
        inside[name] -= 1

    app.declare("mail", work, concurrency=3)
    app.declare("fetch", work, concurrency=1)
    app.declare("free", work)
    names = ["mail", "fetch", "free", "free"] * 25
    async with lab(app, tmp_path, settings(concurrency=12, claim_batch=16)) as harness:
        await app.emit_many([TriggerSpec(workflow=name, payload={"name": name}) for name in names])
        await harness.until(lambda: harness.engine.counts["DONE"] == len(names))
        await harness.idle()
    assert (most["mail"], most["fetch"]) == (3, 1)
    assert most["free"] > 3


async def test_full_workflow_leaves_the_claim_window_to_other_workflows(tmp_path):
    """A hundred mails precede another trigger in every order, and only one of them may run. The other trigger runs at
    once."""
    mailer = Mailer(concurrency=1)
    async with lab(mailer.app, tmp_path, settings(concurrency=2, claim_batch=2)) as harness:
        await mailer.app.emit_many(mail_specs(100, priority=0))
        for _ in range(5):
            emitted = await mailer.app.emit("quick", priority=99, session_id="s")
            assert (await harness.settled(emitted.id))["status"] == "DONE"
        assert (count_claimed(harness, "mail"), mailer.seen) == (1, [0])
        mailer.gate.set()
        await harness.until(lambda: harness.engine.counts["DONE"] == 105)
    assert mailer.most == 1


async def test_triggers_of_a_limited_workflow_keep_the_emit_order(tmp_path):
    mailer = Mailer(concurrency=1)
    mailer.gate.set()
    async with lab(mailer.app, tmp_path, settings(concurrency=4, claim_batch=3)) as harness:
        await mailer.app.emit_many([spec for n, spec in enumerate(mail_specs(30)) if n % 2])
        for spec in mail_specs(30)[::2]:
            await mailer.app.emit("mail", spec.payload, priority=50)
        await harness.until(lambda: harness.engine.counts["DONE"] == 30)
    assert mailer.seen == [*range(1, 30, 2), *range(0, 30, 2)]


async def test_concurrency_limit_counts_triggers_by_source_and_by_name(tmp_path):
    mailer = Mailer(concurrency=2)
    async with lab(mailer.app, tmp_path) as harness:
        await mailer.app.emit_many([TriggerSpec(workflow=None, source="MESSAGE") for _ in range(5)] + mail_specs(5))
        await harness.until(lambda: mailer.inside == 2)
        await harness.idle_window()
        [row] = harness.rows("SELECT count(*) AS n FROM triggers WHERE status = 'CLAIMED'")
        assert row == {"n": 2}
        mailer.gate.set()
        await harness.until(lambda: harness.engine.counts["DONE"] == 10)
    assert mailer.most == 2


async def test_routed_triggers_do_not_count_for_the_workflow_limit(tmp_path):
    class MailRouter:
        async def route(self, trigger: RoutedTrigger, context: RoutingContext) -> Route:
            return Route(workflow="mail")

    mailer = Mailer(concurrency=1)
    mailer.app.router = MailRouter()
    async with lab(mailer.app, tmp_path) as harness:
        await mailer.app.emit_many([TriggerSpec(workflow=None, source="SKILL_WORKFLOW") for _ in range(5)])
        await harness.until(lambda: mailer.inside == 5)
        mailer.gate.set()


async def test_trigger_of_another_process_behind_a_full_workflow_is_claimed(tmp_path):
    """The trigger is emitted by another process with an earlier time."""
    mailer = Mailer(concurrency=1)
    async with lab(mailer.app, tmp_path) as harness:
        await mailer.app.emit_many(mail_specs(10, at=time.time() - 60))
        await harness.until(lambda: mailer.inside == 1)
        await harness.idle_window()
        with Producer(harness.path) as producer:
            for seconds in (3, 300):
                emitted = producer.emit("quick", at=time.time() - seconds)
                assert (await harness.settled(emitted.id))["status"] == "DONE"
        mailer.gate.set()
        await harness.until(lambda: harness.engine.counts["DONE"] == 12)


# Returned places


@pytest.mark.parametrize("end", ["cancelled", "superseded", "stale", "replaced", "cancelled by another process"])
async def test_trigger_ended_in_the_claim_window_frees_the_limited_place(tmp_path, end):
    """The only slot of the engine is taken. The first mail is in the window, and the second in the table."""
    clock = VirtualClock()
    mailer = Mailer(concurrency=1)
    app = mailer.app
    async with lab(app, tmp_path, settings(concurrency=1), clock=clock) as harness:
        await app.emit("wait")
        await harness.until(lambda: harness.engine.running == 1)
        first = await app.emit("mail", {"n": 1}, session_id="s", dedup_key="k", expires_at=NEW_YEAR + 60)
        await harness.until(lambda: harness.trigger(first.id)["status"] == "CLAIMED")
        second = await app.emit("mail", {"n": 2})
        await harness.idle_window()
        assert harness.trigger(second.id)["status"] == "PENDING"

        match end:
            case "cancelled":
                await app.cancel(first.id)
            case "superseded":
                await app.emit("mail", {"n": 3}, session_id="s", supersedes="session")
            case "stale":
                clock.advance(60)
            case "replaced":
                await app.emit("mail", {"n": 3}, dedup_key="k", on_duplicate="replace", session_id="s")
            case _:
                other = Services(harness.path, settings())
                with other.transaction() as tx:
                    other.triggers.cancel(tx, first.id)
                other.close()
        mailer.gate.set()

        assert (await harness.settled(second.id))["status"] == "DONE"
        await harness.settled(first.id)
        await harness.idle()
        assert mailer.most == 1
        assert 1 not in mailer.seen
        assert len(harness.engine._window) == 0


async def test_trigger_in_backoff_frees_the_limited_place(tmp_path):
    app = App()
    seen: list[str] = []

    @app.workflow("mail", max_attempts=2, concurrency=1)
    async def mail(text: str) -> None:
        seen.append(text)
        if text == "bad":
            raise ValueError(text)

    config = settings()
    config = replace(config, retry=replace(config.retry, base_seconds=3600.0, cap_seconds=3600.0))
    async with lab(app, tmp_path, config) as harness:
        bad, good = await app.emit_many([TriggerSpec(workflow="mail", payload={"text": t}) for t in ("bad", "good")])
        await harness.settled(good.id)
        assert seen == ["bad", "good"]
        assert harness.trigger(bad.id)["status"] == "PENDING"


async def test_claim_given_up_for_a_busy_lane_frees_the_limited_place(tmp_path, monkeypatch):
    """A router assigns the session while a poll claims a mail of that session."""
    asked, answer = anyio.Event(), anyio.Event()

    class SessionRouter:
        async def route(self, trigger: RoutedTrigger, context: RoutingContext) -> Route:
            asked.set()
            await answer.wait()
            return Route(workflow="wait", session_id="s")

    mailer = Mailer(concurrency=1)
    mailer.app.router = SessionRouter()
    async with lab(mailer.app, tmp_path) as harness:
        await mailer.app.emit(None, source="SKILL_WORKFLOW")
        await asked.wait()
        harness.engine.feeder.paused = True
        first, second = await mailer.app.emit_many(
            [
                TriggerSpec(workflow="mail", payload={"n": 1}, session_id="s"),
                TriggerSpec(workflow="mail", payload={"n": 2}),
            ]
        )
        await harness.idle_window()
        harness.engine.feeder.paused = False
        async with BlockedWriter(harness):
            await begin_poll(harness.engine.feeder, monkeypatch)
            answer.set()
            await harness.until(lambda: "s" in harness.engine._window.busy_lanes)

        await harness.until(lambda: mailer.seen == [2])
        assert harness.trigger(first.id)["status"] == "PENDING"
        mailer.gate.set()
        await harness.settled(second.id)
        await harness.settled(first.id)
    assert mailer.most == 1


# Rates


async def test_rate_allows_the_next_start_when_the_oldest_start_has_passed(tmp_path):
    clock = VirtualClock()
    mailer = Mailer(rate=Rate(3, per=60))
    mailer.gate.set()
    async with lab(mailer.app, tmp_path, clock=clock) as harness:
        await mailer.app.emit("mail")
        await harness.until(lambda: harness.engine.counts["DONE"] == 1)
        clock.advance(30)
        await mailer.app.emit_many(mail_specs(6))
        await harness.until(lambda: harness.engine.counts["DONE"] == 3)

        clock.advance(29.5)
        await harness.idle_window()
        await harness.idle()
        assert harness.engine.counts["DONE"] == 3
        clock.advance(0.5)
        await harness.idle_window()
        await harness.until(lambda: harness.engine.counts["DONE"] == 4)
        clock.advance(30)
        await harness.idle_window()
        await harness.until(lambda: harness.engine.counts["DONE"] == 6)
        clock.advance(30)
        await harness.idle_window()
        await harness.until(lambda: harness.engine.counts["DONE"] == 7)
        await harness.idle()
    assert [at - NEW_YEAR for at in start_times(harness.path)] == [0, 30, 30, 60, 90, 90, 120]


async def test_rate_counts_failed_attempts(tmp_path):
    clock = VirtualClock()
    app = App()

    @app.workflow("mail", rate=Rate(2, per=60))
    async def mail() -> None:
        raise ValueError

    async with lab(app, tmp_path, clock=clock) as harness:
        emitted = await app.emit("mail")
        await harness.until(lambda: harness.engine.counts["PENDING"] == 2)
        await harness.idle_window()
        await harness.idle()
        assert harness.trigger(emitted.id)["starts"] == 2
        clock.advance(60)
        await harness.idle_window()
        assert (await harness.settled(emitted.id))["status"] == "DEAD"


async def test_engine_wakes_without_a_bell_when_a_rate_token_returns(tmp_path):
    """The poll interval is minutes long, and no bell rings."""
    mailer = Mailer(rate=Rate(2, per=0.2))
    mailer.gate.set()
    async with lab(mailer.app, tmp_path) as harness:
        await mailer.app.emit_many(mail_specs(9))
        await harness.until(lambda: harness.engine.counts["DONE"] == 9)
    assert mailer.seen == list(range(9))
    assert max_in_span(start_times(harness.path), 0.2 - 0.005) == 2


async def test_rate_token_that_returns_during_a_poll_is_not_lost(tmp_path, monkeypatch):
    mailer = Mailer(rate=Rate(1, per=0.3))
    mailer.gate.set()
    async with lab(mailer.app, tmp_path) as harness:
        await mailer.app.emit_many(mail_specs(2))
        await harness.until(lambda: harness.engine.counts["DONE"] == 1)
        async with BlockedWriter(harness):
            await begin_poll(harness.engine.feeder, monkeypatch)
            await anyio.sleep(0.4)
        await harness.until(lambda: harness.engine.counts["DONE"] == 2)


async def test_engine_that_polls_for_a_returned_rate_token_is_not_idle(tmp_path):
    """A trigger claimed by that poll is not due any more and not yet in the window, so the engine is not idle."""
    mailer = Mailer(rate=Rate(1, per=0.2))
    mailer.gate.set()
    async with lab(mailer.app, tmp_path) as harness:
        await mailer.app.emit_many(mail_specs(100))
        await harness.until(lambda: harness.engine.counts["DONE"] > 0 and harness.engine.is_idle)
        async with BlockedWriter(harness):
            await harness.until(lambda: harness.engine.feeder.is_polling)
            assert not harness.engine.is_idle


async def test_feeder_does_not_poll_while_waiting_for_a_rate_token_or_a_place(tmp_path):
    """The feeder polls once for each token, and not at all while no trigger may be claimed."""
    app = App()
    gate = anyio.Event()

    @app.workflow("mail", concurrency=1)
    async def mail() -> None:
        await gate.wait()

    @app.workflow("fetch", rate=Rate(1, per=0.1))
    async def fetch() -> None: ...

    async with lab(app, tmp_path) as harness:
        await app.emit_many([TriggerSpec(workflow=name) for name in ("mail", "fetch")] * 8)
        await harness.until(lambda: harness.engine.counts["DONE"] == 2)
        looks, done = harness.engine.feeder.polls, harness.engine.counts["DONE"]
        await harness.until(lambda: harness.engine.counts["DONE"] == 6)
        assert harness.engine.feeder.polls - looks <= 5 * (harness.engine.counts["DONE"] - done)

        harness.engine.pause()
        await harness.idle_window()
        looks = harness.engine.feeder.polls
        await anyio.sleep(0.4)
        assert harness.engine.feeder.polls - looks <= 5
        gate.set()


async def test_rate_holds_after_a_restart(tmp_path):
    clock = VirtualClock()
    mailer = Mailer(rate=Rate(2, per=3600))
    mailer.gate.set()
    async with lab(mailer.app, tmp_path, clock=clock) as harness:
        await mailer.app.emit_many(mail_specs(5))
        await harness.until(lambda: harness.engine.counts["DONE"] == 2)
    clock.advance(1800)
    async with lab(mailer.app, tmp_path, clock=clock) as harness:
        emitted = await mailer.app.emit("quick")
        await harness.settled(emitted.id)
        await harness.idle()
        assert harness.engine.counts["DONE"] == 1
        clock.advance(1800)
        await harness.idle_window()
        await harness.until(lambda: harness.engine.counts["DONE"] == 3)
        await harness.idle()
    assert [at - NEW_YEAR for at in start_times(harness.path)] == [0, 0, 3600, 3600]


@pytest.mark.parametrize("when", ["while it runs", "between two runs"])
async def test_clock_set_back_does_not_prolong_the_wait_for_a_rate_token(tmp_path, when):
    """The clock is set back by a day. The wait stays within the hour of the rate."""
    clock = VirtualClock()
    mailer = Mailer(rate=Rate(2, per=3600))
    mailer.gate.set()
    async with lab(mailer.app, tmp_path, clock=clock) as harness:
        await mailer.app.emit_many(mail_specs(6, at=NEW_YEAR - 30 * 86_400))
        await harness.until(lambda: harness.engine.counts["DONE"] == 2)
        if when == "while it runs":
            clock.set_back(86_400)
            await harness.idle_window()
            await harness.idle()
            assert harness.engine.counts["DONE"] == 2
            clock.advance(3600)
            await harness.idle_window()
            await harness.until(lambda: harness.engine.counts["DONE"] == 4)
            return
    clock.set_back(86_400)
    async with lab(mailer.app, tmp_path, clock=clock) as harness:
        await harness.idle_window()
        await harness.idle()
        assert harness.engine.counts["DONE"] == 0
        clock.advance(3600)
        await harness.idle_window()
        await harness.until(lambda: harness.engine.counts["DONE"] == 2)
        await harness.idle()
        assert harness.engine.counts["DONE"] == 2


# Limits and the rest of the engine


async def test_limited_trigger_stays_pending_at_emit_and_unlimited_is_claimed(tmp_path):
    mailer = Mailer(concurrency=1)
    async with lab(mailer.app, tmp_path) as harness:
        await harness.idle()
        assert [(await mailer.app.emit("mail")).status for _ in range(3)] == [TriggerStatus.PENDING] * 3
        assert (await mailer.app.emit(None, source="MESSAGE")).status is TriggerStatus.PENDING
        await harness.until(lambda: mailer.inside == 1 and harness.engine.feeder.is_drained)
        assert (await mailer.app.emit("quick")).status is TriggerStatus.CLAIMED
        mailer.gate.set()
        await harness.until(lambda: harness.engine.counts["DONE"] == 5)
    assert mailer.most == 1


async def test_corrupt_row_of_a_limited_workflow_is_set_aside_and_others_run(tmp_path):
    mailer = Mailer(concurrency=1)
    mailer.gate.set()
    async with lab(mailer.app, tmp_path) as harness:
        harness.engine.feeder.paused = True
        bad, *good = await mailer.app.emit_many(mail_specs(4))
        other = Services(harness.path, settings())
        with other.transaction() as tx:
            tx.run("UPDATE triggers SET workflow = CAST(x'ff' AS TEXT) WHERE id = :id", id=bad.id)
        other.close()
        harness.engine.feeder.paused = False
        harness.engine.feeder.ring()
        for emitted in good:
            assert (await harness.settled(emitted.id))["status"] == "DONE"
        assert (await harness.settled(bad.id))["reason"] == "corrupt row"


LIMITED: dict[str, dict[str, Any]] = {
    "slow": {"concurrency": 1},
    "yields": {"concurrency": 2, "rate": Rate(30, per=0.05)},
    "flaky": {"rate": Rate(8, per=0.04)},
    "hangs": {"concurrency": 2},
    "snoozes": {"rate": Rate(5, per=0.02)},
}


@pytest.mark.parametrize(
    ("seed", "triggers"),
    [(0, 120), *(pytest.param(seed, 240, marks=pytest.mark.campaign) for seed in range(4))],
)
async def test_limits_are_not_exceeded_under_stress_and_counts_balance(tmp_path, seed, triggers):
    await assert_limits_hold_under_stress(tmp_path, seed, triggers)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(100, 160))
async def test_limits_are_not_exceeded_under_heavy_stress_and_counts_balance(tmp_path, seed):
    await assert_limits_hold_under_stress(tmp_path, seed, 1200)


async def assert_limits_hold_under_stress(folder: Path, seed: int, triggers: int) -> None:
    def limit(app: App) -> None:
        for name, limits in LIMITED.items():
            app._workflows[name] = replace(app.workflows[name], **limits)

    await stress(folder, seed, triggers, limit)
    for name, limits in LIMITED.items():
        rows = look(
            folder / "agent.db",
            "SELECT created_at, ended_at FROM executions WHERE workflow = :name "
            "AND routing_json ->> 'reason' = 'explicit workflow' ORDER BY seq",
            name=name,
        )
        assert rows, name
        if (most := limits.get("concurrency")) is not None:
            starts_together = [sum(r["created_at"] <= row["created_at"] < r["ended_at"] for r in rows) for row in rows]
            assert max(starts_together) <= most, name
        if (rate := limits.get("rate")) is not None:
            assert max_in_span([row["created_at"] for row in rows], rate.seconds - 0.001) <= rate.count, name


# In a daemon

APP = """
from craftcore import App, Rate

app = App("test")

@app.workflow("mail", rate=Rate(2, per={per}))
async def mail() -> None: ...

@app.workflow("quick")
async def quick() -> None: ...
"""


def test_until_idle_waits_for_triggers_delayed_by_a_rate(tmp_path):
    (tmp_path / "app.py").write_text(APP.format(per=0.5))
    with Producer(tmp_path / "agent.db") as producer:
        for _ in range(5):
            producer.emit("mail")

    ended = craftcore(tmp_path, "run", "app:app", "--until-idle")

    assert ended.code == 0, ended.err
    assert look(tmp_path / "agent.db", "SELECT DISTINCT status FROM triggers") == [{"status": "DONE"}]
    assert max_in_span(start_times(tmp_path / "agent.db"), 0.5 - 0.01) <= 2


def test_rate_holds_after_the_daemon_is_killed(tmp_path):
    (tmp_path / "app.py").write_text(APP.format(per=3600))
    path = tmp_path / "agent.db"
    with Producer(path) as producer:
        for _ in range(5):
            producer.emit("mail")
        with a_daemon(tmp_path, "app:app") as daemon:
            until(lambda: len(start_times(path)) == 2)
            daemon.kill()
        with a_daemon(tmp_path, "app:app") as daemon:
            daemon.ready()
            quick = producer.emit("quick", priority=99)
            until(lambda: look(path, "SELECT status FROM triggers WHERE id = :id", id=quick.id) == [{"status": "DONE"}])
    assert len({row["trigger_id"] for row in look(path, "SELECT trigger_id FROM executions")}) <= 3
    assert len(start_times(path)) == 2


# Declarations


async def test_limit_declared_while_the_app_runs_is_refused(tmp_path):
    mailer = Mailer(concurrency=1)

    async def late() -> None: ...

    async with lab(mailer.app, tmp_path):
        with pytest.raises(ConfigInvalid, match="workflow late: the app runs already; declare limits before it is"):
            mailer.app.declare("late", late, concurrency=1)
        mailer.app.declare("late", late)


async def test_engine_reports_which_workflows_are_limited(tmp_path):
    async with lab(Mailer(rate=Rate(1, per=1)).app, tmp_path) as harness:
        assert harness.engine.limits.is_limited("mail")
        assert not harness.engine.limits.is_limited("quick")
