"""Limits by key: each value has its own count, and keys at their limit do not delay other triggers."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from craftcore import App, Continue, Rate, TaskContext, TriggerSpec
from craftcore.producer import Producer
from craftcore.services import Services
from craftcore.triggers.model import LIMITED_UNTIL
from tests.engine.test_limit_rules import max_in_span
from tests.engine.test_stress import stress
from tests.support.engine_harness import Lab, lab, look, settings
from tests.support.fakes import NEW_YEAR, VirtualClock
from tests.support.processes import a_daemon, craftcore, until

pytestmark = pytest.mark.anyio


class Mailer:
    """An app with the workflow `mail`, limited by `to`, which records its runs and waits at a gate.

    The workflow `quick` has a rate without a key, so both kinds of limits are read together.
    """

    def __init__(self, limit_by: str = "to", **limits: Any) -> None:
        self.app = App()
        self.gate = anyio.Event()
        self.seen: list[tuple[Any, int]] = []
        self.inside: Counter[Any] = Counter()
        self.most: Counter[Any] = Counter()

        @self.app.workflow("mail", sources=["MESSAGE"], limit_by=limit_by, **limits)
        async def mail(to: Any = None, n: int = 0) -> None:
            key = str(to)
            self.seen.append((to, n))
            self.inside[key] += 1
            self.most[key] = max(self.most[key], self.inside[key])
            try:
                await self.gate.wait()
            finally:
                self.inside[key] -= 1

        @self.app.workflow("quick", rate=Rate(1000, per=1))
        async def quick() -> None: ...

    def numbers(self, to: Any) -> list[int]:
        return [n for key, n in self.seen if key == to]


def mail_specs(count: int, to: Any = "a", first: int = 0, **fields: Any) -> list[TriggerSpec]:
    return [TriggerSpec(workflow="mail", payload={"to": to, "n": n}, **fields) for n in range(first, first + count)]


def limit_waits(harness: Lab) -> list[dict[str, Any]]:
    return harness.rows("SELECT * FROM limit_waits ORDER BY trigger_seq")


def count_deferred(harness: Lab) -> int:
    """Return the number of deferred triggers, after checking that the table and the triggers agree."""
    [found] = harness.rows(
        """
        SELECT (SELECT group_concat(seq) FROM (SELECT seq FROM triggers
                 WHERE status = 'PENDING' AND not_before = :until ORDER BY seq)) AS marked,
               (SELECT group_concat(trigger_seq) FROM (SELECT trigger_seq FROM limit_waits
                 ORDER BY trigger_seq)) AS listed,
               (SELECT count(*) FROM limit_waits) AS n
        """,
        until=LIMITED_UNTIL,
    )
    assert found["marked"] == found["listed"]
    return int(found["n"])


def start_times(path: Path, key: str | None = None) -> list[float]:
    sql = (
        "SELECT executions.created_at FROM executions JOIN triggers ON triggers.id = trigger_id "
        "WHERE executions.workflow = 'mail' AND (:key IS NULL OR payload_json ->> '$.to' = :key) "
        "ORDER BY executions.seq"
    )
    return [row["created_at"] for row in look(path, sql, key=key)]


# Concurrency


async def test_key_concurrency_is_never_exceeded_in_a_flood_of_keys(tmp_path):
    mailer = Mailer(concurrency=2)
    names = [f"k{n % 5}" for n in range(100)]
    async with lab(mailer.app, tmp_path, settings(concurrency=32, claim_batch=16)) as harness:
        await mailer.app.emit_many([TriggerSpec(workflow="mail", payload={"to": name}) for name in names])
        await harness.until(lambda: mailer.inside.total() == 10)
        mailer.gate.set()
        await harness.until(lambda: harness.engine.counts["DONE"] == len(names))
        await harness.idle()
        assert count_deferred(harness) == 0
    assert set(mailer.most.values()) == {2}


@pytest.mark.parametrize("count", [300, pytest.param(1000, marks=pytest.mark.campaign)])
async def test_key_at_its_limit_does_not_block_another_key(tmp_path, count):
    """Hundreds of triggers of one key precede another key in every order."""
    mailer = Mailer(concurrency=1)
    async with lab(mailer.app, tmp_path, settings(concurrency=4, claim_batch=8)) as harness:
        await mailer.app.emit_many(mail_specs(count, priority=0))
        await mailer.app.emit("mail", {"to": "b"}, priority=99)
        quick = await mailer.app.emit("quick", priority=99, session_id="s")
        await harness.until(lambda: mailer.inside == {"a": 1, "b": 1})
        assert (await harness.settled(quick.id))["status"] == "DONE"
        assert mailer.seen == [("a", 0), ("b", 0)]
        await harness.until(lambda: count_deferred(harness) == count - 1)
        mailer.gate.set()
        await harness.until(lambda: harness.engine.counts["DONE"] == count + 2)
        await harness.idle()
    assert mailer.most["a"] == 1
    assert mailer.numbers("a") == list(range(count))


async def test_trigger_that_is_put_off_is_not_overtaken_within_its_session(tmp_path):
    mailer = Mailer(concurrency=1)
    order: list[str] = []

    @mailer.app.workflow("says")
    async def says(word: str) -> None:
        order.append(f"{word} with {mailer.seen[-1][1]}")

    async with lab(mailer.app, tmp_path) as harness:
        await mailer.app.emit_many(mail_specs(1))
        await harness.until(lambda: mailer.inside["a"] == 1)
        await mailer.app.emit_many([*mail_specs(1, first=1, session_id="s"), *mail_specs(1, first=2)])
        await harness.until(lambda: count_deferred(harness) == 2)
        later = [TriggerSpec(workflow="says", payload={"word": word}, session_id="s") for word in ("one", "two")]
        await mailer.app.emit_many([*later, *mail_specs(1, "b", first=3, session_id="s")])
        urgent = TriggerSpec(workflow="says", payload={"word": "urgent"}, session_id="s", priority=0, at=NEW_YEAR)
        await mailer.app.emit_many([urgent, TriggerSpec(workflow="says", payload={"word": "other"}, session_id="t")])
        await harness.until(lambda: len(order) == 2)
        assert sorted(order) == ["other with 0", "urgent with 0"]
        await harness.until(lambda: count_deferred(harness) >= 3)
        mailer.gate.set()
        await harness.until(lambda: harness.engine.counts["DONE"] == 8)
        assert count_deferred(harness) == 0
    assert order[2:] in (["one with 1", "two with 1"], ["one with 2", "two with 2"], ["one with 1", "two with 2"])
    assert mailer.numbers("a") == [0, 1, 2]
    assert mailer.seen[-1] == ("b", 3)


async def test_lane_of_a_trigger_that_is_put_off_is_kept_over_a_restart(tmp_path):
    mailer = Mailer(rate=Rate(1, per=3600))
    async with lab(mailer.app, tmp_path) as harness:
        mailer.gate.set()
        await mailer.app.emit_many([*mail_specs(1), *mail_specs(1, first=1, session_id="s")])
        await harness.until(lambda: count_deferred(harness) == 1)
    async with lab(mailer.app, tmp_path) as harness:
        await mailer.app.emit("quick", session_id="s")
        await harness.until(lambda: count_deferred(harness) == 2)
        [_, waiting] = limit_waits(harness)
        assert (waiting["workflow"], waiting["limit_by"], waiting["key"]) == ("mail", "/lane", '"a"')
        [first, _] = limit_waits(harness)
        [blocking] = harness.rows("SELECT id FROM triggers WHERE seq = :seq", seq=first["trigger_seq"])
        await mailer.app.cancel(blocking["id"])
        await harness.until(lambda: count_deferred(harness) == 0)


async def test_triggers_put_off_for_a_key_start_in_the_order_of_the_queue(tmp_path):
    """The order is that of priority and age, and not the order of deferral."""
    mailer = Mailer(concurrency=1)
    async with lab(mailer.app, tmp_path) as harness:
        await mailer.app.emit_many(mail_specs(1))
        await harness.until(lambda: mailer.inside["a"] == 1)
        await mailer.app.emit_many(mail_specs(3, first=10, priority=60))
        await harness.until(lambda: count_deferred(harness) == 3)
        await mailer.app.emit_many([*mail_specs(2, first=20, priority=10), *mail_specs(1, "b")])
        await harness.until(lambda: count_deferred(harness) == 5)
        mailer.gate.set()
        await harness.until(lambda: harness.engine.counts["DONE"] == 7)
    assert mailer.numbers("a") == [0, 20, 21, 10, 11, 12]


async def test_places_of_a_key_go_to_the_best_triggers_of_a_poll(tmp_path):
    """A poll finds several triggers of a key at once, in the order in which they were emitted."""
    mailer = Mailer(concurrency=1)
    async with lab(mailer.app, tmp_path) as harness:
        await mailer.app.emit_many([*mail_specs(2, priority=60), *mail_specs(1, first=10, priority=10)])
        await harness.until(lambda: count_deferred(harness) == 2)
        assert mailer.numbers("a") in ([], [10])
        mailer.gate.set()
        await harness.until(lambda: harness.engine.counts["DONE"] == 3)
    assert mailer.numbers("a") == [10, 0, 1]


async def test_trigger_without_a_value_is_not_limited(tmp_path):
    mailer = Mailer(concurrency=1)
    async with lab(mailer.app, tmp_path) as harness:
        await mailer.app.emit_many([TriggerSpec(workflow="mail") for _ in range(4)])
        await mailer.app.emit_many([TriggerSpec(workflow="mail", payload={"to": None}) for _ in range(4)])
        await harness.until(lambda: mailer.inside["None"] == 8)
        mailer.gate.set()


async def test_values_of_a_key_are_compared_as_json(tmp_path):
    values = [1, "1", True, {"x": 1, "y": [2]}, "x" * 5000, "x" * 5001]
    mailer = Mailer(concurrency=1)
    async with lab(mailer.app, tmp_path) as harness:
        await mailer.app.emit_many([TriggerSpec(workflow="mail", payload={"to": value}) for value in values * 2])
        await mailer.app.emit("mail", {"to": {"y": [2], "x": 1}})
        await harness.until(lambda: count_deferred(harness) == 7 and mailer.inside.total() == 6)
        assert max(len(row["key"]) for row in limit_waits(harness)) < 100
        mailer.gate.set()
        await harness.until(lambda: harness.engine.counts["DONE"] == 13)


async def test_session_as_key_counts_the_session_of_the_trigger(tmp_path):
    clock = VirtualClock()
    mailer = Mailer("session_id", rate=Rate(1, per=60))
    mailer.gate.set()
    async with lab(mailer.app, tmp_path, clock=clock) as harness:
        specs = [*mail_specs(2, session_id="s"), *mail_specs(1, first=7, session_id="t"), *mail_specs(2, first=8)]
        await mailer.app.emit_many(specs)
        await harness.until(lambda: harness.engine.counts["DONE"] == 4)
        await harness.until(lambda: count_deferred(harness) == 1)
        assert sorted(n for _, n in mailer.seen) == [0, 7, 8, 9]
        clock.advance(60)
        harness.engine.feeder.ring()
        await harness.until(lambda: harness.engine.counts["DONE"] == 5)


async def test_trigger_by_source_counts_for_the_key(tmp_path):
    mailer = Mailer(concurrency=1)
    async with lab(mailer.app, tmp_path) as harness:
        await mailer.app.emit_many([TriggerSpec(workflow=None, source="MESSAGE", payload={"to": "a"}), *mail_specs(1)])
        await harness.until(lambda: count_deferred(harness) == 1 and mailer.inside["a"] == 1)
        mailer.gate.set()
        await harness.until(lambda: harness.engine.counts["DONE"] == 2)


async def test_later_turn_of_a_task_counts_for_the_key_of_its_first_trigger(tmp_path):
    app = App()
    inside: Counter[str] = Counter()
    most: Counter[str] = Counter()

    @app.workflow("crawl", concurrency=1, limit_by="host")
    async def crawl(ctx: TaskContext[int], host: str) -> Any:
        inside[host] += 1
        most[host] = max(most[host], inside[host])
        await anyio.sleep(0.002)
        inside[host] -= 1
        return None if ctx.state == 2 else Continue((ctx.state or 0) + 1)

    async with lab(app, tmp_path) as harness:
        specs = [TriggerSpec(workflow="crawl", payload={"host": host}) for host in "aaabbb"]
        tasks = await app.emit_many(specs)
        for task in tasks:
            assert (await harness.ended(task.id))["status"] == "DONE"
        await harness.idle()
        assert count_deferred(harness) == 0
    assert most == {"a": 1, "b": 1}


# Rates


async def test_key_rate_is_exact_and_counts_each_key_separately(tmp_path):
    clock = VirtualClock()
    mailer = Mailer(rate=Rate(2, per=60))
    mailer.gate.set()
    async with lab(mailer.app, tmp_path, clock=clock) as harness:
        await mailer.app.emit("mail", {"to": "a"})
        await harness.until(lambda: harness.engine.counts["DONE"] == 1)
        clock.advance(30)
        await mailer.app.emit_many([*mail_specs(4, first=1), *mail_specs(3, "b")])
        await harness.until(lambda: harness.engine.counts["DONE"] == 4)
        for seconds, done in ((29.5, 4), (0.5, 5), (29.5, 5), (0.5, 7), (29.5, 7), (0.5, 8)):
            clock.advance(seconds)
            await harness.idle_window()
            await harness.until(partial(lambda done: harness.engine.counts["DONE"] == done, done))
            await harness.idle()
        assert count_deferred(harness) == 0
    assert [at - NEW_YEAR for at in start_times(harness.path, "a")] == [0, 30, 60, 90, 120]
    assert [at - NEW_YEAR for at in start_times(harness.path, "b")] == [30, 30, 90]
    assert mailer.numbers("a") == list(range(5))


@pytest.mark.parametrize("limit", [{"rate": Rate(3, per=60)}, {"concurrency": 3}])
async def test_limit_by_key_holds_together_with_a_rate_without_a_key(tmp_path, limit):
    mailer = Mailer(**limit)
    async with lab(mailer.app, tmp_path, clock=VirtualClock()) as harness:
        await mailer.app.emit_many([*mail_specs(1), TriggerSpec(workflow="quick")])
        await harness.until(lambda: harness.engine.counts["DONE"] == 1 and mailer.inside["a"] == 1)
        for n in range(1, 8):
            await mailer.app.emit("mail", {"to": "a", "n": n})
        await harness.until(lambda: len(mailer.seen) + count_deferred(harness) == 8)
        assert mailer.numbers("a") == [0, 1, 2]
        mailer.gate.set()


async def test_engine_wakes_without_a_bell_when_a_token_of_a_key_returns(tmp_path):
    """The poll interval is minutes long, and no bell rings."""
    mailer = Mailer(rate=Rate(2, per=0.2))
    mailer.gate.set()
    async with lab(mailer.app, tmp_path) as harness:
        await mailer.app.emit_many([*mail_specs(9), *mail_specs(5, "b")])
        await harness.until(lambda: harness.engine.counts["DONE"] == 14)
    assert mailer.numbers("a") == list(range(9))
    for key in "ab":
        assert max_in_span(start_times(harness.path, key), 0.2 - 0.005) == 2


async def test_feeder_does_not_poll_while_a_key_waits_for_its_token(tmp_path):
    mailer = Mailer(rate=Rate(1, per=3600))
    mailer.gate.set()
    async with lab(mailer.app, tmp_path) as harness:
        await mailer.app.emit_many(mail_specs(50))
        await harness.until(lambda: count_deferred(harness) == 49 and harness.engine.counts["DONE"] == 1)
        await harness.idle_window()
        looks = harness.engine.feeder.polls
        await anyio.sleep(0.3)
        assert harness.engine.feeder.polls == looks


async def test_keys_are_forgotten_when_the_time_of_their_rate_is_over(tmp_path):
    clock = VirtualClock()
    mailer = Mailer(rate=Rate(1, per=60))
    mailer.gate.set()
    async with lab(mailer.app, tmp_path, clock=clock) as harness:
        await mailer.app.emit_many([TriggerSpec(workflow="mail", payload={"to": n}) for n in range(200)])
        await harness.until(lambda: harness.engine.counts["DONE"] == 200)
        keys = harness.engine.limits.keys
        assert len(keys._starts) == 200
        clock.advance(60)
        await harness.idle_window()
        known = (keys._starts, keys._started, keys._keys, keys._put_off, keys._hot, keys._timed, keys._moments["mail"])
        assert [len(part) for part in known] == [0] * 7


async def test_concurrency_and_rate_of_a_key_hold_together(tmp_path):
    mailer = Mailer(concurrency=2, rate=Rate(3, per=0.25))
    mailer.gate.set()
    async with lab(mailer.app, tmp_path) as harness:
        await mailer.app.emit_many(
            [spec for n in range(8) for spec in (*mail_specs(1, "a", n), *mail_specs(1, "b", n))]
        )
        await harness.until(lambda: harness.engine.counts["DONE"] == 16)
        assert count_deferred(harness) == 0
    for key in "ab":
        assert mailer.numbers(key) == list(range(8))
        assert mailer.most[key] <= 2
        assert max_in_span(start_times(harness.path, key), 0.25 - 0.005) <= 3


async def test_cancelled_trigger_leaves_its_token_to_the_next_of_its_key(tmp_path):
    clock = VirtualClock()
    mailer = Mailer(rate=Rate(1, per=60))
    mailer.gate.set()
    async with lab(mailer.app, tmp_path, clock=clock) as harness:
        first, second, third = await mailer.app.emit_many(mail_specs(3))
        await harness.until(lambda: harness.engine.counts["DONE"] == 1 and count_deferred(harness) == 2)
        await mailer.app.cancel(second.id)
        assert count_deferred(harness) == 1
        clock.advance(60)
        harness.engine.feeder.ring()
        assert (await harness.settled(third.id))["status"] == "DONE"
        assert (await harness.settled(first.id))["status"] == "DONE"


# Return of deferred triggers


@pytest.mark.parametrize("end", ["cancelled", "superseded", "replaced", "cancelled by another process", "run now"])
async def test_trigger_that_is_put_off_may_be_ended_or_replaced(tmp_path, end):
    mailer = Mailer(concurrency=1)
    app = mailer.app
    async with lab(app, tmp_path) as harness:
        running = await app.emit("mail", {"to": "a"})
        await harness.until(lambda: mailer.inside["a"] == 1)
        waiting = await app.emit("mail", {"to": "a", "n": 1}, dedup_key="k", session_id="s")
        await harness.until(lambda: count_deferred(harness) == 1)
        other = Services(harness.path, settings())
        match end:
            case "cancelled":
                await app.cancel(waiting.id)
            case "superseded":
                await app.emit("mail", {"to": "b"}, session_id="s", supersedes="session")
            case "replaced":
                await app.emit("mail", {"to": "b"}, dedup_key="k", on_duplicate="replace", session_id="s")
            case "run now":
                with other.transaction() as tx:
                    other.triggers.run_now(tx, waiting.id, "now")
                harness.engine.ring(schedules=False)
                await harness.idle_window()
                await harness.until(lambda: count_deferred(harness) == 1)
                assert mailer.inside == {"a": 1}
            case _:
                with other.transaction() as tx:
                    other.triggers.cancel(tx, waiting.id)
        other.close()
        await harness.until(lambda: count_deferred(harness) == (end == "run now"))
        mailer.gate.set()
        await harness.settled(running.id)
        await harness.settled(waiting.id)
        await harness.idle()
        assert limit_waits(harness) == []
        assert mailer.numbers("a") == ([0, 1] if end == "run now" else [0])
        assert len(mailer.numbers("b")) == (end in {"superseded", "replaced"})


@pytest.mark.parametrize("end", ["cancelled", "failed", "stale"])
async def test_end_of_a_running_trigger_brings_back_the_next_of_its_key(tmp_path, end):
    clock = VirtualClock()
    app = App()
    seen: list[int] = []
    gate = anyio.Event()

    @app.workflow("mail", concurrency=1, limit_by="to", max_attempts=1)
    async def mail(to: str, n: int) -> None:
        seen.append(n)
        await gate.wait()
        if n == 0 and end == "failed":
            raise ValueError(n)

    async with lab(app, tmp_path, clock=clock) as harness:
        first, second = await app.emit_many(mail_specs(2))
        await harness.until(lambda: seen == [0] and count_deferred(harness) == 1)
        third = await app.emit("mail", {"to": "a", "n": 2}, expires_at=NEW_YEAR + 60, priority=0)
        await harness.until(lambda: count_deferred(harness) == 2)
        if end == "cancelled":
            await app.cancel(first.id)
        if end == "stale":
            clock.advance(60)
        gate.set()
        for trigger in (first, second, third):
            await harness.settled(trigger.id)
        assert count_deferred(harness) == 0
        assert seen == ([0, 1] if end == "stale" else [0, 2, 1])


async def test_killed_attempt_of_a_key_is_retried_in_its_order(tmp_path):
    """A failed attempt is due again at once, before the deferred triggers."""
    app = App()
    seen: list[int] = []

    @app.workflow("mail", concurrency=1, limit_by="to")
    async def mail(to: str, n: int) -> None:
        seen.append(n)
        if seen == [0]:
            raise ValueError(n)

    async with lab(app, tmp_path) as harness:
        await app.emit_many(mail_specs(3))
        await harness.until(lambda: harness.engine.counts["DONE"] == 3)
        assert count_deferred(harness) == 0
    assert sorted(seen) == [0, 0, 1, 2]


async def test_key_that_the_engine_forgot_is_found_again(tmp_path):
    mailer = Mailer(concurrency=1)
    clock = VirtualClock()
    async with lab(mailer.app, tmp_path, clock=clock) as harness:
        await mailer.app.emit_many(mail_specs(2))
        await harness.until(lambda: count_deferred(harness) == 1 and mailer.inside["a"] == 1)
        await harness.idle_window()
        keys = harness.engine.limits.keys
        keys._put_off.clear()
        keys._hot.clear()
        mailer.gate.set()
        await harness.until(lambda: harness.engine.counts["DONE"] == 1)
        await harness.idle_window()
        assert count_deferred(harness) == 1
        clock.advance(20)
        await harness.idle_window()
        await harness.until(lambda: harness.engine.counts["DONE"] == 2)


# Restarts


async def test_key_rate_holds_after_a_restart(tmp_path):
    clock = VirtualClock()
    mailer = Mailer(rate=Rate(2, per=3600))
    mailer.gate.set()
    async with lab(mailer.app, tmp_path, clock=clock) as harness:
        await mailer.app.emit_many([*mail_specs(5), *mail_specs(1, "b")])
        await harness.until(lambda: harness.engine.counts["DONE"] == 3 and count_deferred(harness) == 3)
    clock.advance(1800)
    async with lab(mailer.app, tmp_path, clock=clock) as harness:
        await mailer.app.emit_many(mail_specs(2, "b", 1))
        await harness.until(lambda: harness.engine.counts["DONE"] == 1)
        await harness.until(lambda: count_deferred(harness) == 4)
        clock.advance(1800)
        await harness.idle_window()
        await harness.until(lambda: harness.engine.counts["DONE"] == 4)
        await harness.idle()
    assert [at - NEW_YEAR for at in start_times(harness.path, "a")] == [0, 0, 3600, 3600]
    assert [at - NEW_YEAR for at in start_times(harness.path, "b")] == [0, 1800, 3600]
    assert mailer.numbers("a") == list(range(4))


async def test_key_rate_holds_after_a_restart_with_the_clock_set_back(tmp_path):
    clock = VirtualClock()
    mailer = Mailer(rate=Rate(3, per=60))
    mailer.gate.set()
    async with lab(mailer.app, tmp_path, clock=clock) as harness:
        await mailer.app.emit_many(mail_specs(8))
        await harness.until(lambda: harness.engine.counts["DONE"] == 3 and count_deferred(harness) == 5)
    clock.set_back(30)
    async with lab(mailer.app, tmp_path, clock=clock) as harness:
        await harness.idle_window()
        await harness.idle()
        assert harness.engine.counts["DONE"] == 0
        clock.advance(60)
        await harness.idle_window()
        await harness.until(lambda: harness.engine.counts["DONE"] == 3)


async def test_key_rate_of_later_turns_holds_after_a_restart(tmp_path):
    clock = VirtualClock()
    app = App()
    turns: list[str] = []

    @app.workflow("crawl", rate=Rate(2, per=3600), limit_by="host")
    async def crawl(ctx: TaskContext[int], host: str) -> Any:
        turns.append(host)
        return None if ctx.state == 2 else Continue((ctx.state or 0) + 1)

    async with lab(app, tmp_path, clock=clock) as harness:
        await app.emit("crawl", {"host": "a"})
        await harness.until(lambda: len(turns) == 2 and count_deferred(harness) == 1)
    async with lab(app, tmp_path, clock=clock) as harness:
        await app.emit("crawl", {"host": "b"})
        await harness.until(lambda: len(turns) == 4 and count_deferred(harness) == 2)
        await harness.idle()
        clock.advance(3600)
        await harness.idle_window()
        await harness.until(lambda: len(turns) == 6)
    assert turns[:4] == ["a", "a", "b", "b"]
    assert sorted(turns[4:]) == ["a", "b"]


@pytest.mark.parametrize("after", ["no limit", "another key", "a greater limit", "no such workflow"])
async def test_changed_limit_brings_back_triggers_that_were_put_off(tmp_path, after):
    before = Mailer(concurrency=1)
    async with lab(before.app, tmp_path, settings(shutdown_grace=0)) as harness:
        await before.app.emit_many(mail_specs(6))
        await harness.until(lambda: before.inside["a"] == 1 and count_deferred(harness) == 5)
    later = Mailer("n" if after == "another key" else "to", concurrency=9)
    app = App() if after == "no such workflow" else later.app
    if after == "no limit":
        app = App()

        @app.workflow("mail")
        async def mail(to: str, n: int) -> None:
            later.seen.append((to, n))

    later.gate.set()
    async with lab(app, tmp_path) as harness:
        ended = "SELECT count(*) AS n FROM triggers WHERE settled_at IS NOT NULL"
        await harness.until(lambda: harness.rows(ended) == [{"n": 6}])
        assert limit_waits(harness) == []
    assert sorted(n for _, n in later.seen) == ([] if after == "no such workflow" else list(range(6)))


# In a daemon

APP = """
import time
from craftcore import App, Rate

