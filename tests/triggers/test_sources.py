"""Sources of triggers: their default priority, key and scope, and one trigger for each key."""

from __future__ import annotations

import pytest

from craftcore.errors import InvalidInput
from craftcore.triggers.model import DedupScope, TriggerSource
from craftcore.triggers.settlement import Failed
from craftcore.triggers.sources import (
    DEFAULTS,
    living_ui_key,
    memory_key,
    onboarding_key,
    proactive_key,
    resume_key,
    scheduled_key,
    scheduled_once_key,
    system_key,
    turn_key,
    wake_key,
)
from tests.support.fakes import NEW_YEAR
from tests.support.trigger_steps import HOPELESS, emit, look, run_one

TABLE = {
    "MESSAGE": (3, "ever"),
    "CONTINUATION": (5, "ever"),
    "RESUME": (6, "active"),
    "IMMEDIATE": (10, "active"),
    "SCHEDULED": (30, "ever"),
    "LIVING_UI": (30, "active"),
    "PROACTIVE": (50, "ever"),
    "MEMORY": (55, "active"),
    "SKILL_WORKFLOW": (60, "active"),
    "ONBOARDING": (1, "active"),
    "SYSTEM": (1, "ever"),
}


@pytest.mark.parametrize("source", TriggerSource)
def test_source_determines_default_priority_and_scope(core, source):
    emitted = emit(core, source=source, dedup_key="key")

    stored = look(core, emitted.id)
    assert stored.source is source
    assert (stored.priority, stored.dedup_scope) == TABLE[source]


def test_source_table_has_a_row_for_every_source():
    assert {source: (line.priority, line.scope) for source, line in DEFAULTS.items()} == TABLE


def test_source_may_be_given_as_text(core):
    assert look(core, emit(core, source="MESSAGE").id).source is TriggerSource.MESSAGE


def test_unknown_source_is_refused_and_leaves_no_row(core):
    with pytest.raises(InvalidInput, match="source 'HEARTBEAT' is unknown; it must be one of MESSAGE, CONTINUATION"):
        emit(core, source="HEARTBEAT")

    assert core.rows("SELECT id FROM triggers") == []


def test_spec_overrides_the_defaults_of_its_source(core):
    emitted = emit(core, source="MEMORY", priority=7, dedup_key="key", dedup_scope="ever")

    stored = look(core, emitted.id)
    assert (stored.priority, stored.dedup_scope) == (7, DedupScope.EVER)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (turn_key("t1", 3), "turn:t1:3"),
        (wake_key("w1"), "wake:w1"),
        (resume_key("t1"), "resume:t1"),
        (scheduled_once_key("s1"), "scheduled-once:s1"),
        (scheduled_once_key("s1", 2), "scheduled-once:s1:2"),
        (scheduled_key("s1", NEW_YEAR + 0.75), "scheduled:s1:1767225600"),
        (living_ui_key("p1", "refresh"), "living_ui:p1:refresh"),
        (proactive_key("hourly", "2026-01-01T00"), "proactive:hourly:2026-01-01T00"),
        (memory_key("nightly"), "memory:nightly"),
        (onboarding_key(), "onboarding"),
        (system_key("restart", 7), "system:restart:7"),
    ],
)
def test_dedup_key_is_a_constant_prefix_and_a_distinguishing_part(core, key, text):
    assert key == text
    assert emit(core, source="CONTINUATION", dedup_key=key).created


@pytest.mark.parametrize("interval", [1, 30, 3600])
def test_recurring_slot_fires_once_and_the_next_slot_again(core, interval):
    """Intervals may be shorter than a minute, and a slot may be tried several times."""
    slots = [scheduled_key("s1", NEW_YEAR + n * interval) for n in (0, 0, 1, 1, 2)]

    created = [emit(core, source="SCHEDULED", dedup_key=slot).created for slot in slots]

    assert created == [True, False, True, False, True]


def test_slot_is_the_nominal_second_not_the_firing_moment(core):
    assert scheduled_key("s1", NEW_YEAR + 0.1) == scheduled_key("s1", NEW_YEAR + 0.9)
    assert scheduled_key("s1", NEW_YEAR) != scheduled_key("s2", NEW_YEAR)


@pytest.mark.parametrize("outcome", [None, HOPELESS])
def test_settled_one_time_schedule_never_fires_again(core, clock, outcome):
    first = emit(core, source="SCHEDULED", dedup_key=scheduled_once_key("s1"))
    run_one(core, outcome)
    clock.advance(hours=24 * 365)

    again = emit(core, source="SCHEDULED", dedup_key=scheduled_once_key("s1"))

    assert (again.id, again.created) == (first.id, False)
    assert emit(core, source="SCHEDULED", dedup_key=scheduled_once_key("s1", 1)).created


def test_resume_is_created_once_for_two_boots_and_again_after_its_run(core):
    first = emit(core, source="RESUME", dedup_key=resume_key("t1"))
    second_boot = emit(core, source="RESUME", dedup_key=resume_key("t1"))
    run_one(core)

    later_restart = emit(core, source="RESUME", dedup_key=resume_key("t1"))

    assert (second_boot.id, second_boot.created) == (first.id, False)
    assert later_restart.created


@pytest.mark.parametrize("source", ["RESUME", "LIVING_UI", "MEMORY", "ONBOARDING"])
def test_active_key_blocks_during_the_backoff_of_the_first(core, source):
    emit(core, source=source, dedup_key="key")
    run_one(core, Failed(code="AGENT_ERROR", message="", retryable=True))

    assert not emit(core, source=source, dedup_key="key").created


def test_proactive_slots_and_living_ui_kinds_have_distinct_keys(core):
    keys = [
        proactive_key("hourly", "10"),
        proactive_key("hourly", "11"),
        proactive_key("daily", "10"),
        living_ui_key("p1", "refresh"),
        living_ui_key("p1", "build"),
        living_ui_key("p2", "refresh"),
    ]

    created = [emit(core, dedup_key=key).created for key in [*keys, *keys]]

    assert created == [True] * 6 + [False] * 6


@pytest.mark.parametrize("key", [proactive_key, living_ui_key])
def test_dedup_key_prefix_has_no_colon_so_keys_stay_distinct(key):
    with pytest.raises(InvalidInput, match="has a colon"):
        key("a:b", "c")
    assert key("a", "b:c") == key("a", "b") + ":c"
