"""The independent checker of schedules: invariants in plain SQL and text files, with its own arithmetic.

Each schedule of the campaign fires at `origin + n * step`: intervals from their anchor, and `*/5` from 1970. So the
whole number n identifies an occurrence. The account of a schedule must name each n once, from the first to the mark.
"""

from __future__ import annotations

import struct
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import floor
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from craftcore.storage.transaction import Reader
from tests.crash.task_never import broken_invariants

FIVE_MINUTES = 300

DROPPED = ("paused at ", "removed", "no longer declared", "its schedule was changed", "fired before")
"""The reasons for which a buffered occurrence may never fire."""

Row = dict[str, Any]
Generation = tuple[str, int]
"""(schedule id, generation)"""


@dataclass(slots=True, kw_only=True)
class Verdict:
    """The findings of the checker in one folder. `lost` and `doubled` count occurrences, `triggers` the fired ones."""

    occurrences: int = 0
    triggers: int = 0
    one_time: int = 0
    skipped: int = 0
    poisoned: int = 0
    run_again: int = 0
    forgotten: int = 0
    lost: int = 0
    doubled: int = 0
    wrong: list[str] = field(default_factory=list)


class Grid(NamedTuple):
    """The occurrences of a schedule. `first` is the number of the first one that the account must contain."""

    origin: int
    step: int
    first: int

    def number(self, moment: float) -> int:
        """Return the number of the newest occurrence at or before a moment."""
        return floor((moment - self.origin) / self.step)

    def moment(self, number: int) -> float:
        return float(self.origin + number * self.step)


