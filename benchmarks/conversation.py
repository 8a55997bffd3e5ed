"""A conversation of 5,000 turns: the cost of its last hundred turns against its first, and how the file grows."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import apsw

from benchmarks.engine import config
from craftcore import App, Continue, TaskContext
from craftcore.config import TaskSettings
from craftcore.engine.engine import Engine
from craftcore.services import Services
from craftcore.storage.transaction import Transaction

TURNS, BLOCK = 5_000, 100
KEPT, WINDOW = 400, 50  # from the second block on, each turn removes as many messages as it appends
TEXT = "a line of a conversation, of which there are many " * 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnCost:
    """The cost of a turn in a block of turns, on average. `bytes`: of the file without free pages, after the block."""

    statements: float
    rows: float
    commits: float
    cpu_seconds: float
    bytes: int


async def talk(path: Path, turns: int, *, block: int = BLOCK, kept: int = KEPT, is_one_task: bool) -> list[TurnCost]:
    """Send messages, each after the answer to the one before. Return the cost of each block of turns.

    `is_one_task`: one task takes all messages; else each message has a task of its own.
    """
    app = App("conversation")

    @app.workflow("chat", sources=["MESSAGE"])
    async def chat(ctx: TaskContext[int], text: str) -> Any:
        window = await ctx.history.last(WINDOW)
        await ctx.history.append({"role": "user", "text": text})
        answer = await ctx.step("model", complete, len(window))
        await ctx.history.append(
            {"role": "model", "call": "look"}, {"role": "tool", "text": TEXT}, {"role": "model", "text": answer}
        )
        return Continue((ctx.state or 0) + 1, on="message") if is_one_task else answer

    settings = replace(config(4), tasks=TaskSettings(history_messages=kept))
    costs = []
    async with app.running(path, config=settings) as engine:
        done, counts = 0, Counts(engine)
        before = await counts.read()
        for start in range(0, turns, block):
            began = time.process_time()
            for _ in range(block):
                await app.emit(None, {"text": TEXT}, source="MESSAGE", session_id="ada")
                done += 2 if is_one_task and done else 1  # its delivery, and its turn
                while engine.counts["DONE"] < done:
                    await engine.wait_for_settle()
            seconds, after = time.process_time() - began, await counts.read()
            statements, rows, commits = ((new - old) / block for new, old in zip(after, before, strict=True))
            before = after
            costs.append(
                TurnCost(
                    statements=statements,
                    rows=rows,
                    commits=commits,
                    cpu_seconds=seconds / block,
                    bytes=used_bytes(path, settings),
                )
            )
            print(f"\r  {start + block:,} turns", end="", file=sys.stderr, flush=True)
    print("\r", end="", file=sys.stderr)
    return costs


class Counts:
    """The statements, row writes and commits of a writer, counted on its own thread while the engine runs."""

    def __init__(self, engine: Engine) -> None:
        self._writer = engine.writer
        self._statements = 0

    async def read(self) -> tuple[int, int, int]:
        """So many until now."""
        return await self._writer.commit(self._read)

    def _read(self, tx: Transaction) -> tuple[int, int, int]:
        self._writer.group_commit.connection.trace_v2(apsw.SQLITE_TRACE_STMT, self._count)
        return self._statements, tx.rows_written, self._writer.group_commit.commits

    def _count(self, event: dict[str, Any]) -> None:
        self._statements += not event["trigger"]  # a trigger of the schema is part of its statement


async def complete(messages: int) -> str:
    return f"{messages} messages: {TEXT}"


def used_bytes(path: Path, settings: Any) -> int:
    """The bytes of the database without its free pages."""
    services = Services(path, settings)
    size: int = services.read(lambda reader: reader.fetch_value(USED))
    services.close()
    return size


USED = """
SELECT (pages.page_count - free.freelist_count) * sizes.page_size
  FROM pragma_page_count() AS pages, pragma_freelist_count() AS free, pragma_page_size() AS sizes
"""


def state_and_messages(path: Path) -> tuple[int, int, int]:
    """The bytes of the largest state, how many messages are kept, and how many of them may begin a window."""
    services = Services(path, config())
    row: dict[str, int] | None = services.read(
        lambda reader: reader.fetch_one(
            """
            SELECT (SELECT max(octet_length(state_json)) FROM tasks) AS state,
                   count(*)                                          AS kept,
                   total(begins)                                     AS units
              FROM session_messages
            """
        )
    )
    services.close()
    assert row is not None
    return row["state"], row["kept"], int(row["units"])


def mean(costs: list[TurnCost], part: Callable[[TurnCost], float]) -> float:
    return sum(map(part, costs)) / len(costs)


def main() -> None:
    """Hold a conversation in both designs. The first block warms up the program and the caches."""
    for name, is_one_task in (("one task for the session", True), ("one task for each message", False)):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "bench.db"
            costs = asyncio.run(talk(path, TURNS, is_one_task=is_one_task))
            state, kept, _ = state_and_messages(path)
        first, last = costs[1], costs[-1]
        growth = [after.bytes - before.bytes for before, after in pairwise(costs)]
        middle = len(growth) // 2
        early, late = growth[1:middle], growth[middle:]
        slow = mean(costs[-5:], lambda cost: cost.cpu_seconds) / mean(costs[1:6], lambda cost: cost.cpu_seconds)
        print(f"  {name}")
        print(f"    state after {TURNS:,} turns             {state:10,} bytes")
        print(f"    messages kept, of {4 * TURNS:,}           {kept:10,}")
        print(f"    statements of a turn, last of first   {last.statements / first.statements:10.3f}")
        print(f"    rows written in a turn, the same      {last.rows / first.rows:10.3f}    ({last.rows:.1f})")
        print(f"    commits of a turn, the same           {last.commits / first.commits:10.3f}    ({last.commits:.1f})")
        print(f"    processor of a turn, 500 of 500       {slow:10.3f}")
        print(f"    growth of the file, late of early     {sum(late) / len(late) / (sum(early) / len(early)):10.3f}")


if __name__ == "__main__":
    main()
