"""The rules of a gate, over its state in memory: who comes next, and who may pass.

    announced ──enter──▶ waits ──pass──▶ holds a place ──leave──▶ gone
        └ withdrawn, or no task is found at a check: dropped

A token is the right to one start within the seconds of a rate. No rule here compares moments: the workflow of the gate
calls `return_token` when the oldest start is that old, and `list_unsure` at each check.
"""

from __future__ import annotations

from craftcore.temporal.workflow.gate_messages import (
    Announcement,
    EnterCall,
    GateState,
    LeaveCall,
    Passed,
    Place,
    Ticket,
)

FIRST_PRIORITY = -1
"""The priority of a ticket that comes before all others. The priorities of triggers are not negative."""

WAITING_MAX = 20_000
"""Tickets of one gate. A task that finds it full asks again later, and its order is lost."""

UNSURE_MAX = 200
"""Tasks that one check looks at."""

LIVE_MAX = 1_000
"""Live tasks of a session that a gate knows, the newest."""


def announce(state: GateState, call: Announcement) -> None:
    """Keep a ticket for a trigger before its task is started. One that is there already stays as it is."""
    if call.holder in state.tickets or call.holder in state.places or len(state.tickets) >= WAITING_MAX:
        return
    ticket = Ticket(
        number=_take_number(state),
        entry=0,
        priority=FIRST_PRIORITY if call.is_first else call.priority,
        source=call.source,
        mark=call.mark,
        supersedes=call.supersedes,
        is_later=call.is_later,
    )
    state.tickets[call.holder] = ticket
    if call.supersedes:
        for older in _list_superseded(state, call.holder, ticket):
            older.withheld_for = call.holder


def withdraw(state: GateState, holder: str, mark: str) -> None:
    """Drop the ticket of an emission that started nothing."""
    ticket = state.tickets.get(holder)
    if ticket is not None and ticket.mark == mark and ticket.entry == 0:
        _drop_ticket(state, holder)


def enter(state: GateState, call: EnterCall, now: float) -> None:
    """Let a task wait for its entry. One that holds a place already waits before all others, for what it lacks."""
    state.limit = call.limit
    if call.gone is not None:
        state.live.pop(call.gone, None)
    place, ticket = state.places.get(call.holder), state.tickets.get(call.holder)
    if place is not None and place.run != call.run:  # the task of the place has ended, and its dedup key is used again
        forget(state, call.holder, now)
        place = ticket = None
    if place is not None:
        if place.entry >= call.entry:
            return
        _count_start(state, place, now)  # that entry may have started, and its worker died before the report
    if ticket is None:
        if len(state.tickets) >= WAITING_MAX and place is None:
            return
        ticket = Ticket(number=_take_number(state), entry=0, priority=call.priority, source=call.source)
        state.tickets[call.holder] = ticket
    if ticket.is_later:
        ticket.number, ticket.is_later = _take_number(state), False
    if ticket.priority != FIRST_PRIORITY:
        ticket.priority = call.priority
    ticket.run, ticket.entry, ticket.is_message = call.run, call.entry, call.is_message
    ticket.was_inside = not call.is_first
    if call.supersedes and call.is_first:
        for older in _list_superseded(state, call.holder, ticket):
            older.superseded_by = call.holder


def note_start(state: GateState, holder: str, entry: int, now: float) -> None:
    """Count the start of an entry from this moment on, and not from the moment at which it passed."""
    place = state.places.get(holder)
    if place is not None and place.entry == entry:
        _count_start(state, place, now)


def leave(state: GateState, call: LeaveCall, now: float) -> None:
    """Free the place of a task, and its ticket. Note whether the task lives on."""
    forget(state, call.holder, now, is_dead=not call.stays)
    if call.stays:
        state.live[call.holder] = call.takes_message
        if len(state.live) > LIVE_MAX:
            del state.live[next(iter(state.live))]


def forget(state: GateState, holder: str, now: float, *, is_dead: bool = True) -> None:
    """Drop the place and the ticket of a task. With `is_dead`, forget that it is a live task, too."""
    if (place := state.places.pop(holder, None)) is not None:
        _count_start(state, place, now)
    _drop_ticket(state, holder)
    if is_dead:
        state.live.pop(holder, None)


def return_token(state: GateState) -> None:
    """Stop counting the oldest start."""
    del state.starts[:1]


