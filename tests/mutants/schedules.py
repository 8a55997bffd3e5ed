"""Mutants of schedules: occurrences, the high-water mark, and catch-up."""

from __future__ import annotations

from tests.mutants.mutant import mutant

TICKS = ("tests/schedules/test_tick.py", "tests/schedules/test_ticks.py", "tests/schedules/test_occurrences.py")

SCHEDULES = (
    mutant(
        "re-anchored-interval",
        "an interval keeps its anchor",
        "schedules/recurrence/occurrences.py",
        "moment = anchor + step * max(0, (_round_to_second(instant) - anchor) // step + 1)",
        "moment = _round_to_second(instant) + step",
        *TICKS,
    ),
    mutant(
        "occurrence-fires-twice",
        "the high-water mark moves past fired occurrences",
        "schedules/tick_plan.py",
        "high_water_at=last, next_at=next_upcoming(schedule, after=last))",
        "high_water_at=mark, next_at=next_upcoming(schedule, after=mark))",
        *TICKS,
    ),
    mutant(
        "stale-tick-advances",
        "a tick advances only the schedule that it read",
        "schedules/store.py",
        "   AND high_water_at = :before\n",
        "",
        *TICKS,
        "tests/schedules/test_service.py",
    ),
    mutant(
        "tick-of-changed-schedule",
        "a tick does not advance a schedule that was declared again",
        "schedules/store.py",
        "   AND generation = :generation\n   AND status = 'ACTIVE'\n   AND high_water_at = :before",
        "   AND status = 'ACTIVE'\n   AND high_water_at = :before",
        *TICKS,
        "tests/schedules/test_service.py",
    ),
    mutant(
        "missed-are-not-accounted",
        "every skipped occurrence is on record",
        "schedules/tick_plan.py",
        "        skipped.append(missed)\n",
        "        pass\n",
        *TICKS,
    ),
    mutant(
        "schedule-calls-without-a-name",
        "a call of ctx.schedules returns only the result of the same call",
        "engine/turn/schedule_calls.py",
        'f"schedules.{name}"',
        '"schedules"',
        "tests/schedules/test_runtime_schedules.py",
    ),
)
