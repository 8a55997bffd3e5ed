"""Start holds of workflows, sources and schedules: their rows, and the triggers that a claim skips."""

from __future__ import annotations

import pytest

from craftcore.errors import InvalidInput, NotFound, StateRefused, UnknownWorkflow
from craftcore.schedules.model import Origin, ScheduleSpec
from craftcore.storage.transaction import Transaction
from craftcore.triggers.claim_candidate_store import Budget
from craftcore.triggers.start_holds import HOLDS_MAX, HoldTarget, StartHolds, hold_target, read_holds, release
from tests.support.trigger_steps import claim_all, emit

MAIL = hold_target(workflow="mail")


def test_hold_keeps_its_reason_until_released(core, clock):
    assert core.do(core.hold, MAIL, "ada", "wrong recipients") is True
    assert core.do(core.hold, MAIL, "bob") is False

    assert core.do(read_holds) == StartHolds(targets={MAIL: "ada held it at 2026-01-01 00:00:00Z: wrong recipients"})
    assert list(core.do(release, MAIL)) == ["hold:workflow:mail"]
    assert core.do(release, MAIL) == {}
    assert not core.do(read_holds)


def test_release_of_everything_ends_every_hold(core):
    for target in (HoldTarget(), MAIL, hold_target(source="MEMORY")):
        core.do(core.hold, target, "ada")

    assert list(core.do(release)) == ["held", "hold:source:MEMORY", "hold:workflow:mail"]
    assert core.do(read_holds) == StartHolds()


def declare_mail(tx: Transaction) -> None:
    tx.run("INSERT INTO workflows (name, epoch) VALUES ('mail', 1)")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"workflow": "a", "source": "MEMORY"}, "give one at a time"),
        ({"source": "memory"}, r"source 'memory' is unknown; it must be one of MESSAGE, "),
    ],
)
def test_bad_target_of_a_hold_is_refused(given, message):
    with pytest.raises(InvalidInput, match=message):
        hold_target(**given)


def test_hold_of_an_unknown_target_is_refused(core):
    core.do(lambda tx: tx.run("INSERT INTO workflows (name, epoch) VALUES ('mail', 1)"))
    with pytest.raises(UnknownWorkflow, match="did you mean mail"):
        core.do(core.hold, hold_target(workflow="mial"), "ada")
    with pytest.raises(NotFound, match="no schedule nightly"):
        core.do(core.hold, hold_target(schedule="nightly"), "ada")
    with pytest.raises(InvalidInput, match="the reason has 4,001 characters"):
        core.do(core.hold, MAIL, "ada", "x" * 4001)
    assert not core.do(read_holds)


def test_holds_are_limited_in_number(core):
    for number in range(HOLDS_MAX):
        core.do(core.hold, hold_target(workflow=f"w{number}"), "ada")
    with pytest.raises(StateRefused, match="100 holds stand already"):
        core.do(core.hold, MAIL, "ada")
    assert core.do(core.hold, HoldTarget(), "ada") is True


def test_claim_leaves_held_work_and_takes_the_rest(core):
    schedule = ScheduleSpec(id="nightly", when="every 1h", workflow="brief")
    core.do(core.schedules.put, schedule, Origin.OPERATOR)
    core.clock.advance(hours=1)
    core.do(core.ticks.tick)
    emitted = {name: emit(core, **how).id for name, how in EMITTED.items()}
    core.do(lambda tx: tx.run("UPDATE triggers SET due_at = :now WHERE status = 'PENDING'"))
    [fired] = [row["id"] for row in core.rows("SELECT id FROM triggers WHERE schedule_id = 'nightly'")]
    holds = StartHolds(
        targets={hold_target(source="MEMORY"): "", hold_target(schedule="nightly"): "", MAIL: ""},
    )
    budget = Budget({"mail": 0}, {})

    assert [claim.id for claim in claim_all(core, holds=holds, budget=budget)] == [emitted["free"]]
    assert claim_all(core, holds=StartHolds(everything="ada")) == []
    left = {claim.id for claim in claim_all(core)}
    assert left == {emitted["mail"], emitted["memory"], fired}


def test_safe_mode_holds_triggers_of_schedules_of_every_source(core):
    for source in ("SCHEDULED", "PROACTIVE"):
        schedule = ScheduleSpec(id=source.lower(), when="every 1h", workflow="brief", source=source)
        core.do(core.schedules.put, schedule, Origin.OPERATOR)
    core.clock.advance(hours=1)
    core.do(core.ticks.tick)
    own = emit(core, source="PROACTIVE").id
    safe = StartHolds(safe_mode="six crashes")

    assert [claim.id for claim in claim_all(core, holds=safe)] == [own]
    assert safe.is_held("PROACTIVE", "brief", "proactive")
    assert len(claim_all(core)) == 2


EMITTED = {"mail": {"workflow": "mail"}, "memory": {"source": "MEMORY"}, "free": {}}
