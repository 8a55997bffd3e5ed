"""The local activity of schedules: it looks what runs, and lets the rules decide."""

from __future__ import annotations

from dataclasses import replace

from temporalio import activity
from temporalio.client import Client

from craftcore.temporal.lookup_activities import is_open
from craftcore.temporal.schedules.schedule_rules import ScheduleRules, is_blocked
from craftcore.temporal.workflow.schedule_messages import SCHEDULE_ACTIVITY, ScheduleBook, ScheduleCall, ScheduleMove


class ScheduleActivity:
    """The moves of schedules on one worker."""

    def __init__(self, client: Client, rules: ScheduleRules) -> None:
        self._client = client
        self._rules = rules

    @activity.defn(name=SCHEDULE_ACTIVITY)
    async def move(self, call: ScheduleCall, book: ScheduleBook, now: float) -> ScheduleMove:
        """Return what is to be done.

        A task signals its end to its schedule. One that was ended by force does not, so a schedule that would wait
        for it looks.
        """
        over = [one for one in book.running if not await is_open(self._client, one)] if is_blocked(book) else []
        left = {one: task for one, task in book.running.items() if one not in over}
        move = self._rules.move(call, replace(book, running=left), now)
        return replace(move, over=over)
