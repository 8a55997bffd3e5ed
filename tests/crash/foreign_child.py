"""The process of a life that shares its database with foreign SQLite programs, and these programs.

A foreign program is Python's `sqlite3` or the distribution's shell, each in its own process. It repeatedly opens the
file, executes one statement and closes the file: it reads, writes its own table, checkpoints or vacuums. The file
`foreign` has one line for each row that it committed, as `accepted` has one for each emit that returned.
"""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
from contextlib import closing

import anyio

from craftcore import Producer
from tests.crash.child import (
    QUIET,
    ROUND,
    ROUNDS,
    Journal,
    Life,
    _emit,
    _observe,
    an_app,
    forget_crashes,
    prepare,
    until_idle,
)

SHELL = shutil.which("sqlite3")
TURNS = 200
BUSY_SECONDS = 20

READ = "SELECT count(*) FROM triggers"
WRITE = "INSERT INTO foreign_rows (name) VALUES ('{name}')"
CREATE = "CREATE TABLE IF NOT EXISTS foreign_rows (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)"
OTHERS = (
    "PRAGMA wal_checkpoint(PASSIVE)",
    "PRAGMA wal_checkpoint(FULL)",
    "PRAGMA wal_checkpoint(RESTART)",
    "PRAGMA wal_checkpoint(TRUNCATE)",
    "VACUUM",
)
HARMLESS = ("locked", "busy", "no such table")
"""Parts of the error messages that a foreign program may get. Any other error is a fault."""


def live(life: Life) -> None:
    """Run a life. Returns only when nothing kills it."""
    anyio.run(_live, life, backend=life.backend)


async def _live(life: Life) -> None:
    _observe(life)
    forget_crashes(life.db)
    accepted, ran = Journal(life.folder / "accepted"), Journal(life.folder / "ran")
    config, chance = prepare(life)
    app = an_app(life, ran)
    async with app.running(life.db, config=config) as engine:
        for number in range(ROUNDS if life.ends != QUIET else 0):
            with Producer(life.db) as producer:  # a second connection of this process
                accepted.line(producer.emit("work", {}).id, life.number)
            async with anyio.create_task_group() as emitters:
                for one in range(ROUND):
                    emitters.start_soon(_emit, app, accepted, life, chance.random(), one)
            if number % 2:
                await until_idle(engine)
        await until_idle(engine)


def run_foreign_programs(life: Life, number: int) -> None:
    """Run one foreign program after another. The process leads a group, so that a kill also ends a running shell."""
    os.setsid()
    chance = random.Random(life.seed + number)
    foreign = Journal(life.folder / "foreign")
    for turn in range(TURNS):
        name = f"{life.number}-{number}-{turn}"
        statement = chance.choice([READ, WRITE, WRITE, WRITE, *OTHERS])
        by_shell = SHELL is not None and chance.random() < 0.3
        done = _in_shell(life, statement, name) if by_shell else _in_python(life, statement, name)
        if done and statement == WRITE:
            foreign.line(name)


def _in_python(life: Life, statement: str, name: str) -> bool:
    try:
        with closing(sqlite3.connect(f"file:{life.db}?mode=rw", uri=True, timeout=BUSY_SECONDS)) as connection:
            connection.isolation_level = None
            if not connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'audit_log'").fetchone()[0]:
                return False  # the engine has not created its tables
            connection.execute(CREATE)
            connection.execute(statement.format(name=name)).fetchall()
    except sqlite3.OperationalError as error:
        _require_harmless(life, str(error))
        return False
    return True


def _in_shell(life: Life, statement: str, name: str) -> bool:
    assert SHELL is not None
    ended = subprocess.run(
        [SHELL, "-bail", "-cmd", f".timeout {BUSY_SECONDS * 1000}", os.fspath(life.db), statement.format(name=name)],
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        _require_harmless(life, ended.stderr)
    return ended.returncode == 0


def _require_harmless(life: Life, error: str) -> None:
    assert any(word in error for word in HARMLESS), f"a foreign program of life {life.number} failed: {error}"
