"""A database with records in every state, written by an engine, an operator and retention.

closed    in the chain, some with bodies in `blobs`, one with steps and an irreversible action
stripped  in the chain, without its bodies, which retention removed
open      without an end, one of them with its envelope in `blobs`
before    closed by a version without a chain

Retention has removed the first record of the chain and the first row of the audit log.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import apsw

from craftcore import App, Call, TaskContext
from craftcore.audit.model import Actor
from craftcore.audit.store import audit
from craftcore.executions.chain.head import Head
from craftcore.executions.chain.verify import Verification
from craftcore.executions.chain.verify_rules import Fault
from craftcore.executions.recorder import AttemptInfo, Recorder, Routed
from craftcore.retention.body_store import STRIP
from craftcore.storage.transaction import Reader, Transaction
from craftcore.triggers.settlement import Outcome, Released, Succeeded
from tests.support.damage import drop_guards
from tests.support.engine_harness import lab
from tests.support.event_rows import move_events_to_rows
from tests.support.fakes import NEW_YEAR, VirtualClock, VirtualCore
from tests.support.trigger_steps import BROKEN, emit, start_one

LARGE = "é" * 12_000
"""A value whose JSON is too long for the row of a record."""
GREET = Routed("greet", "explicit workflow")
ADA = Actor(uid=1000, name="ada")


def an_app() -> App:
    app = App("recorded")

    @app.action("bank.pay", irreversible=True)
    async def pay(call: Call, *, amount: int) -> str:
        return f"paid {amount}"

    @app.workflow("echo")
    async def echo(ctx: TaskContext, text: str) -> str:
        return text

    @app.workflow("fails", max_attempts=1)
    async def fails(ctx: TaskContext) -> None:
        raise ValueError("it never works")

    @app.workflow("works")
    async def works(ctx: TaskContext) -> Any:
        first = await ctx.step("first", str.upper, "a")
        paid = await ctx.act(pay, amount=3)
        await ctx.emit("echo", {"text": "from within"})
        await ctx.sleep(3600)
        return [first, paid, await ctx.step("second", str.upper, "b")]

    return app


def record_everything(folder: Path) -> Path:
    """Create the database, and return the path of its closed file."""
    clock = VirtualClock()
    anyio.run(_live, folder, clock)
    core = VirtualCore(folder / "agent.db", clock)
    _by_hand(core)
    core.do(_retain)
    core.close()
    return core.database.path


async def _live(folder: Path, clock: VirtualClock) -> None:
    app = an_app()
    async with lab(app, folder, clock=clock) as it:
        await it.settled((await app.emit("echo", {"text": "the first goes"})).id)
        works = await app.emit("works")
        await it.waiting(works.id)
        await it.ended((await app.emit("echo", {"text": LARGE})).id)
        await it.ended((await app.emit("fails")).id)
        await it.ended((await app.emit("echo", {"text": "stripped"}, session_id="strip")).id)
        clock.advance(hours=2)
        it.engine.ring(schedules=True)
        await it.ended(works.id)
        await it.idle()


def _by_hand(core: VirtualCore) -> None:
    recorder = Recorder()
    outcomes: list[Outcome] = [Succeeded(result_json="1"), BROKEN, Released(reason="shutdown")]
    for n, outcome in enumerate(outcomes):
        emit(core, id=f"closed-{n}", payload={"n": n})
        [record] = core.do(recorder.open_all, 1, [AttemptInfo(start_one(core), GREET)])
        core.do(recorder.close_all, [(record, outcome)])
    emit(core, id="before")
    [record] = core.do(recorder.open_all, 1, [AttemptInfo(start_one(core), GREET)])
    core.do(_close_as_it_once_was, record.seq)
    for trigger_id, payload in (("open-0", {}), ("open-1", {"text": LARGE}), ("open-2", {"n": 2})):
        emit(core, id=trigger_id, payload=payload)
        core.do(recorder.open_all, 1, [AttemptInfo(start_one(core), GREET)])
    for n in range(4):
        core.do(audit, ADA, "task cancel", f"task-{n}", reason="enough", details={"n": n, "by": "é"})


def _close_as_it_once_was(tx: Transaction, seq: int) -> None:
    tx.run(
        """
        UPDATE executions
           SET ended_at = :now, status = 'success', replayable = 1, replayable_reason = NULL, latency_ms = 1.0,
               response_json = '{"metadata":{},"payload":1,"status":"success"}'
         WHERE seq = :seq
        """,
        now=tx.now,
        seq=seq,
    )
    tx.run("UPDATE record_chain SET unchained_to = :seq", seq=seq)


def _retain(tx: Transaction) -> None:
    """Strip one record, and remove the first record and the first audit row."""
    [stripped] = tx.fetch_all(
        "SELECT seq FROM executions WHERE envelope_json LIKE '%\"strip\"%' AND response_json LIKE '%stripped%'"
    )
    assert tx.run(STRIP, now=tx.now, seq=stripped["seq"]) == 1
    remove_up_to(tx, 1)
    tx.run(
        "UPDATE record_chain SET (audit_anchor_seq, audit_anchor_hash) = (SELECT 1, hash FROM audit_log WHERE seq = 1)"
    )
    tx.run("DELETE FROM audit_log WHERE seq = 1")


def remove_up_to(tx: Transaction, chain_seq: int) -> None:
    """Remove the oldest records of the chain, as retention does."""
    removed_rows = tx.fetch_all("SELECT seq FROM executions WHERE chain_seq <= :chain_seq", chain_seq=chain_seq)
    tx.run(
        """
        UPDATE record_chain
           SET removed = removed + :count,
               (anchor_seq, anchor_hash) = (SELECT chain_seq, record_hash FROM executions WHERE chain_seq = :chain_seq)
        """,
        count=len(removed_rows),
        chain_seq=chain_seq,
    )
    for row in removed_rows:
        tx.run("DELETE FROM event_rows WHERE execution_seq = :seq", seq=row["seq"])
        tx.run("DELETE FROM blobs WHERE execution_seq = :seq", seq=row["seq"])
        tx.run("DELETE FROM executions WHERE seq = :seq", seq=row["seq"])


class Unguarded:
    """A copy without SQL triggers, CHECKs and foreign keys. Each change is rolled back after its use.

    `in_rows`: all events are rows, as in earlier versions.
    """

    def __init__(self, sound: Path, folder: Path, *, in_rows: bool = True) -> None:
        path = folder / "unguarded.db"
        path.write_bytes(sound.read_bytes())
        self.connection = apsw.Connection(str(path))
        drop_guards(self.connection)
        self.connection.pragma("ignore_check_constraints", True)
        if in_rows:
            move_events_to_rows(self.connection.execute)
        self.connection.pragma("foreign_keys", False)
        self.reader = Reader(self.connection)

    @contextmanager
    def changed(self, *statements: str, **params: Any) -> Iterator[Reader]:
        """Change the file within the block; every statement must change a row."""
        self.connection.execute("BEGIN")
        try:
            for statement in statements:
                self.connection.execute(statement, params)
                assert self.connection.changes() > 0, statement
            yield self.reader
        finally:
            self.connection.execute("ROLLBACK")

    def faults(self, *statements: str, before: Head | None = None, **params: Any) -> list[Fault]:
        """Return the faults that verify finds after these statements."""
        with self.changed(*statements, **params) as reader:
            return list(Verification(reader, NEW_YEAR, before).faults())

    def head(self, *statements: str) -> Head:
        """Return the head after these statements, despite any fault."""
        with self.changed(*statements) as reader:
            verification = Verification(reader, NEW_YEAR)
            for _ in verification.faults():
                pass
            assert verification.head is not None
            return verification.head
