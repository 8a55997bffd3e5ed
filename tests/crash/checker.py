"""The independent checker: the invariants of craftcore in plain SQL and three text files, without code of craftcore."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw

from craftcore.storage.transaction import Reader
from tests.crash.task_never import broken_invariants

CRASHES_OF_POISON = 3


@dataclass(slots=True, kw_only=True)
class Verdict:
    """The findings of the checker in one folder, by the number of the life where that is known."""

    accepted: int = 0
    poisoned: int = 0
    wrong: list[str] = field(default_factory=list)
    lost: Counter[int] = field(default_factory=Counter)
    doubled: Counter[int] = field(default_factory=Counter)
    interrupted: Counter[int] = field(default_factory=Counter)
    """Attempts that a kill interrupted, by the number of the killed life; each was run again."""


def check(folder: Path, life_of_pid: dict[int, int]) -> Verdict:
    """Compare the database with the journals. Call it when the last life ended idle."""
    connection = apsw.Connection(str(folder / "agent.db"), flags=apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(60_000)  # a foreign program that was killed just now may still hold a lock
    try:
        return _Check(folder, connection, life_of_pid).verdict
    finally:
        connection.close()


class _Check:
    def __init__(self, folder: Path, connection: apsw.Connection, life_of_pid: dict[int, int]) -> None:
        self.folder = folder
        self.connection = connection
        self.verdict = Verdict()
        self.triggers = {row["id"]: row for row in self.rows("SELECT * FROM triggers")}
        self.life_of_epoch = {
            row["epoch"]: life_of_pid.get(row["pid"], -1) for row in self.rows("SELECT epoch, pid FROM epochs")
        }
        self.file_is_sound()
        self.nothing_accepted_is_lost()
        self.everything_is_settled_once()
        self.records_are_whole_or_prefixes()
        self.nothing_runs_after_it_was_settled()
        self.lanes_run_one_at_a_time()

    def file_is_sound(self) -> None:
        for pragma in ("PRAGMA integrity_check", "PRAGMA foreign_key_check"):
            found = [row for row in self.connection.execute(pragma) if row != ("ok",)]
            self.add_faults(f"{pragma}: {found}" for _ in found[:1])
        self.add_faults(broken_invariants(Reader(self.connection)))

    def nothing_accepted_is_lost(self) -> None:
        for id, life in self.lines("accepted"):
            self.verdict.accepted += 1
            if id not in self.triggers:
                self.verdict.lost[int(life)] += 1
                self.add_faults([f"trigger {id}, accepted in life {life}, is gone"])
        keys = Counter(row["dedup_key"] for row in self.triggers.values() if row["dedup_key"] is not None)
        self.add_faults(f"key {key} has {count} rows" for key, count in keys.items() if count != 1)

    def everything_is_settled_once(self) -> None:
        successes = Counter(
            row["trigger_id"]
            for row in self.rows(
                """
                SELECT e.trigger_id
                  FROM executions AS e
                  JOIN events AS v ON v.execution_seq = e.seq AND v.type = 'FINAL_RESPONSE'
                 WHERE e.status = 'success'
                """
            )
        )
        cut_off = Counter(row["trigger_id"] for row in self.rows("SELECT * FROM executions WHERE ended_at IS NULL"))
        for id, row in self.triggers.items():
            match row["status"]:
                case "DONE":
                    wanted = 1
                case "DEAD" if row["reason"] == "poison" and cut_off[id] >= CRASHES_OF_POISON:
                    wanted = 0
                    self.verdict.poisoned += 1
                case _:
                    wanted = 0
                    self.add_faults(
                        [f"trigger {id} is {row['status']} ({row['reason']}), {cut_off[id]} attempts cut off"]
                    )
            if successes[id] != wanted:
                self.verdict.doubled[-1] += successes[id] > 1
                self.add_faults([f"trigger {id} is {row['status']} and has {successes[id]} successful records"])

    def records_are_whole_or_prefixes(self) -> None:
        events: dict[int, list[tuple[int, str]]] = defaultdict(list)
        for row in self.rows("SELECT execution_seq, seq, type FROM events ORDER BY execution_seq, seq"):
            events[row["execution_seq"]].append((row["seq"], row["type"]))
        starts: dict[str, list[int]] = defaultdict(list)
        for record in self.rows("SELECT * FROM executions ORDER BY seq"):
            stream = events.pop(record["seq"], [])
            numbers, types = [number for number, _ in stream], [type for _, type in stream]
            starts[record["trigger_id"]].append(int(record["id"].rpartition(".")[2]))
            final = types.count("FINAL_RESPONSE")
            if numbers != list(range(1, len(numbers) + 1)) or types[:1] != ["INTENT_RECEIVED"]:
                self.add_faults([f"record {record['id']}: its events are {stream}"])
            if record["ended_at"] is None:
                self.verdict.interrupted[self.life_of_epoch.get(record["epoch"], -1)] += 1
                if final or record["response_json"] is not None or record["status"] != "incomplete":
                    self.add_faults([f"record {record['id']} never ended, yet has a final response"])
            elif record["status"] in ("success", "error") and (final != 1 or types[-1] != "FINAL_RESPONSE"):
                self.add_faults([f"record {record['id']} is {record['status']} and its events are {types}"])
        self.add_faults([f"{len(events)} records are missing that have events"] if events else [])
        for id, row in self.triggers.items():
            if starts[id] != list(range(1, row["starts"] + 1)):
                self.add_faults([f"trigger {id} was started {row['starts']} times and has the records {starts[id]}"])

    def nothing_runs_after_it_was_settled(self) -> None:
        settled_before = {id: int(life) for id, life in self.lines("observed")}
        seen: set[tuple[str, str]] = set()
        for sign, id, start, life in self.lines("ran"):
            if sign != "+":
                continue
            row = self.triggers.get(id)
            if row is None:
                self.add_faults([f"the handler ran {id}, which is not in the table"])
                continue
            if id in settled_before and int(life) >= settled_before[id]:
                self.verdict.doubled[int(life)] += 1
                self.add_faults([f"life {life} ran {id}, which was settled on disk before it began"])
            if start == "?":
                continue
            if (id, start) in seen or int(start) > row["starts"]:
                self.verdict.doubled[int(life)] += 1
                self.add_faults(
                    [f"the handler ran {id} start {start} in life {life}; it was started {row['starts']} times"]
                )
            seen.add((id, start))
        ran = {id for sign, id, *_ in self.lines("ran")}
        self.add_faults(
            f"trigger {id} is DONE and no handler ever ran it"
            for id, row in self.triggers.items()
            if row["status"] == "DONE" and id not in ran
        )

    def lanes_run_one_at_a_time(self) -> None:
        inside: dict[tuple[str, str], str] = {}
        for sign, id, _, life in self.lines("ran"):
            row = self.triggers.get(id)
            if row is None or row["lane"] is None:
                continue
            place = (row["lane"], life)
            if sign == "-":
                inside.pop(place, None)
            elif inside.setdefault(place, id) != id:
                self.add_faults([f"life {life} ran {id} while {inside[place]} ran in the same lane {row['lane']}"])

    def add_faults(self, faults: Iterator[str] | list[str]) -> None:
        self.verdict.wrong.extend(faults)

    def lines(self, journal: str) -> Iterator[list[str]]:
        path = self.folder / journal
        return (line.split() for line in path.read_text().splitlines()) if path.exists() else iter(())

    def rows(self, sql: str) -> list[dict[str, Any]]:
        cursor = self.connection.execute(sql)
        first = cursor.fetchone()
        if first is None:
            return []
        names = [column[0] for column in cursor.get_description()]
        return [dict(zip(names, row, strict=True)) for row in (first, *cursor)]
