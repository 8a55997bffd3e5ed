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
from tests.engine.test_limit_rules import most_within
from tests.engine.test_stress import stress
from tests.support.engine_harness import Lab, lab, look, settings
from tests.support.fakes import NEW_YEAR, VirtualClock
from tests.support.processes import a_daemon, craftcore, until

pytestmark = pytest.mark.anyio


class Mailer:
    """An app with the workflow `mail`, limited for each `to`, which notes who was inside and waits at its gate.

    Beside it `quick` has a rate as a whole: each kind of limit reads what the other one reads as well."""

    def __init__(self, limit_by: str = "to", **limits: Any) -> None:
        self.app = App()
        self.gate = anyio.Event()
        self.seen: list[tuple[Any, int]] = []
        self.inside: Counter[Any] = Counter()
        self.most: Counter[Any] = Counter()

        @self.app.workflow("mail", sources=["MESSAGE"], limit_by=limit_by, **limits)
        async def mail(to: Any = None, n: int = 0) -> None:
            who = str(to)
            self.seen.append((to, n))
            self.inside[who] += 1
            self.most[who] = max(self.most[who], self.inside[who])
            try:
                await self.gate.wait()
            finally:
                self.inside[who] -= 1

        @self.app.workflow("quick", rate=Rate(1000, per=1))
        async def quick() -> None: ...

    def numbers(self, to: Any) -> list[int]:
        return [n for who, n in self.seen if who == to]


def mails(count: int, to: Any = "a", first: int = 0, **how: Any) -> list[TriggerSpec]:
    return [TriggerSpec(workflow="mail", payload={"to": to, "n": n}, **how) for n in range(first, first + count)]


def waits(it: Lab) -> list[dict[str, Any]]:
    return it.rows("SELECT * FROM limit_waits ORDER BY trigger_seq")