def check(folder: Path) -> Verdict:
    """Compare the database with the expected occurrences and with the journals. Call it after a LAST life."""
    connection = apsw.Connection(str(folder / "agent.db"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return _Check(folder, connection).verdict
    finally:
        connection.close()


class _Check:
    def __init__(self, folder: Path, connection: apsw.Connection) -> None:
        self.folder = folder
        self.connection = connection
        self.verdict = Verdict()
        self.schedules = {row["id"]: row for row in self.rows("SELECT * FROM schedules")}
        self.triggers = {row["id"]: row for row in self.rows("SELECT * FROM triggers WHERE schedule_id IS NOT NULL")}
        self.account = self.rows("SELECT * FROM schedule_occurrences ORDER BY schedule_id, generation, nominal_at, seq")
        self.deleted = {id: (status, " ".join(reason)) for id, status, *reason in self.lines("deleted")}
        self.ran = [(words[1], words[2], float(words[3])) for words in self.lines("ran") if words[0] == "+"]
        self.declared = {(id, int(generation)): words for id, generation, *words in self.lines("declared")}
        self.now, _, _ = struct.unpack("<ddd", (folder / "clock").read_bytes())
        self.timings: dict[Generation, tuple[str, str]] = {}
        self.marks: dict[Generation, float] = {}
        self.file_is_sound()
        self.no_mark_and_no_anchor_ever_moved_back()
        self.each_occurrence_is_accounted_for_once()
        self.each_that_fired_has_one_trigger_of_its_own()
        self.each_trigger_ran_and_settled()
        self.one_time_jobs_fired_once()
        self.each_start_fired_what_is_for_a_start()
        self.runs_are_counted()

    def file_is_sound(self) -> None:
        for pragma in ("PRAGMA integrity_check", "PRAGMA foreign_key_check"):
            found = [row for row in self.connection.execute(pragma) if row != ("ok",)]
            self.add_faults(f"{pragma}: {found}" for _ in found[:1])
        self.add_faults(broken_invariants(Reader(self.connection)))

    def no_mark_and_no_anchor_ever_moved_back(self) -> None:
        written = ("id", "generation", "high_water_at", "anchor_at", "step_seconds")
        now = [[str(row[name]) for name in written] for row in self.schedules.values()]
        for id, number, mark, anchor, step in [*(words[1:] for words in self.lines("marks")), *now]:
            key = (id, int(number))
            if float(mark) < self.marks.get(key, 0.0):
                self.add_faults([f"{id} was accounted for up to {self.marks[key]}, and later up to {mark}"])
            self.marks[key] = max(float(mark), self.marks.get(key, 0.0))
            if self.timings.setdefault(key, (anchor, step)) != (anchor, step):
                self.add_faults([f"{id} was anchored at {self.timings[key]}, and later at {(anchor, step)}"])

    def each_occurrence_is_accounted_for_once(self) -> None:
        lines: dict[Generation, list[Row]] = defaultdict(list)
        for row in self.account:
            if row["cause"] == "time":
                lines[row["schedule_id"], row["generation"]].append(row)
                was_buffered = (row["reason"] or "").startswith(("waits for ", *DROPPED))  # the clock was set back
                if row["decided_at"] < row["last_at"] and not was_buffered:
                    decided = f"{row['last_at']} was decided at {row['decided_at']}, before it"
                    self.add_faults([f"{row['schedule_id']}: {decided}"])
        for key in {**lines, **self.marks}:
            if self.schedules[key[0]]["kind"] not in ("once", "startup") and (grid := self.grid(key)):
                self.lines_have_no_gap(key, grid, lines[key])

    def lines_have_no_gap(self, key: Generation, grid: Grid, lines: list[Row]) -> None:
        """Require that the lines follow each other without a gap, from the first occurrence to the mark."""
        name = f"{key[0]} in generation {key[1]}"
        expected = grid.first
        for row in lines:
            first, last = grid.number(row["nominal_at"]), grid.number(row["last_at"])
            on_grid = (grid.moment(first), grid.moment(last), last - first + 1)
            if on_grid != (row["nominal_at"], row["last_at"], row["count"]):
                self.add_faults(
                    [f"{name}: {row['count']} from {row['nominal_at']} to {row['last_at']} is not on the grid"]
                )
            self.count_gap(name, grid, expected, first)
            if first < expected:
                self.verdict.doubled += expected - first
                self.add_faults([f"{name}: {grid.moment(first)} is accounted for twice"])
            expected = max(expected, last + 1)
            self.verdict.occurrences += row["count"]
            self.verdict.skipped += row["count"] if row["outcome"] == "skipped" else 0
        schedule = self.schedules[key[0]]
        if key in self.marks:  # a schedule that is resumed after its end has a mark after that end
            end = self.marks[key] if schedule["until_at"] is None else min(self.marks[key], schedule["until_at"])
            self.count_gap(name, grid, expected, grid.number(end) + 1)
        if key[1] == schedule["generation"]:
            mark = grid.number(schedule["high_water_at"])
            if expected > max(mark + 1, grid.first):
                self.add_faults([f"{name}: its mark is {schedule['high_water_at']}, and more is accounted for"])
            self.next_is(name, schedule, grid.moment(max(mark + 1, grid.first)))

    def next_is(self, name: str, schedule: Row, moment: float) -> None:
        """Require that a schedule continues at `moment`, the first occurrence without a line, unless it has ended."""
        match schedule["status"]:
            case "ACTIVE":
                if schedule["next_at"] != moment or moment <= self.now:
                    self.add_faults([f"{name} expects {schedule['next_at']} at {self.now}, and {moment} is next"])
            case "FINISHED":
                is_spent = schedule["max_runs"] is not None and schedule["runs"] >= schedule["max_runs"]
                if not is_spent and (schedule["until_at"] is None or moment <= schedule["until_at"]):
                    self.add_faults([f"{name} is FINISHED ({schedule['reason']}), and {moment} is to come"])

    def count_gap(self, name: str, grid: Grid, expected: int, found: int) -> None:
        if found > expected:
            self.verdict.lost += found - expected
            self.add_faults([f"{name}: {found - expected} from {grid.moment(expected)} on are in no line"])

    def each_that_fired_has_one_trigger_of_its_own(self) -> None:
        owners: dict[str, Row] = {}
        of_moment: dict[tuple[str, float], set[str]] = defaultdict(set)
        for row in self.account:
            if row["outcome"] == "buffered":
                self.add_faults([f"{row['schedule_id']}: {row['nominal_at']} waits forever"])
            if row["outcome"] != "fired":
                continue
            id, nominal = row["trigger_id"], row["nominal_at"]
            self.verdict.triggers += 1
            if owners.setdefault(id, row) is not row:
                self.add_faults(
                    [f"{row['schedule_id']}: {nominal} and {owners[id]['nominal_at']} have one trigger {id}"]
                )
            if row["cause"] in ("time", "backfill"):
                of_moment[row["schedule_id"], nominal].add(id)
            if id not in self.triggers and id not in self.deleted:
                self.verdict.lost += 1
                self.add_faults([f"{row['schedule_id']}: {nominal} fired trigger {id}, which is not there"])
            elif id in self.triggers:
                self.trigger_matches(self.triggers[id], row)
        for key, ids in of_moment.items():
            if len(ids) > 1:
                self.verdict.doubled += 1
                self.add_faults([f"{key[0]}: {key[1]} has the triggers {sorted(ids)}"])
        for id in {*self.triggers, *self.deleted} - set(owners):
            self.verdict.doubled += 1
            self.add_faults([f"trigger {id} is in no line of the account"])
        for id, schedule, nominal in self.ran:
            owner = owners.get(id)
            if owner is None:
                self.add_faults([f"a handler ran {id} of {schedule}, which no line names"])
            elif (owner["schedule_id"], _in_microseconds(owner["nominal_at"])) != (schedule, nominal):
                self.add_faults([f"a handler ran {id} as {nominal} of {schedule}, and its line is {owner}"])

    def trigger_matches(self, trigger: Row, row: Row) -> None:
        """Require that a trigger is for this occurrence, and was not due before it.

        A trigger of `run-now` or of a startup may be due earlier, when the clock was set back.
        """
        if (trigger["schedule_id"], trigger["nominal_at"]) != (row["schedule_id"], row["nominal_at"]):
            self.add_faults(
                [f"trigger {trigger['id']} is for {trigger['nominal_at']}, its line for {row['nominal_at']}"]
            )
        latest = row["nominal_at"] + self.schedules[row["schedule_id"]]["jitter"]
        earliest = 0.0 if row["cause"] in ("run-now", "startup") else row["nominal_at"]
        if not earliest <= trigger["fire_at"] <= latest:
            self.add_faults([f"trigger {trigger['id']} of {row['nominal_at']} was to start at {trigger['fire_at']}"])

    def each_trigger_ran_and_settled(self) -> None:
        begun = Counter(id for id, *_ in self.ran)
        self.verdict.run_again = sum(count - 1 for count in begun.values())
        ends = {**self.deleted, **{id: (row["status"], row["reason"]) for id, row in self.triggers.items()}}
        self.verdict.forgotten = len(set(self.deleted) - set(self.triggers))
        for id, (status, reason) in ends.items():
            self.verdict.poisoned += reason == "poison"
            removed = status == "DONE" and reason.endswith(" was removed")
            if (status, reason) not in (("DONE", "succeeded"), ("DEAD", "poison")) and not removed:
                self.add_faults([f"trigger {id} is {status} ({reason})"])
            # a poisoned trigger may have crashed three times before its handler began
            if not begun[id] and not removed and reason != "poison":
                self.verdict.lost += 1
                self.add_faults([f"trigger {id} is {status}, and no handler ever ran it"])

    def one_time_jobs_fired_once(self) -> None:
        lines: dict[Generation, list[Row]] = defaultdict(list)
        for row in self.account:
            if self.schedules[row["schedule_id"]]["kind"] == "once" and row["cause"] == "time":
                lines[row["schedule_id"], row["generation"]].append(row)
        for key, found in lines.items():
            if len(found) > 1:
                self.verdict.doubled += 1
                self.add_faults([f"{key[0]} in generation {key[1]} has {len(found)} lines"])
        ran: dict[tuple[str, float], set[str]] = defaultdict(set)
        for id, schedule_id, nominal in self.ran:
            ran[schedule_id, nominal].add(id)
        for id, row in self.schedules.items():
            if row["kind"] != "once":
                continue
            if len(ran[id, round(row["at"], 6)]) > 1:
                self.verdict.doubled += 1
                self.add_faults([f"{id} of {row['at']} ran as {sorted(ran[id, round(row['at'], 6)])}"])
            outcomes = [line["outcome"] for line in lines[id, row["generation"]]]
            self.verdict.one_time += outcomes == ["fired"]
            skips = row["skip_to_at"] is not None
            match row["status"]:
                case "FINISHED":
                    right = outcomes == ["fired"] or (skips and outcomes == ["skipped"])
                case "ACTIVE":
                    right = outcomes == [] and row["at"] > self.now
                case _:
                    right = len(outcomes) <= 1
            if not right:
                self.verdict.lost += 1
                why = f"{row['status']} ({row['reason']})"
                self.add_faults([f"{id} of {row['at']}, at {self.now}, is {why}, and its lines are {outcomes}"])

    def each_start_fired_what_is_for_a_start(self) -> None:
        """Require that a startup schedule fired once in each epoch."""
        starts = [row["started_at"] for row in self.rows("SELECT started_at FROM epochs ORDER BY epoch")]
        for id in (id for id, row in self.schedules.items() if row["kind"] == "startup"):
            lines = [row for row in self.account if row["schedule_id"] == id and row["cause"] == "startup"]
            if sorted(row["nominal_at"] for row in lines) != sorted(starts):
                self.verdict.lost += 1
                self.add_faults(
                    [f"{id} has lines for {[row['nominal_at'] for row in lines]}, and the starts were at {starts}"]
                )

    def runs_are_counted(self) -> None:
        """Require that the runs of a schedule are its fired occurrences. A dropped occurrence does not count."""
        runs: Counter[str] = Counter()
        for row in self.account:
            schedule = self.schedules[row["schedule_id"]]
            if row["cause"] in ("time", "startup") and row["generation"] == schedule["generation"]:
                runs[row["schedule_id"]] += row["outcome"] != "skipped"
        for id, row in self.schedules.items():
            if row["runs"] != runs[id]:
                self.add_faults([f"{id} has {row['runs']} runs, and {runs[id]} of its occurrences fired"])
            if row["max_runs"] is not None and runs[id] > row["max_runs"]:
                self.add_faults([f"{id} fired {runs[id]} times, and was to fire {row['max_runs']} times at most"])

    def grid(self, key: Generation) -> Grid | None:
        """Return the grid of a generation, or None when a kill came before its mark was recorded."""
        anchor, step = self.timings.get(key, ("None", "None"))
        written = self.declared.get(key)
        if anchor == "None" and written is not None:
            anchor, step = written[1:]
        if anchor != "None":
            return Grid(int(anchor), int(step), 1)
        schedule = self.schedules[key[0]]
        mark = float(written[0]) if written is not None else schedule["created_at"] if key[1] == 0 else None
        return None if mark is None else Grid(0, FIVE_MINUTES, floor(mark / FIVE_MINUTES) + 1)

    def add_faults(self, faults: Iterable[str]) -> None:
        self.verdict.wrong.extend(faults)

    def lines(self, journal: str) -> Iterator[list[str]]:
        path = self.folder / journal
        return (line.split() for line in path.read_text().splitlines()) if path.exists() else iter(())

    def rows(self, sql: str) -> list[Row]:
        cursor = self.connection.execute(sql)
        first = cursor.fetchone()
        if first is None:
            return []
        names = [column[0] for column in cursor.get_description()]
        return [dict(zip(names, row, strict=True)) for row in (first, *cursor)]


def _in_microseconds(moment: float) -> float:
    """Return a moment with the precision of the handler's datetime, which is lower than that of a row."""
    return datetime.fromtimestamp(moment, UTC).timestamp()
