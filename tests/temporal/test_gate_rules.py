"""The rules of a gate without a cluster: order, limits, and skipped triggers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from craftcore.temporal.workflow import gate_rules
from craftcore.temporal.workflow.gate_messages import Announcement, EnterCall, GateLimit, GateState, LeaveCall

LANE = GateLimit(id="lane", places=1)


def make_gate(limit: GateLimit = LANE) -> GateState:
    return GateState(limit=limit)


def announce(state: GateState, holder: str, **options: object) -> None:
    call = {"mark": f"mark {holder}", "priority": 10, "source": "IMMEDIATE", **options}
    gate_rules.announce(state, Announcement(holder=holder, **call))  # type: ignore[arg-type]


def enter(state: GateState, holder: str, entry: int = 1, **options: object) -> None:
    call = {"run": "run", "priority": 10, "source": "IMMEDIATE", "is_first": True, **options}
    gate_rules.enter(state, EnterCall(holder=holder, entry=entry, limit=state.limit, **call), 0.0)  # type: ignore[arg-type]


def leave(state: GateState, holder: str, **options: bool) -> None:
    gate_rules.leave(state, LeaveCall(holder=holder, **options), 0.0)


def list_passed(state: GateState) -> list[str]:
    return [holder for holder, answer in gate_rules.let_pass(state) if answer.superseded_by is None]


def test_announced_triggers_pass_in_the_order_of_announcement():
    state = make_gate()
    for holder in "abc":
        announce(state, holder)
    for holder in "cba":
        enter(state, holder)
    passed = []
    for _ in range(3):
        [holder] = list_passed(state)
        passed.append(holder)
        leave(state, holder)
    assert passed == ["a", "b", "c"]


def test_announced_trigger_that_has_not_arrived_blocks_the_others():
    state = make_gate()
    announce(state, "slow")
    enter(state, "fast")
    assert list_passed(state) == []
    gate_rules.forget(state, "slow", 0.0)
    assert list_passed(state) == ["fast"]


def test_trigger_that_is_due_later_blocks_no_other_and_comes_last():
    state = make_gate()
    announce(state, "later", is_later=True)
    enter(state, "now")
    enter(state, "later")
    assert list_passed(state) == ["now"]
    leave(state, "now")
    assert list_passed(state) == ["later"]


def test_lower_priority_number_passes_first():
    state = make_gate()
    enter(state, "work")
    enter(state, "message", priority=3)
    assert list_passed(state) == ["message"]


def test_withdrawal_with_another_mark_is_refused():
    state = make_gate()
    announce(state, "k:order")
    gate_rules.withdraw(state, "k:order", "mark of another emission")
    assert "k:order" in state.tickets
    gate_rules.withdraw(state, "k:order", "mark k:order")
    assert state.tickets == {}


def test_withdrawal_of_an_arrived_task_is_refused():
    state = make_gate()
    announce(state, "k:order")
    enter(state, "k:order")
    gate_rules.withdraw(state, "k:order", "mark k:order")
    assert list_passed(state) == ["k:order"]


def test_second_entry_finds_no_place_until_the_first_leaves():
    state = make_gate()
    enter(state, "a")
    enter(state, "b")
    assert list_passed(state) == ["a"]
    assert list_passed(state) == []
    leave(state, "a")
    assert list_passed(state) == ["b"]


def test_repeated_entry_after_a_crash_keeps_its_place():
    state = make_gate(GateLimit(id="limit", places=1, rate_count=2, rate_seconds=1.0))
    enter(state, "a")
    assert list_passed(state) == ["a"]
    enter(state, "b")
    enter(state, "a", entry=2)
    assert list_passed(state) == ["a"]


def test_repeated_entry_waits_for_a_token():
    state = make_gate(GateLimit(id="limit", rate_count=1, rate_seconds=1.0))
    enter(state, "a")
    assert list_passed(state) == ["a"]
    enter(state, "a", entry=2)
    assert list_passed(state) == []
    gate_rules.return_token(state)
    assert list_passed(state) == ["a"]


def test_earlier_entry_that_comes_late_is_ignored():
    state = make_gate()
    enter(state, "a", entry=2)
    assert list_passed(state) == ["a"]
    enter(state, "a", entry=1)
    assert list_passed(state) == []
    assert state.places["a"].entry == 2


def test_key_that_is_used_again_frees_the_place_of_its_last_use():
    state = make_gate()
    enter(state, "k:order", entry=5)
    assert list_passed(state) == ["k:order"]
    enter(state, "k:order", entry=1, run="another run")
    assert list_passed(state) == ["k:order"]
    assert state.places["k:order"].run == "another run"


def test_reported_start_counts_from_the_report():
    state = make_gate(GateLimit(id="limit", rate_count=1, rate_seconds=1.0))
    enter(state, "a")
    assert list_passed(state) == ["a"]
    gate_rules.note_start(state, "a", 2, 7.0)
    assert state.starts == []
    gate_rules.note_start(state, "a", 1, 7.0)
    leave(state, "a")
    assert state.starts == [7.0]


def test_unstarted_trigger_is_superseded_when_the_newer_trigger_arrives():
    state = make_gate()
    enter(state, "running")
    assert list_passed(state) == ["running"]
    announce(state, "old")
    announce(state, "other", source="SYSTEM")
    announce(state, "new", supersedes=True)
    for holder, options in (("old", {}), ("other", {"source": "SYSTEM"}), ("new", {"supersedes": True})):
        enter(state, holder, **options)
    answers = gate_rules.let_pass(state)
    assert [(holder, answer.superseded_by) for holder, answer in answers] == [("old", "new")]
    leave(state, "running")
    assert list_passed(state) == ["other"]


def test_trigger_is_withheld_until_the_newer_trigger_arrives_or_is_withdrawn():
    state = make_gate()
    announce(state, "old")
    announce(state, "new", supersedes=True)
    enter(state, "old")
    assert gate_rules.let_pass(state) == []
    gate_rules.withdraw(state, "new", "mark new")
    assert list_passed(state) == ["old"]


def test_task_that_has_begun_is_not_superseded():
    state = make_gate()
    enter(state, "new", supersedes=True)
    state = make_gate()
    enter(state, "goes on", entry=3, is_first=False)
    enter(state, "new", supersedes=True)
    assert list_passed(state) == ["goes on"]


def test_message_gets_the_id_of_the_task_that_waits_for_messages():
    state = make_gate()
    for holder, takes in (("first", True), ("second", False)):
        enter(state, holder)
        assert list_passed(state) == [holder]
        leave(state, holder, stays=True, takes_message=takes)
    enter(state, "message", is_message=True)
    [(_, answer)] = gate_rules.let_pass(state)
    assert answer.live == "first"
    enter(state, "message", entry=2, is_message=True, gone="first")
    [(_, answer)] = gate_rules.let_pass(state)
    assert answer.live == "second"
    enter(state, "message", entry=3, is_message=True, gone="second")
    [(_, answer)] = gate_rules.let_pass(state)
    assert answer.live is None


def test_second_live_task_of_a_session_takes_no_message_from_the_first():
    state = make_gate()
    for holder in ("first", "second"):
        enter(state, holder)
        assert list_passed(state) == [holder]
        leave(state, holder, stays=True, takes_message=True)
    enter(state, "message", is_message=True)
    [(_, answer)] = gate_rules.let_pass(state)
    assert answer.live == "first"


def test_message_that_is_emitted_again_comes_first():
    state = make_gate()
    announce(state, "new", priority=0)
    announce(state, "unread", is_first=True)
    enter(state, "new", priority=0)
    enter(state, "unread")
    assert list_passed(state) == ["unread"]


def test_full_gate_keeps_no_more_tickets(monkeypatch):
    monkeypatch.setattr(gate_rules, "WAITING_MAX", 2)
    state = make_gate()
    for holder in "abc":
        enter(state, holder)
    announce(state, "d")
    assert list(state.tickets) == ["a", "b"]


def test_oldest_live_task_is_forgotten_beyond_the_limit(monkeypatch):
    monkeypatch.setattr(gate_rules, "LIVE_MAX", 2)
    state = make_gate()
    for holder in "abc":
        leave(state, holder, stays=True)
    assert list(state.live) == ["b", "c"]


def test_holder_is_unsure_after_two_checks_unless_found_alive():
    state = make_gate()
    enter(state, "a")
    assert list_passed(state) == ["a"]
    assert gate_rules.list_unsure(state) == []
    assert gate_rules.list_unsure(state) == ["a"]
    gate_rules.note_alive(state, "a")
    assert gate_rules.list_unsure(state) == []


@pytest.mark.parametrize("prepare", [announce, enter], ids=["announced", "waits"])
def test_gate_with_a_ticket_is_not_empty(prepare):
    state = make_gate()
    assert gate_rules.is_empty(state)
    prepare(state, "a")
    assert not gate_rules.is_empty(state)


@settings(max_examples=200, deadline=None)
@given(
    places=st.one_of(st.none(), st.integers(1, 3)),
    rate=st.one_of(st.none(), st.integers(1, 3)),
    calls=st.lists(st.tuples(st.sampled_from(["enter", "start", "leave", "crash", "wait", "die"]), st.integers(0, 5))),
)
def test_limits_hold_for_any_order_of_calls(places, rate, calls):
    """A window of the rate begins at the report of a start, so two starts beyond the tokens are a window apart."""
    state = make_gate(GateLimit(id="limit", places=places, rate_count=rate, rate_seconds=10.0))
    now, entries, inside = 0.0, dict.fromkeys("012345", 0), set[str]()
    starts: list[float] = []
    for call, number in calls:
        now += 1.0
        holder = str(number)
        while state.starts and state.starts[0] + 10.0 <= now:
            gate_rules.return_token(state)
        match call:
            case "enter" if holder not in inside:
                entries[holder] += 1
                enter_at(state, holder, entries[holder], now)
            case "crash" if holder in inside:
                entries[holder] += 1
                enter_at(state, holder, entries[holder], now)
            case "start" if holder in inside:
                gate_rules.note_start(state, holder, entries[holder], now)
            case "leave" | "die":
                gate_rules.leave(state, LeaveCall(holder=holder), now)
                inside.discard(holder)
        for passed, answer in gate_rules.let_pass(state):
            assert answer.entry == entries[passed]
            inside.add(passed)
            starts.append(now)
        assert inside == set(state.places)
        assert places is None or len(inside) <= places
        if rate is not None:
            assert len(state.starts) + sum(place.has_token for place in state.places.values()) <= rate
    if rate is not None:
        assert all(later - first >= 10.0 for first, later in zip(starts, starts[rate:], strict=False))


def enter_at(state: GateState, holder: str, entry: int, now: float) -> None:
    call = EnterCall(holder=holder, run="run", entry=entry, limit=state.limit, priority=10, source="IMMEDIATE")
    gate_rules.enter(state, call, now)