def put_off(it: Lab) -> int:
    """How many triggers are put off; the table has the same ones as the triggers say."""
    [found] = it.rows(
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


def started(path: Path, key: str | None = None) -> list[float]:
    sql = (
        "SELECT executions.created_at FROM executions JOIN triggers ON triggers.id = trigger_id "
        "WHERE executions.workflow = 'mail' AND (:key IS NULL OR payload_json ->> '$.to' = :key) "
        "ORDER BY executions.seq"
    )
    return [row["created_at"] for row in look(path, sql, key=key)]


# So many at once


async def test_key_concurrency_is_never_exceeded_in_a_flood_of_keys(tmp_path):
    it_is = Mailer(concurrency=2)
    names = [f"k{n % 5}" for n in range(100)]
    async with lab(it_is.app, tmp_path, settings(concurrency=32, claim_batch=16)) as it:
        await it_is.app.emit_many([TriggerSpec(workflow="mail", payload={"to": name}) for name in names])
        await it.until(lambda: it_is.inside.total() == 10)
        it_is.gate.set()
        await it.until(lambda: it.engine.counts["DONE"] == len(names))
        await it.idle()
        assert put_off(it) == 0
    assert set(it_is.most.values()) == {2}


@pytest.mark.parametrize("count", [300, pytest.param(1000, marks=pytest.mark.campaign)])
async def test_key_at_its_limit_does_not_block_another_key(tmp_path, count):
    """Hundreds of triggers of one key come first in every order."""
    it_is = Mailer(concurrency=1)
    async with lab(it_is.app, tmp_path, settings(concurrency=4, claim_batch=8)) as it:
        await it_is.app.emit_many(mails(count, priority=0))
        await it_is.app.emit("mail", {"to": "b"}, priority=99)
        quick = await it_is.app.emit("quick", priority=99, session_id="s")
        await it.until(lambda: it_is.inside == {"a": 1, "b": 1})
        assert (await it.settled(quick.id))["status"] == "DONE"
        assert it_is.seen == [("a", 0), ("b", 0)]
        await it.until(lambda: put_off(it) == count - 1)
        it_is.gate.set()
        await it.until(lambda: it.engine.counts["DONE"] == count + 2)
        await it.idle()
    assert it_is.most["a"] == 1
    assert it_is.numbers("a") == list(range(count))


async def test_trigger_that_is_put_off_is_not_overtaken_within_its_session(tmp_path):
    it_is = Mailer(concurrency=1)
    order: list[str] = []

    @it_is.app.workflow("says")
    async def says(word: str) -> None:
        order.append(f"{word} with {it_is.seen[-1][1]}")

    async with lab(it_is.app, tmp_path) as it:
        await it_is.app.emit_many(mails(1))
        await it.until(lambda: it_is.inside["a"] == 1)
        await it_is.app.emit_many([*mails(1, first=1, session_id="s"), *mails(1, first=2)])
        await it.until(lambda: put_off(it) == 2)
        later = [TriggerSpec(workflow="says", payload={"word": word}, session_id="s") for word in ("one", "two")]
        await it_is.app.emit_many([*later, *mails(1, "b", first=3, session_id="s")])
        urgent = TriggerSpec(workflow="says", payload={"word": "urgent"}, session_id="s", priority=0, at=NEW_YEAR)
        await it_is.app.emit_many([urgent, TriggerSpec(workflow="says", payload={"word": "other"}, session_id="t")])
        await it.until(lambda: len(order) == 2)
        assert sorted(order) == ["other with 0", "urgent with 0"]
        await it.until(lambda: put_off(it) >= 3)
        it_is.gate.set()
        await it.until(lambda: it.engine.counts["DONE"] == 8)
        assert put_off(it) == 0
    assert order[2:] in (["one with 1", "two with 1"], ["one with 2", "two with 2"], ["one with 1", "two with 2"])
    assert it_is.numbers("a") == [0, 1, 2]
    assert it_is.seen[-1] == ("b", 3)


async def test_lane_of_a_trigger_that_is_put_off_is_kept_over_a_restart(tmp_path):
    it_is = Mailer(rate=Rate(1, per=3600))
    async with lab(it_is.app, tmp_path) as it:
        it_is.gate.set()
        await it_is.app.emit_many([*mails(1), *mails(1, first=1, session_id="s")])
        await it.until(lambda: put_off(it) == 1)
    async with lab(it_is.app, tmp_path) as it:
        await it_is.app.emit("quick", session_id="s")
        await it.until(lambda: put_off(it) == 2)
        [_, waiting] = waits(it)
        assert (waiting["workflow"], waiting["limit_by"], waiting["key"]) == ("mail", "/lane", '"a"')
        [first, _] = waits(it)
        [blocking] = it.rows("SELECT id FROM triggers WHERE seq = :seq", seq=first["trigger_seq"])
        await it_is.app.cancel(blocking["id"])
        await it.until(lambda: put_off(it) == 0)


async def test_triggers_put_off_for_a_key_start_in_the_order_of_the_queue(tmp_path):
    """By priority and age, and not by when they were put off."""
    it_is = Mailer(concurrency=1)
    async with lab(it_is.app, tmp_path) as it:
        await it_is.app.emit_many(mails(1))
        await it.until(lambda: it_is.inside["a"] == 1)
        await it_is.app.emit_many(mails(3, first=10, priority=60))
        await it.until(lambda: put_off(it) == 3)
        await it_is.app.emit_many([*mails(2, first=20, priority=10), *mails(1, "b")])
        await it.until(lambda: put_off(it) == 5)
        it_is.gate.set()
        await it.until(lambda: it.engine.counts["DONE"] == 7)
    assert it_is.numbers("a") == [0, 20, 21, 10, 11, 12]


async def test_places_of_a_key_go_to_the_best_triggers_of_a_look(tmp_path):
    """A look finds several of a key at once, in the order in which they were emitted."""
    it_is = Mailer(concurrency=1)
    async with lab(it_is.app, tmp_path) as it:
        await it_is.app.emit_many([*mails(2, priority=60), *mails(1, first=10, priority=10)])
        await it.until(lambda: put_off(it) == 2)
        assert it_is.numbers("a") in ([], [10])
        it_is.gate.set()
        await it.until(lambda: it.engine.counts["DONE"] == 3)
    assert it_is.numbers("a") == [10, 0, 1]


async def test_trigger_without_a_value_is_not_limited(tmp_path):
    it_is = Mailer(concurrency=1)
    async with lab(it_is.app, tmp_path) as it:
        await it_is.app.emit_many([TriggerSpec(workflow="mail") for _ in range(4)])
        await it_is.app.emit_many([TriggerSpec(workflow="mail", payload={"to": None}) for _ in range(4)])
        await it.until(lambda: it_is.inside["None"] == 8)
        it_is.gate.set()


async def test_values_of_a_key_are_compared_as_json(tmp_path):
    values = [1, "1", True, {"x": 1, "y": [2]}, "x" * 5000, "x" * 5001]
    it_is = Mailer(concurrency=1)
    async with lab(it_is.app, tmp_path) as it:
        await it_is.app.emit_many([TriggerSpec(workflow="mail", payload={"to": value}) for value in values * 2])
        await it_is.app.emit("mail", {"to": {"y": [2], "x": 1}})
        await it.until(lambda: put_off(it) == 7 and it_is.inside.total() == 6)
        assert max(len(row["key"]) for row in waits(it)) < 100
        it_is.gate.set()
        await it.until(lambda: it.engine.counts["DONE"] == 13)


async def test_session_as_key_counts_the_session_of_the_trigger(tmp_path):
    clock = VirtualClock()
    it_is = Mailer("session_id", rate=Rate(1, per=60))
    it_is.gate.set()
    async with lab(it_is.app, tmp_path, clock=clock) as it:
        specs = [*mails(2, session_id="s"), *mails(1, first=7, session_id="t"), *mails(2, first=8)]
        await it_is.app.emit_many(specs)
        await it.until(lambda: it.engine.counts["DONE"] == 4)
        await it.until(lambda: put_off(it) == 1)
        assert sorted(n for _, n in it_is.seen) == [0, 7, 8, 9]
        clock.advance(60)
        it.engine.feeder.ring()
        await it.until(lambda: it.engine.counts["DONE"] == 5)


async def test_trigger_by_source_counts_for_the_key(tmp_path):
    it_is = Mailer(concurrency=1)
    async with lab(it_is.app, tmp_path) as it:
        await it_is.app.emit_many([TriggerSpec(workflow=None, source="MESSAGE", payload={"to": "a"}), *mails(1)])
        await it.until(lambda: put_off(it) == 1 and it_is.inside["a"] == 1)
        it_is.gate.set()
        await it.until(lambda: it.engine.counts["DONE"] == 2)


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

    async with lab(app, tmp_path) as it:
        specs = [TriggerSpec(workflow="crawl", payload={"host": host}) for host in "aaabbb"]
        tasks = await app.emit_many(specs)
        for task in tasks:
            assert (await it.ended(task.id))["status"] == "DONE"
        await it.idle()
        assert put_off(it) == 0
    assert most == {"a": 1, "b": 1}


# So many starts in a while


async def test_key_rate_is_exact_and_counts_each_key_apart(tmp_path):
    clock = VirtualClock()
    it_is = Mailer(rate=Rate(2, per=60))
    it_is.gate.set()
    async with lab(it_is.app, tmp_path, clock=clock) as it:
        await it_is.app.emit("mail", {"to": "a"})
        await it.until(lambda: it.engine.counts["DONE"] == 1)
        clock.advance(30)
        await it_is.app.emit_many([*mails(4, first=1), *mails(3, "b")])
        await it.until(lambda: it.engine.counts["DONE"] == 4)
        for seconds, done in ((29.5, 4), (0.5, 5), (29.5, 5), (0.5, 7), (29.5, 7), (0.5, 8)):
            clock.advance(seconds)
            await it.idle_window()
            await it.until(partial(lambda done: it.engine.counts["DONE"] == done, done))
            await it.idle()
        assert put_off(it) == 0
    assert [at - NEW_YEAR for at in started(it.path, "a")] == [0, 30, 60, 90, 120]
    assert [at - NEW_YEAR for at in started(it.path, "b")] == [30, 30, 90]
    assert it_is.numbers("a") == list(range(5))


@pytest.mark.parametrize("limit", [{"rate": Rate(3, per=60)}, {"concurrency": 3}])
async def test_limit_by_key_is_kept_beside_a_rate_as_a_whole(tmp_path, limit):
    it_is = Mailer(**limit)
    async with lab(it_is.app, tmp_path, clock=VirtualClock()) as it:
        await it_is.app.emit_many([*mails(1), TriggerSpec(workflow="quick")])
        await it.until(lambda: it.engine.counts["DONE"] == 1 and it_is.inside["a"] == 1)
        for n in range(1, 8):
            await it_is.app.emit("mail", {"to": "a", "n": n})
        await it.until(lambda: len(it_is.seen) + put_off(it) == 8)
        assert it_is.numbers("a") == [0, 1, 2]
        it_is.gate.set()


async def test_engine_wakes_without_a_bell_when_a_token_of_a_key_returns(tmp_path):
    """The poll is minutes away, and no bell rings."""
    it_is = Mailer(rate=Rate(2, per=0.2))
    it_is.gate.set()
    async with lab(it_is.app, tmp_path) as it:
        await it_is.app.emit_many([*mails(9), *mails(5, "b")])
        await it.until(lambda: it.engine.counts["DONE"] == 14)
    assert it_is.numbers("a") == list(range(9))
    for key in "ab":
        assert most_within(started(it.path, key), 0.2 - 0.005) == 2


async def test_feeder_does_not_poll_while_a_key_waits_for_its_token(tmp_path):
    it_is = Mailer(rate=Rate(1, per=3600))
    it_is.gate.set()
    async with lab(it_is.app, tmp_path) as it:
        await it_is.app.emit_many(mails(50))
        await it.until(lambda: put_off(it) == 49 and it.engine.counts["DONE"] == 1)
        await it.idle_window()
        looks = it.engine.feeder.polls
        await anyio.sleep(0.3)
        assert it.engine.feeder.polls == looks


async def test_keys_are_forgotten_when_the_time_of_their_rate_is_over(tmp_path):
    clock = VirtualClock()
    it_is = Mailer(rate=Rate(1, per=60))
    it_is.gate.set()
    async with lab(it_is.app, tmp_path, clock=clock) as it:
        await it_is.app.emit_many([TriggerSpec(workflow="mail", payload={"to": n}) for n in range(200)])
        await it.until(lambda: it.engine.counts["DONE"] == 200)
        keys = it.engine.limits.keys
        assert len(keys._starts) == 200
        clock.advance(60)
        await it.idle_window()
        known = (keys._starts, keys._started, keys._keys, keys._put_off, keys._hot, keys._timed, keys._moments["mail"])
        assert [len(part) for part in known] == [0] * 7


async def test_concurrency_and_rate_of_a_key_hold_together(tmp_path):
    it_is = Mailer(concurrency=2, rate=Rate(3, per=0.25))
    it_is.gate.set()
    async with lab(it_is.app, tmp_path) as it:
        await it_is.app.emit_many([spec for n in range(8) for spec in (*mails(1, "a", n), *mails(1, "b", n))])
        await it.until(lambda: it.engine.counts["DONE"] == 16)
        assert put_off(it) == 0
    for key in "ab":
        assert it_is.numbers(key) == list(range(8))
        assert it_is.most[key] <= 2
        assert most_within(started(it.path, key), 0.25 - 0.005) <= 3


async def test_cancelled_trigger_leaves_its_token_to_the_next_of_its_key(tmp_path):
    clock = VirtualClock()
    it_is = Mailer(rate=Rate(1, per=60))
    it_is.gate.set()
    async with lab(it_is.app, tmp_path, clock=clock) as it:
        first, second, third = await it_is.app.emit_many(mails(3))
        await it.until(lambda: it.engine.counts["DONE"] == 1 and put_off(it) == 2)
        await it_is.app.cancel(second.id)
        assert put_off(it) == 1
        clock.advance(60)
        it.engine.feeder.ring()
        assert (await it.settled(third.id))["status"] == "DONE"
        assert (await it.settled(first.id))["status"] == "DONE"


# What is put off comes back


@pytest.mark.parametrize("end", ["cancelled", "superseded", "replaced", "cancelled by another process", "run now"])
async def test_trigger_that_is_put_off_may_be_ended_or_replaced(tmp_path, end):
    it_is = Mailer(concurrency=1)
    app = it_is.app
    async with lab(app, tmp_path) as it:
        running = await app.emit("mail", {"to": "a"})
        await it.until(lambda: it_is.inside["a"] == 1)
        waiting = await app.emit("mail", {"to": "a", "n": 1}, dedup_key="k", session_id="s")
        await it.until(lambda: put_off(it) == 1)
        other = Services(it.path, settings())
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
                it.engine.ring(schedules=False)
                await it.idle_window()
                await it.until(lambda: put_off(it) == 1)
                assert it_is.inside == {"a": 1}
            case _:
                with other.transaction() as tx:
                    other.triggers.cancel(tx, waiting.id)
        other.close()
        await it.until(lambda: put_off(it) == (end == "run now"))
        it_is.gate.set()
        await it.settled(running.id)
        await it.settled(waiting.id)
        await it.idle()
        assert waits(it) == []
        assert it_is.numbers("a") == ([0, 1] if end == "run now" else [0])
        assert len(it_is.numbers("b")) == (end in {"superseded", "replaced"})


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

    async with lab(app, tmp_path, clock=clock) as it:
        first, second = await app.emit_many(mails(2))
        await it.until(lambda: seen == [0] and put_off(it) == 1)
        third = await app.emit("mail", {"to": "a", "n": 2}, expires_at=NEW_YEAR + 60, priority=0)
        await it.until(lambda: put_off(it) == 2)
        if end == "cancelled":
            await app.cancel(first.id)
        if end == "stale":
            clock.advance(60)
        gate.set()
        for trigger in (first, second, third):
            await it.settled(trigger.id)
        assert put_off(it) == 0
        assert seen == ([0, 1] if end == "stale" else [0, 2, 1])


async def test_killed_attempt_of_a_key_is_retried_in_its_order(tmp_path):
    """A failed attempt is due again at once, before those that were put off."""
    app = App()
    seen: list[int] = []

    @app.workflow("mail", concurrency=1, limit_by="to")
    async def mail(to: str, n: int) -> None:
        seen.append(n)
        if seen == [0]:
            raise ValueError(n)

    async with lab(app, tmp_path) as it:
        await app.emit_many(mails(3))
        await it.until(lambda: it.engine.counts["DONE"] == 3)
        assert put_off(it) == 0
    assert sorted(seen) == [0, 0, 1, 2]


async def test_key_that_the_engine_forgot_is_found_again(tmp_path):
    it_is = Mailer(concurrency=1)
    clock = VirtualClock()
    async with lab(it_is.app, tmp_path, clock=clock) as it:
        await it_is.app.emit_many(mails(2))
        await it.until(lambda: put_off(it) == 1 and it_is.inside["a"] == 1)
        await it.idle_window()
        keys = it.engine.limits.keys
        keys._put_off.clear()
        keys._hot.clear()
        it_is.gate.set()
        await it.until(lambda: it.engine.counts["DONE"] == 1)
        await it.idle_window()
        assert put_off(it) == 1
        clock.advance(20)
        await it.idle_window()
        await it.until(lambda: it.engine.counts["DONE"] == 2)


# Over a restart


async def test_key_rate_holds_after_a_restart(tmp_path):
    clock = VirtualClock()
    it_is = Mailer(rate=Rate(2, per=3600))
    it_is.gate.set()
    async with lab(it_is.app, tmp_path, clock=clock) as it:
        await it_is.app.emit_many([*mails(5), *mails(1, "b")])
        await it.until(lambda: it.engine.counts["DONE"] == 3 and put_off(it) == 3)
    clock.advance(1800)
    async with lab(it_is.app, tmp_path, clock=clock) as it:
        await it_is.app.emit_many(mails(2, "b", 1))
        await it.until(lambda: it.engine.counts["DONE"] == 1)
        await it.until(lambda: put_off(it) == 4)
        clock.advance(1800)
        await it.idle_window()
        await it.until(lambda: it.engine.counts["DONE"] == 4)
        await it.idle()
    assert [at - NEW_YEAR for at in started(it.path, "a")] == [0, 0, 3600, 3600]
    assert [at - NEW_YEAR for at in started(it.path, "b")] == [0, 1800, 3600]
    assert it_is.numbers("a") == list(range(4))


async def test_key_rate_holds_after_a_restart_with_the_clock_set_back(tmp_path):
    clock = VirtualClock()
    it_is = Mailer(rate=Rate(3, per=60))
    it_is.gate.set()
    async with lab(it_is.app, tmp_path, clock=clock) as it:
        await it_is.app.emit_many(mails(8))
        await it.until(lambda: it.engine.counts["DONE"] == 3 and put_off(it) == 5)
    clock.set_back(30)
    async with lab(it_is.app, tmp_path, clock=clock) as it:
        await it.idle_window()
        await it.idle()
        assert it.engine.counts["DONE"] == 0
        clock.advance(60)
        await it.idle_window()
        await it.until(lambda: it.engine.counts["DONE"] == 3)


async def test_key_rate_of_later_turns_holds_after_a_restart(tmp_path):
    clock = VirtualClock()
    app = App()
    turns: list[str] = []

    @app.workflow("crawl", rate=Rate(2, per=3600), limit_by="host")
    async def crawl(ctx: TaskContext[int], host: str) -> Any:
        turns.append(host)
        return None if ctx.state == 2 else Continue((ctx.state or 0) + 1)

    async with lab(app, tmp_path, clock=clock) as it:
        await app.emit("crawl", {"host": "a"})
        await it.until(lambda: len(turns) == 2 and put_off(it) == 1)
    async with lab(app, tmp_path, clock=clock) as it:
        await app.emit("crawl", {"host": "b"})
        await it.until(lambda: len(turns) == 4 and put_off(it) == 2)
        await it.idle()
        clock.advance(3600)
        await it.idle_window()
        await it.until(lambda: len(turns) == 6)
    assert turns[:4] == ["a", "a", "b", "b"]
    assert sorted(turns[4:]) == ["a", "b"]


@pytest.mark.parametrize("after", ["no limit", "another key", "a greater limit", "no such workflow"])
async def test_changed_limit_brings_back_triggers_that_were_put_off(tmp_path, after):
    before = Mailer(concurrency=1)
    async with lab(before.app, tmp_path, settings(shutdown_grace=0)) as it:
        await before.app.emit_many(mails(6))
        await it.until(lambda: before.inside["a"] == 1 and put_off(it) == 5)
    then = Mailer("n" if after == "another key" else "to", concurrency=9)
    app = App() if after == "no such workflow" else then.app
    if after == "no limit":
        app = App()

        @app.workflow("mail")
        async def mail(to: str, n: int) -> None:
            then.seen.append((to, n))

    then.gate.set()
    async with lab(app, tmp_path) as it:
        ended = "SELECT count(*) AS n FROM triggers WHERE settled_at IS NOT NULL"
        await it.until(lambda: it.rows(ended) == [{"n": 6}])
        assert waits(it) == []
    assert sorted(n for _, n in then.seen) == ([] if after == "no such workflow" else list(range(6)))


# As a daemon

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

    left = craftcore(tmp_path, "run", "app:app", "--until-idle")

    assert left.code == 0, left.err
    assert look(tmp_path / "agent.db", "SELECT DISTINCT status FROM triggers") == [{"status": "DONE"}]
    assert look(tmp_path / "agent.db", "SELECT * FROM limit_waits") == []
    assert most_within(started(tmp_path / "agent.db"), 0.5 - 0.01) <= 3


def test_key_limits_hold_after_the_daemon_is_killed(tmp_path):
    (tmp_path / "app.py").write_text(APP.format(per=3600, sleep=0.2))
    path = tmp_path / "agent.db"
    with Producer(path) as producer:
        for n in range(8):
            producer.emit("mail", {"to": "a", "n": n})
        with a_daemon(tmp_path, "app:app") as daemon:
            until(lambda: len(started(path)) == 2)
            daemon.kill()
        with a_daemon(tmp_path, "app:app") as daemon:
            daemon.ready()
            until(lambda: len(started(path)) == 3)
            quick = producer.emit("quick", priority=99)
            until(lambda: look(path, "SELECT status FROM triggers WHERE id = :id", id=quick.id) == [{"status": "DONE"}])
    assert len(started(path)) == 3
    live = look(path, "SELECT count(*) AS n FROM triggers WHERE workflow = 'mail' AND settled_at IS NULL")
    assert live[0]["n"] >= 5
    (tmp_path / "app.py").write_text(APP.format(per=0.001, sleep=0))
    assert craftcore(tmp_path, "run", "app:app", "--until-idle").code == 0
    assert look(path, "SELECT DISTINCT status FROM triggers") == [{"status": "DONE"}]


# Under stress

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
    await chaos_within_limits(tmp_path, seed, triggers)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(100, 160))
async def test_key_limits_are_not_exceeded_under_heavy_stress_and_counts_balance(tmp_path, seed):
    await chaos_within_limits(tmp_path, seed, 1200)


async def chaos_within_limits(folder: Path, seed: int, triggers: int) -> None:
    def limit(app: App) -> None:
        for name, limits in LIMITED.items():
            app.workflows[name] = replace(app.workflows[name], **limits)

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
            mine = [row for row in rows if row["key"] == key]
            if (most := limits.get("concurrency")) is not None:
                at_once = [sum(r["created_at"] <= row["created_at"] < r["ended_at"] for r in mine) for row in mine]
                assert max(at_once) <= most, name
            if (rate := limits.get("rate")) is not None:
                assert most_within([row["created_at"] for row in mine], rate.seconds - 0.001) <= rate.count, name
    assert checked > triggers / 10  # which of them are replaced, expire or are cancelled depends on time
    assert look(folder / "agent.db", "SELECT * FROM limit_waits") == []
