"""Waits beside each other in single commits, with a crash, an answer or the end of a time between any two."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from craftcore.diagnostics.invariants import violations
from craftcore.tasks.model import NewWait, TaskStatus, WaitKind
from tests.support.fakes import NEW_YEAR, VirtualClock, VirtualCore
from tests.support.task_steps import (
    Running,
    a_question,
    a_sleep,
    begin,
    enter,
    enter_next,
    finish,
    for_event,
    go_on,
    look,
    rows,
    suspend,
)
from tests.support.trigger_steps import claim_all

HOUR = 3600.0


def together(*waits: NewWait) -> NewWait:
    """Return what the tasks of a turn wait for."""
    first, *beside = waits
    return replace(first, beside=tuple(beside))


def a_group(clock: VirtualClock) -> NewWait:
    """Return a `ctx.wait_any` of an event and an hour."""
    event = NewWait(name="any/paid", kind=WaitKind.EVENT, event="paid", any_of="any")
    late = NewWait(name="any/late", kind=WaitKind.TIMER, due_at=clock.now() + HOUR, any_of="any")
    return replace(event, others=(late,))


def ask(name: str, **more: Any) -> NewWait:
    return replace(a_question(**more), name=name)


def endings(core: VirtualCore) -> dict[str, str | None]:
    return {row["name"]: row["resolved_by"] for row in rows(core, "waits")}


def answer(core: VirtualCore, name: str) -> None:
    """Answer the question of a wait."""
    [row] = core.rows(
        "SELECT questions.id FROM questions JOIN waits ON waits.seq = wait_seq WHERE name = :name "
        "AND questions.status = 'OPEN'",
        name=name,
    )
    core.do(core.tasks.answer, row["id"], "send", answered_by="ada")


def assert_invariants(core: VirtualCore) -> None:
    """Check the invariants of waits and questions. The others need the epochs of an engine."""
    with core.reading() as reader:
        found = [f"{one.code}: {one.text}" for one in violations(reader)]
    assert [one for one in found if "wait" in one or "question" in one] == []


def test_wait_parked_again_keeps_its_row_its_time_and_its_question(core, clock):
    running = begin(core)
    waits = together(ask("a"), ask("b", until=NEW_YEAR + HOUR), for_event("go", name="go"))
    suspend(core, running, waits)
    before = rows(core, "waits")[1], rows(core, "questions")[1]
    answer(core, "a")

    clock.advance(60)
    running = enter_next(core)
    assert ({*running.entry.still_open}, [*running.entry.waits]) == ({"b", "go"}, ["a"])
    suspend(core, running, together(ask("b", until=clock.now() + HOUR), for_event("go", name="go")))

    assert (rows(core, "waits")[1], rows(core, "questions")[1]) == before
    [timer] = core.rows("SELECT * FROM triggers WHERE status = 'PENDING'")
    assert timer["due_at"] == NEW_YEAR + HOUR
    assert_invariants(core)


def test_first_wait_of_a_task_that_is_left_alone_keeps_its_key_unique(core, clock):
    """The time of b outlasts two suspensions, and each has a trigger for it."""
    running = begin(core)
    suspend(core, running, together(ask("a"), a_sleep(NEW_YEAR + HOUR, name="b"), ask("c")))
    for name in ("a", "c"):
        answer(core, name)
        running = enter_next(core)
        suspend(core, running, a_sleep(NEW_YEAR + HOUR, name="b"))
    clock.advance(HOUR)
    running = enter_next(core)
    assert [*running.entry.waits] == ["a", "c", "b"]
    keys = [row["dedup_key"] for row in rows(core, "triggers") if row["dedup_key"]]
    assert len({*keys}) == len(keys) == 3


def test_times_that_are_over_together_need_a_single_entry(core, clock):
    running = begin(core)
    suspend(core, running, together(*(a_sleep(NEW_YEAR + 60, name=name) for name in "abc"), ask("d")))
    clock.advance(60)
    assert [*enter_next(core).entry.waits] == ["a", "b", "c"]


def test_alternatives_beside_other_waits_end_each_other_only(core, clock):
    running = begin(core)
    suspend(core, running, together(ask("a"), a_group(clock)))
    core.do(core.tasks.signal, running.task.id, "paid", 1)
    assert endings(core) == {"a": None, "any/paid": "signal", "any/late": "end"}
    running = enter_next(core)
    answer(core, "a")  # while it runs, and parks for a again
    assert suspend(core, running, ask("a")).due_at == clock.now()
    assert {*enter_next(core).entry.waits} == {"any/paid", "a"}


def test_mail_that_is_there_ends_several_waits_at_once(core):
    running = begin(core)
    for event in ("one", "two"):
        core.do(core.tasks.signal, running.task.id, event, 1)
    suspend(core, running, together(for_event("one", name="1"), ask("a"), for_event("two", name="2")))
    assert endings(core) == {"1": "signal", "a": None, "2": "signal"}
    assert [*enter_next(core).entry.waits] == ["1", "2"]


@pytest.mark.parametrize("ends", [finish, go_on])
def test_turn_that_ends_leaves_no_wait_open(core, ends):
    running = begin(core)
    suspend(core, running, together(ask("a"), ask("b")))
    answer(core, "a")
    ends(core, enter_next(core))
    assert endings(core) == {"a": "answer", "b": "end"}
    assert_invariants(core)


def test_stale_task_keeps_the_questions_that_were_open(core, clock):
    running = begin(core)
    suspend(core, running, together(ask("a"), ask("b")))
    answer(core, "a")
    enter_next(core)
    clock.advance(100 * HOUR)
    core.do(core.claims.reclaim, 2)
    core.do(core.resume_contract.resume, 2)
    assert look(core, running.task.id).status is TaskStatus.WAITING
    assert endings(core) == {"a": "answer", "b": None, "stale:2": None}
    assert_invariants(core)


# Any order of commits


def play(core: VirtualCore, clock: VirtualClock, seed: int) -> None:
    """Let a turn wait for five things, in tasks beside each other, with ends and crashes between its commits."""
    chance, epoch = random.Random(seed), 1
    wanted = {
        "a": ask("a"),
        "b": ask("b", until=clock.now() + HOUR),
        "nap": a_sleep(clock.now() + chance.choice((60, HOUR)), name="nap"),
        "go": for_event("go", name="go"),
        "any": a_group(clock),
    }
    task_id = begin(core).task.id
    running: Running | None = None
    questions: dict[int, str] = {}
    ends = ["a", "b", "go", "paid", "time"]
    chance.shuffle(ends)
    for _ in range(400):
        task = look(core, task_id)
        if not task.status.is_live:
            break
        match chance.choice(("end", "enter", "leave", "leave", "crash")):
            case "end" if ends and rows(core, "waits"):
                if not end_one(core, clock, task_id, name := ends.pop(), chance):
                    ends.insert(0, name)
            case "enter" if running is None:
                [*claims] = claim_all(core, epoch=epoch)
                entered = [enter(core, claim, epoch=epoch) for claim in claims]
                running = next((one for one in entered if isinstance(one, Running)), None)
            case "leave" if running is not None:
                leave(core, running, wanted, chance)
                running = None
            case "crash":
                epoch += 1
                core.do(core.claims.reclaim, epoch)
                running = None
        for row in rows(core, "questions"):
            assert questions.setdefault(row["wait_seq"], row["id"]) == row["id"], "asked again"
        assert_invariants(core)
        if running is None and chance.random() < 0.05:
            clock.advance(HOUR)
    assert look(core, task_id).status is TaskStatus.DONE, (seed, endings(core))
    assert None not in endings(core).values()


def end_one(core: VirtualCore, clock: VirtualClock, task_id: str, name: str, chance: random.Random) -> bool:
    """Let a person answer, an event come, or some time pass. False: the question is not asked yet."""
    match name:
        case "time":
            clock.advance(chance.choice((60, HOUR)))
        case "go" | "paid":
            core.do(core.tasks.signal, task_id, name, 1)
        case _:
            if name not in endings(core):
                return False
            if endings(core)[name] is None:
                answer(core, name)
    return True


def leave(core: VirtualCore, running: Running, wanted: dict[str, NewWait], chance: random.Random) -> None:
    """End a run of the code: it parks for all that has not come, some of it, or is done."""
    come = {name.partition("/")[0] for name in running.entry.waits}
    left = [wait for name, wait in wanted.items() if name not in come]
    if not left:
        finish(core, running)
        return
    some = chance.sample(left, chance.randint(1, len(left)))
    suspend(core, running, together(*some))


@pytest.mark.parametrize("seeds", [range(40), pytest.param(range(1000), marks=pytest.mark.campaign)], ids=len)
def test_turn_receives_each_end_in_any_order_of_commits_and_crashes(tmp_path, seeds):
    for seed in seeds:
        clock = VirtualClock(seed=seed)
        core = VirtualCore(tmp_path / f"{seed}.db", clock)
        play(core, clock, seed)
        core.close()