app = App("test")

@app.workflow("mail", concurrency=1, rate=Rate(3, per={per}), limit_by="to")
def mail(to: str, n: int) -> None:
    time.sleep({sleep})

@app.workflow("quick")
async def quick() -> None: ...
"""


def test_until_idle_waits_for_triggers_that_are_put_off(tmp_path):
    (tmp_path / "app.py").write_text(APP.format(per=0.5, sleep=0))
    with Producer(tmp_path / "agent.db") as producer:
        for n in range(7):
            producer.emit("mail", {"to": "a", "n": n})

    result = craftcore(tmp_path, "run", "app:app", "--until-idle")

    assert result.code == 0, result.err
    assert look(tmp_path / "agent.db", "SELECT DISTINCT status FROM triggers") == [{"status": "DONE"}]
    assert look(tmp_path / "agent.db", "SELECT * FROM limit_waits") == []
    assert max_in_span(start_times(tmp_path / "agent.db"), 0.5 - 0.01) <= 3


def test_key_limits_hold_after_the_daemon_is_killed(tmp_path):
    (tmp_path / "app.py").write_text(APP.format(per=3600, sleep=0.2))
    path = tmp_path / "agent.db"
    with Producer(path) as producer:
        for n in range(8):
            producer.emit("mail", {"to": "a", "n": n})
        with a_daemon(tmp_path, "app:app") as daemon:
            until(lambda: len(start_times(path)) == 2)
            daemon.kill()
        with a_daemon(tmp_path, "app:app") as daemon:
            daemon.ready()
            until(lambda: len(start_times(path)) == 3)
            quick = producer.emit("quick", priority=99)
            until(lambda: look(path, "SELECT status FROM triggers WHERE id = :id", id=quick.id) == [{"status": "DONE"}])
    assert len(start_times(path)) == 3
    live = look(path, "SELECT count(*) AS n FROM triggers WHERE workflow = 'mail' AND settled_at IS NULL")
    assert live[0]["n"] >= 5
    (tmp_path / "app.py").write_text(APP.format(per=0.001, sleep=0))
    assert craftcore(tmp_path, "run", "app:app", "--until-idle").code == 0
    assert look(path, "SELECT DISTINCT status FROM triggers") == [{"status": "DONE"}]


# Stress

LIMITED: dict[str, dict[str, Any]] = {
    "slow": {"concurrency": 1, "limit_by": "n"},
    "yields": {"concurrency": 2, "rate": Rate(6, per=0.05), "limit_by": "n"},
    "flaky": {"rate": Rate(4, per=0.04), "limit_by": "session_id"},
    "hangs": {"concurrency": 2, "limit_by": "n"},
    "snoozes": {"rate": Rate(2, per=0.02), "limit_by": "n"},
}
BY = {"n": "$.payload.n", "session_id": "$.metadata.sessionId"}


@pytest.mark.parametrize(
    ("seed", "triggers"),
    [(3, 120), *(pytest.param(seed, 240, marks=pytest.mark.campaign) for seed in range(4))],
)
async def test_key_limits_are_not_exceeded_under_stress_and_counts_balance(tmp_path, seed, triggers):
    await assert_limits_hold_under_stress(tmp_path, seed, triggers)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(100, 160))
async def test_key_limits_are_not_exceeded_under_heavy_stress_and_counts_balance(tmp_path, seed):
    await assert_limits_hold_under_stress(tmp_path, seed, 1200)


async def assert_limits_hold_under_stress(folder: Path, seed: int, triggers: int) -> None:
    def limit(app: App) -> None:
        for name, limits in LIMITED.items():
            app._workflows[name] = replace(app.workflows[name], **limits)

    await stress(folder, seed, triggers, limit)
    checked = 0
    for name, limits in LIMITED.items():
        rows = look(
            folder / "agent.db",
            "SELECT created_at, ended_at, envelope_json ->> :by AS key FROM executions WHERE workflow = :name "
            "AND routing_json ->> 'reason' = 'explicit workflow' AND key IS NOT NULL ORDER BY seq",
            name=name,
            by=BY[limits["limit_by"]],
        )
        checked += len(rows)
        for key in {row["key"] for row in rows}:
            of_key = [row for row in rows if row["key"] == key]
            if (most := limits.get("concurrency")) is not None:
                at_once = [sum(r["created_at"] <= row["created_at"] < r["ended_at"] for r in of_key) for row in of_key]
                assert max(at_once) <= most, name
            if (rate := limits.get("rate")) is not None:
                assert max_in_span([row["created_at"] for row in of_key], rate.seconds - 0.001) <= rate.count, name
    assert checked > triggers / 10  # time decides which triggers are replaced, expire or are cancelled
    assert look(folder / "agent.db", "SELECT * FROM limit_waits") == []
