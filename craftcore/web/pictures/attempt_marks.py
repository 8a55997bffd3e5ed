"""The marks of attempts: their events in the order of their numbers, and the deaths that cut them off. Pure.

A record without an end, of a start without an end, is of an attempt that the daemon died with. Between its last event
and the next start, any code may have run. Events that the next start added to the record come after that.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from craftcore.diagnostics.tasks.task_history import Head, Start, TaskHistory
from craftcore.executions.model import EventType, Status
from craftcore.serialization.display import json_or_text
from craftcore.serialization.time_text import clock_time
from craftcore.tasks.turn_event_store import StreamRow
from craftcore.web.pictures.label import event_label, kind_of, latency_of
from craftcore.web.pictures.mark import Mark, MarkKind, Sense

ENDED_WITH_PROCESS = "the process ended"
"""The reason that a start writes of a call which the process before did not survive."""

OUTCOMES: dict[str, Sense] = {Status.SUCCESS: Sense.DONE, Status.ERROR: Sense.FAILED}


class Cut(NamedTuple):
    """The end of an attempt without a row of its own. `until` None: it lasts. `epoch` None: no start died with it."""

    until: float | None
    epoch: int | None


class AttemptMarks:
    """The marks of one history."""

    def __init__(self, history: TaskHistory) -> None:
        self._history = history
        self._starts = {start.epoch: start for start in history.starts}
        self._following = dict(zip([one.epoch for one in history.starts], history.starts[1:], strict=False))
        self._events: dict[str, list[StreamRow]] = defaultdict(list)
        for event in history.events:
            self._events[event.execution_id].append(event)
        self._clock = -math.inf
        self._last = {head.epoch: head.id for head in history.heads}
        self._cuts = {head.id: self._cut(place, head) for place, head in enumerate(history.heads)}

    def list_marks(self) -> Iterator[Mark]:
        """Yield the marks of all attempts, in order."""
        for head in self._history.heads:
            yield from self._attempt(head)

    def list_idle_deaths(self) -> Iterator[Mark]:
        """Yield the deaths that cut off no attempt of this task, at the moment at which they were found."""
        drawn = {cut.epoch for cut in self._cuts.values() if cut is not None}
        task, now = self._history.task, self._history.now
        last = max((head.epoch for head in self._history.heads), default=0)
        for start in self._history.starts:
            after = self._following.get(start.epoch)
            if start.ended_at is not None or start.epoch in drawn or (after is None and self._history.daemon_runs):
                continue
            found_at = now if after is None else after.started_at
            if task.ended_at is not None and start.epoch >= last and found_at >= task.ended_at:
                continue
            text = "no daemon runs: the last one died" if after is None else f"daemon died before {_time(found_at)}"
            yield Mark(
                kind=MarkKind.CRASH,
                meaning=Sense.UNKNOWN,
                row=f"epoch {start.epoch}",
                since=found_at,
                until=found_at,
                at=found_at,
                turn=None,
                attempt=None,
                lane="daemon",
                label=f"{text}; nothing of this task ran",
            )

    def _cut(self, place: int, head: Head) -> Cut | None:
        """Return how an attempt was cut off; None when it has its end, or still runs."""
        if head.ended_at is not None:
            return None
        heads, start = self._history.heads, self._starts.get(head.epoch)
        after = heads[place + 1].created_at if place + 1 < len(heads) else None
        if start is None or self._last[head.epoch] != head.id:  # a later one ran under the same daemon
            return Cut(after, None)
        if start.ended_at is not None:
            return Cut(start.ended_at, None)
        next_start: Start | None = self._following.get(head.epoch)
        if next_start is not None:
            return Cut(next_start.started_at, head.epoch)
        return None if self._history.daemon_runs else Cut(None, head.epoch)

    def _attempt(self, head: Head) -> Iterator[Mark]:
        events, cut = self._events[head.id], self._cuts[head.id]
        later = 0 if cut is None else self._count_later(events, cut)
        since = self._advance(head.created_at)
        marks = [self._event(event, head, since) for event in events[: len(events) - later]]
        if cut is None and head.ended_at is not None:
            until, meaning = self._advance(head.ended_at), OUTCOMES.get(head.status, Sense.WAITING)
        elif cut is None:
            until, meaning = max(since, self._clock, self._history.now), Sense.WORK
        else:
            until, meaning = self._clock, Sense.UNKNOWN
        yield Mark(
            kind=MarkKind.ATTEMPT,
            meaning=meaning,
            row=f"record {head.id}",
            since=since,
            until=until,
            at=head.created_at,
            turn=head.turn,
            attempt=head.id,
            lane=head.id,
            label=_attempt_label(head, cut),
            is_open=cut is None and head.ended_at is None,
        )
        yield from marks
        if cut is not None:
            yield self._cut_mark(head, cut)
        yield from [self._event(event, head, since) for event in events[len(events) - later :]]

    def _count_later(self, events: list[StreamRow], cut: Cut) -> int:
        """Return how many of the last events of a record were written by the start that found it."""
        if cut.epoch is None or cut.until is None:
            return 0
        later = 0
        for event in reversed(events):
            facts = json_or_text(event.payload_json)
            if isinstance(facts, dict):
                is_later = facts.get("reason") == ENDED_WITH_PROCESS
            else:  # it was stripped
                is_later = event.at >= cut.until
            if event.type != EventType.ACTIVITY_UNKNOWN or not is_later:
                break
            later += 1
        return later

    def _cut_mark(self, head: Head, cut: Cut) -> Mark:
        last = since = self._clock
        until = max(since, self._history.now) if cut.until is None else self._advance(cut.until)
        kind = MarkKind.LOST if cut.epoch is None else MarkKind.CRASH
        label = f"attempt {head.attempt} has no end: no record of what ran after {_time(last)}"
        if cut.epoch is not None and cut.until is not None:
            label = f"daemon died between {_time(last)} and {_time(cut.until)}; no record of what ran in between"
        elif cut.epoch is not None:
            label = f"daemon died after {_time(last)}, and none has started since"
        return Mark(
            kind=kind,
            meaning=Sense.UNKNOWN,
            row=f"record {head.id}" if cut.epoch is None else f"epoch {cut.epoch}",
            since=since,
            until=until,
            at=last,
            turn=head.turn,
            attempt=head.id,
            lane=head.id,
            label=label,
            is_open=cut.epoch is not None and cut.until is None,
        )

    def _event(self, event: StreamRow, head: Head, begin: float) -> Mark:
        facts = json_or_text(event.payload_json)
        until = self._advance(event.at)
        kind, meaning = kind_of(event.type)
        return Mark(
            kind=kind,
            meaning=meaning,
            row=f"event {event.execution_id} {event.seq}",
            since=max(begin, until - latency_of(event.type, facts)),
            until=until,
            at=event.at,
            turn=head.turn,
            attempt=head.id,
            lane=head.id,
            label=event_label(event.type, facts),
            facts=facts,
        )

    def _advance(self, moment: float) -> float:
        self._clock = max(self._clock, moment)
        return self._clock


def _attempt_label(head: Head, cut: Cut | None) -> str:
    if cut is not None:
        came_to = "no end"
    elif head.ended_at is None:
        came_to = "runs"
    else:
        came_to = head.error_code or head.status
    return f"attempt {head.attempt}: {came_to}"


def _time(moment: float) -> str:
    """Return `09:00:07`, UTC."""
    return clock_time(moment)[11:19]