def let_pass(state: GateState) -> list[tuple[str, Passed]]:
    """Give places to those who come next. Return the answers, each with the workflow that it is for."""
    answers = []
    for holder, ticket in list(state.tickets.items()):
        if ticket.superseded_by is not None and ticket.entry:
            answers.append((holder, _answer(state, ticket, superseded_by=ticket.superseded_by)))
            del state.tickets[holder]
    while (next_holder := _find_next(state)) is not None:
        ticket = state.tickets.pop(next_holder)
        has_token = state.limit.rate_count is not None
        state.places[next_holder] = Place(run=ticket.run, entry=ticket.entry, has_token=has_token)
        live = _find_live(state, next_holder) if ticket.is_message else None
        answers.append((next_holder, _answer(state, ticket, live=live)))
    return answers


def is_empty(state: GateState) -> bool:
    """Return whether no task is inside or waits, and no start counts."""
    return not (state.places or state.starts or any(_is_in_order(ticket) for ticket in state.tickets.values()))


def list_remembered(state: GateState) -> list[str]:
    """Return the holders that an empty gate remembers: the live tasks of the session, and the tickets of what is due
    later."""
    return [*state.live, *state.tickets]


def list_unsure(state: GateState) -> list[str]:
    """Return the holders of places, and of announced tickets, that the call before this one has counted already.

    Their tasks may have died. Each call counts a check of every such holder.
    """
    unsure = []
    for holder, place in state.places.items():
        place.checks += 1
        if place.checks > 1:
            unsure.append(holder)
    for holder, ticket in state.tickets.items():
        if ticket.entry == 0 and _is_in_order(ticket):
            ticket.checks += 1
            if ticket.checks > 1:
                unsure.append(holder)
    return unsure[:UNSURE_MAX]


def note_alive(state: GateState, holder: str) -> None:
    """Note that a task was found alive: its checks are counted from the beginning."""
    for one in (state.places.get(holder), state.tickets.get(holder)):
        if one is not None:
            one.checks = 0


def _take_number(state: GateState) -> int:
    state.numbers += 1
    return state.numbers


def _count_start(state: GateState, place: Place, now: float) -> None:
    if place.has_token:
        place.has_token = False
        state.starts.append(now)


def _list_superseded(state: GateState, holder: str, ticket: Ticket) -> list[Ticket]:
    return [
        older
        for other, older in state.tickets.items()
        if other != holder and older.number < ticket.number and older.source == ticket.source and not older.was_inside
    ]


def _drop_ticket(state: GateState, holder: str) -> None:
    ticket = state.tickets.pop(holder, None)
    if ticket is not None and ticket.entry == 0 and ticket.supersedes:
        for other in state.tickets.values():
            if other.withheld_for == holder:
                other.withheld_for = None


def _find_next(state: GateState) -> str | None:
    """Return the holder that passes next. None: there is no token or no place, or the first ticket is not ready."""
    limit = state.limit
    has_token = limit.rate_count is None or limit.rate_count > _count_tokens(state)
    if not has_token or not state.tickets:
        return None
    with_place = [(ticket.number, holder) for holder, ticket in state.tickets.items() if holder in state.places]
    if with_place:
        return min(with_place)[1]
    if limit.places is not None and len(state.places) >= limit.places:
        return None
    in_order = [
        (ticket.priority, ticket.number, holder) for holder, ticket in state.tickets.items() if _is_in_order(ticket)
    ]
    if not in_order:
        return None
    *_, holder = min(in_order)
    ticket = state.tickets[holder]
    return None if ticket.entry == 0 or ticket.withheld_for is not None else holder


def _is_in_order(ticket: Ticket) -> bool:
    return not ticket.is_later and ticket.superseded_by is None


def _count_tokens(state: GateState) -> int:
    held = sum(place.has_token for place in state.places.values())
    return held + len(state.starts)


def _find_live(state: GateState, holder: str) -> str | None:
    """Return the oldest live task that waits for a message, or else the oldest."""
    others = [(not takes, number, task) for number, (task, takes) in enumerate(state.live.items()) if task != holder]
    return min(others)[2] if others else None


def _answer(state: GateState, ticket: Ticket, *, superseded_by: str | None = None, live: str | None = None) -> Passed:
    return Passed(gate=state.limit.id, run=ticket.run, entry=ticket.entry, superseded_by=superseded_by, live=live)
