"""The process of a life beside foreign SQLite programs, and these programs.

A foreign program is Python's `sqlite3` or the distribution's shell, each in a process of its own. It opens the file,
does one thing and closes it, repeatedly: it reads, writes a table of its own, checkpoints or vacuums. The file
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
    forgive,
    prepared,
    until_idle,
)

SHELL = shutil.which("sqlite3")
TURNS = 200
BUSY_SECONDS = 20

READ = "SELECT count(*) FROM triggers"
WRITE = "INSERT INTO theirs (who) VALUES ('{who}')"
MAKE = "CREATE TABLE IF NOT EXISTS theirs (id INTEGER PRIMARY KEY, who TEXT NOT NULL UNIQUE)"
OTHERS = (
    "PRAGMA wal_checkpoint(PASSIVE)",
    "PRAGMA wal_checkpoint(FULL)",
    "PRAGMA wal_checkpoint(RESTART)",
    "PRAGMA wal_checkpoint(TRUNCATE)",
    "VACUUM",
)
HARMLESS = ("locked", "busy", "no such table")
"""What a foreign program may be told; anything else is an error of the campaign."""


def live(life: Life) -> None:
    """Live it. Returns only from a life that nobody killed."""
    anyio.run(_live, life, backend=life.backend)


async def _live(life: Life) -> None:
    _observe(life)
    forgive(life.db)
    accepted, ran = Journal(life.folder / "accepted"), Journal(life.folder / "ran")
    config, chance = prepared(life)
    app = an_app(life, ran)
    async with app.running(life.db, config=config) as engine:
        for number in range(ROUNDS if life.ends != QUIET else 0):
            with Producer(life.db) as beside:  # a second connection of this process, opened and closed beside the first
                accepted.line(beside.emit("work", {}).id, life.number)
            async with anyio.create_task_group() as emitters:
                for one in range(ROUND):
                    emitters.start_soon(_emit, app, accepted, life, chance.random(), one)
            if number % 2:
                await until_idle(engine)
        await until_idle(engine)


def meddle(life: Life, number: int) -> None:
    """Be one foreign program after the other. Whoever kills this kills its group, and with it a shell at work."""
    os.setsid()
    chance = random.Random(life.seed + number)
    foreign = Journal(life.folder / "foreign")
    for turn in range(TURNS):
        who = f"{life.number}-{number}-{turn}"
        statement = chance.choice([READ, WRITE, WRITE, WRITE, *OTHERS])
        by_shell = SHELL is not None and chance.random() < 0.3
        done = _in_shell(life, statement, who) if by_shell else _in_python(life, statement, who)
        if done and statement == WRITE:
            foreign.line(who)


def _in_python(life: Life, statement: str, who: str) -> bool:
    try:
        with closing(sqlite3.connect(f"file:{life.db}?mode=rw", uri=True, timeout=BUSY_SECONDS)) as connection:
            connection.isolation_level = None
            if not connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'audit_log'").fetchone()[0]:
                return False  # the engine has not made its tables
            connection.execute(MAKE)
            connection.execute(statement.format(who=who)).fetchall()
    except sqlite3.OperationalError as error:
        _require_harmless(life, str(error))
        return False
    return True


def _in_shell(life: Life, statement: str, who: str) -> bool:
    assert SHELL is not None
    ended = subprocess.run(
        [SHELL, "-bail", "-cmd", f".timeout {BUSY_SECONDS * 1000}", os.fspath(life.db), statement.format(who=who)],
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        _require_harmless(life, ended.stderr)
    return ended.returncode == 0


def _require_harmless(life: Life, said: str) -> None:
    assert any(word in said for word in HARMLESS), f"a foreign program beside life {life.number} was told: {said}"
