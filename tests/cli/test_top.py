"""`craftcore top`: its queries, its sections, its layout on a terminal, and its keys."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from craftcore.cli.session import Session
from craftcore.cli.top.command import Sampler
from craftcore.cli.top.layout import Line, cut, frame
from craftcore.cli.top.model import Rates, Section, View, fit_to_terminal, rates, view
from craftcore.daemon.lock import DaemonLock
from craftcore.diagnostics.top import (
    DEAD,
    FAILED,
    FAILED_SINCE,
    NEXT_SCHEDULES,
    NEXT_TRIGGERS,
    RUNNING,
    list_due_next,
    read_top,
)
from craftcore.serialization.display import format_bytes
from tests.support.backups import ask
from tests.support.fakes import VirtualCore
from tests.support.idle_database import an_app, at_rest
from tests.support.populated_database import NOON
from tests.support.processes import PATIENCE, craftcore, environment
from tests.support.trigger_steps import claim_one, emit, start
from tests.support.warm_parent import WarmProcess
from tests.support.warm_parent import start as start_program
from tests.triggers.test_claim_plans import fill, steps_of, undone

HOSTILE = "\x1b[2J\x1b]0;owned\x07\nline two\u202e\x85 \\ 你好"


def a_session(path: Path) -> Session:
    session = Session({})
    session.db = str(path)
    return session


# Its queries


def test_top_frame_has_a_row_of_every_section(cli, here):
    shown = cli("top", "--once")

    assert shown.code == 0
    lines = shown.out.splitlines()
    assert lines[0].startswith("down: no daemon runs on ")
    assert "also everything is held: it was restored. Look at it, then: craftcore release" in lines
    assert {"due next", "asked 2", "dead 1", "in doubt 1"} <= set(lines)


def test_top_without_a_terminal_prints_a_single_frame(cli, here):
    assert cli("top").out == cli("top", "--once").out


def test_top_document_has_every_section(cli, here):
    document = cli("--json", "top").json

    assert list(document) == [
        *(
            "verdict",
            "ok",
            "reasons",
            "now",
            "now_iso",
            "database",
            "counts",
            "oldest_due_seconds",
            "bytes",
            "wal_bytes",
        ),
        *("in_doubt", "failed_lately", "running", "cut_off", "due_next", "inbox", "questions", "failed"),
        *("dead_letters", "rates"),
    ]
    assert document["rates"] is None
    assert [row["error"] for row in document["dead_letters"]] == ["AGENT_UNAVAILABLE"]
    assert document["inbox"][-1]["question"] == "Send it?"
    assert document["due_next"][0].keys() == {"due_at", "due_at_iso", "kind", "id", "workflow", "source"}
    assert {row["kind"] for row in document["due_next"]} == {"trigger", "schedule"}
    assert document["in_doubt"]["oldest"]["action"] == "bank.pay"


def test_due_next_is_ordered_by_time_and_ignores_priority(database, clock):
    core = VirtualCore(database, clock)
    wanted = [emit(core, at=clock.now() + wait, priority=90 - wait).id for wait in range(5)]

    found = read_top(a_session(database).core()).document["due_next"]

    assert [row["id"] for row in found] == wanted


def test_running_work_is_shown_with_attempt_and_start_time(cli, database, clock):
    core = VirtualCore(database, clock)
    emitted = emit(core)
    start(core, claim_one(core))
    emit(core, workflow=None, source="MESSAGE")
    clock.advance(90)
    start(core, claim_one(core))
    clock.advance(30)

    with DaemonLock.acquire(database, pid=os.getpid(), host="here", now=0.0):
        found = cli("--json", "top").json["running"]
        out = cli("top", "--once").out

    assert (found[0]["id"], found[0]["workflow"], found[0]["attempt"]) == (emitted.id, "greet", 1)
    assert [clock.now() - row["started_at"] for row in found] == [120, 30]
    assert "running 2\ngreet" in out
    assert "(MESSAGE)  " in out


def test_rates_count_work_settled_between_two_looks(tmp_path):
    path = tmp_path / "agent.db"
    looks = Sampler(a_session(path))

    async def work(app: Any) -> None:
        for name in ("fails", "fails", "count"):
            await app.emit(name)

    at_rest(path, work)
    first = looks.document()
    before = read_top(a_session(path).core())
    at_rest(path, work)
    after = read_top(a_session(path).core(), before)
    second = looks.document()

    assert (after.ended - before.ended, after.failed) == (7, 2)  # two turns of each failing task, three of `count`
    assert first["rates"] is None
    assert isinstance(second["rates"], dict)
    rates = second["rates"]
    assert round(rates["settled_per_second"] * rates["seconds"]) == 7
    assert round(rates["failed_per_second"] * rates["seconds"]) == 2
    assert read_top(a_session(path).core(), after).failed == 0


def test_rates_are_never_negative_after_a_restore():
    assert rates(10, 4, 0, 2.0) == Rates(2.0, 0.0, 0.0)
    assert rates(10, 30, 5, 2.0) == Rates(2.0, 10.0, 2.5)
    assert rates(10, 30, 5, 0.0) is None


def test_top_queries_use_an_index(core):
    asked = {
        RUNNING: (9,),
        DEAD: (9, 9),
        FAILED: (9, 9),
        FAILED_SINCE: (9, 0),
        NEXT_TRIGGERS: (5, 9, 9),
        NEXT_SCHEDULES: (9,),
    }
    with core.reading() as reader:
        plans = [
            row[3] for sql, values in asked.items() for row in reader.fetch_tuples("EXPLAIN QUERY PLAN " + sql, values)
        ]

    touching = [step for step in plans if any(table in step for table in ("triggers", "executions", "schedules"))]
    assert len(touching) == 7
    assert [step for step in touching if " INDEX " not in step] == []


def test_top_cost_does_not_grow_with_the_number_of_waiting_triggers(core):
    """The test excludes the count of waiting triggers, which `status` also reads."""

    def cost(many: int) -> int:
        with undone(core) as tx:
            fill(tx, "soon-", fire_at=core.clock.now(), many=many)
            return steps_of(tx, lambda: list_due_next(tx))

    assert cost(20_000) == cost(1_000)


def test_top_without_a_database_exits_10_and_creates_none(cli, database):
    assert cli("top", "--once").code == 10
    assert not database.exists()


@pytest.mark.parametrize("given", ["0", "nan", "-1", "2h", "inf", "soon"])
def test_invalid_top_interval_is_refused(cli, here, given):
    refused = cli("top", "--interval", given)

    assert (refused.code, refused.out) == (64, "")
    assert repr(given) in refused.err


def test_top_without_rich_names_the_extra_and_json_still_works(cli, here, monkeypatch):
    for name in [name for name in sys.modules if name == "rich" or name.startswith("rich.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "craftcore.cli.top.layout", raising=False)
    monkeypatch.setitem(sys.modules, "rich", None)

    refused = cli("top", "--once")

    assert (refused.code, refused.out) == (78, "")
    assert "top needs rich: pip install 'craftcore[top]'" in refused.err
    assert cli("--json", "top").code == 0


# Its frame

FOUND: dict[str, Any] = {
    "verdict": "running: 2 at work, 3 due, 12 dead letters",
    "reasons": [],
    "ok": True,
    "now": NOON,
    "counts": {"due": 3, "later": 1200, "claimed": 0, "running": 2, "dead": 12, "cut_off": 0},
    "failed_lately": {"count": 0, "newest_code": None},
    "failed": [],
    "cut_off": [],
    "oldest_due_seconds": 12.0,
    "bytes": 4_123_456,
    "wal_bytes": 32_768,
    "running": [
        {"workflow": "brief", "source": "SCHEDULED", "id": "0192-a", "started_at": NOON - 7200, "attempt": 1},
        {"workflow": None, "source": "MESSAGE", "id": "0192-b", "started_at": NOON - 0.25, "attempt": 3},
    ],
    "due_next": [
        {"due_at": NOON - 12, "kind": "trigger", "id": "0192-c", "workflow": "brief", "source": "IMMEDIATE"},
        {"due_at": NOON + 3600, "kind": "schedule", "id": "nightly", "workflow": "backup", "source": "SCHEDULED"},
    ],
    "questions": 1,
    "inbox": [{"created_at": NOON - 60, "id": "0192-d", "workflow": "brief", "question": "Send\nit? " + "x" * 100}],
    "dead_letters": [
        {"error": "AGENT_UNAVAILABLE", "count": 11, "newest_at": NOON - 5},
        {"error": None, "count": 1, "newest_at": NOON - 86_400},
    ],
    "in_doubt": {
        "count": 2,
        "oldest": {"action": "bank.pay", "first_call_at": NOON - 600, "key": "activity:0192-e:1.1"},
    },
}
GOLDEN = """\
running: 2 at work, 3 due, 12 dead letters
due 3  later 1,200  claimed 0  running 2  dead 12  the oldest due since 12 s
settled 4.5/s  failed 0.5/s  file 4.1 MB, WAL 32.8 kB  2026-11-21 12:00:00Z

running 2
brief      0192-a  for 2 h    attempt 1
(MESSAGE)  0192-b  for 0.2 s  attempt 3

due next
12 s ago   trigger   0192-c   brief
in 60 min  schedule  nightly  backup

asked 1
60 s ago  0192-d  brief  Send\\nit? xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…

dead 12
11  AGENT_UNAVAILABLE  the last 5.0 s ago
1   -                  the last 24 h ago

in doubt 2
bank.pay  called 10 min ago  activity:0192-e:1.1
q leaves
"""


def test_frame_of_80_by_24_matches_the_golden_text():
    lines = frame(view(FOUND, Rates(2.0, 4.5, 0.5)), 80, 24, "q leaves")

    assert "\n".join(line.text for line in lines) + "\n" == GOLDEN
    assert {line.text: line.style for line in lines if line.style} == {
        "running: 2 at work, 3 due, 12 dead letters": "good",
        "running 2": "bold",
        "due next": "bold",
        "asked 1": "warn",
        "dead 12": "bad",
        "in doubt 2": "warn",
        "q leaves": "dim",
    }


def a_view(*counts: int, cells: tuple[str, ...] = ("cell", "x")) -> View:
    sections = tuple(
        Section(title=f"section {n}", rows=(cells,) * count, count=count, gives=0) for n, count in enumerate(counts)
    )
    return View(ok=True, verdict="running", facts=("due 0", "settled -"), sections=sections)


def rows_of(shown: View) -> list[int]:
    return [len(section.rows) for section in shown.sections]


@pytest.mark.parametrize(
    ("counts", "height", "rows"),
    [
        ((2, 1), 24, [2, 1]),
        ((50, 50, 50), 25, [6, 5, 5]),
        ((1, 50), 24, [1, 16]),
        ((50, 1), 9, [1, 1]),
        ((50, 50), 8, [3]),
        ((50,), 5, []),
        ((50,), 1, []),
    ],
)
def test_section_gets_a_first_row_before_another_section_gets_many(counts, height, rows):
    assert rows_of(fit_to_terminal(a_view(*counts), height)) == rows


@pytest.mark.parametrize("width", [1, 2, 10, 40, 80, 200])
def test_frame_never_exceeds_the_terminal(width):
    wide = a_view(30, 3, 1, 7, cells=("你好" * 20, "id-" + "x" * 33, "\u0301e" * 9))

    for height in range(1, 40):
        lines = frame(wide, width, height, "q leaves")

        assert len(lines) <= height
        assert [line for line in lines if cell_len(line.text) > width] == [], height


def test_narrow_frame_cuts_the_column_that_may_be_cut():
    [*_, row] = frame(a_view(1, cells=("a-very-long-name-of-a-workflow", "0192-the-id")), 30)

    assert row == Line("a-very-long-name…  0192-the-id")
    assert (cut("你好吗", 5), cut("abc", 3), cut("abc", 0)) == ("你好…", "abc", "")


def test_hostile_text_in_top_is_printed_escaped(cli, database, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")

    async def ask(app: Any) -> None:
        await app.emit("ask", {"question": HOSTILE})

    at_rest(database, ask, app=an_app())

    out = cli("top", "--once").out

    assert "\\x1b[2J\\x1b]0;owned\\x07\\nline two\\u202e\\x85" in out
    assert all(char.isprintable() or char == "\n" for char in out)


def test_sizes_are_formatted_with_decimal_units():
    assert [format_bytes(n) for n in (0, 999, 1000, 4_123_456, 2 * 10**9, 5 * 10**15)] == [
        *("0 B", "999 B", "1.0 kB", "4.1 MB", "2.0 GB", "5000.0 TB")
    ]


def test_second_look_shows_rates(here):
    document = read_top(a_session(here.core.database.path).core()).document

    assert view(document, None).facts[-1].startswith("settled -  failed -  file ")
    assert view(document, Rates(2.0, 1234.56, 0.5)).facts[-1].startswith("settled 1,234.6/s  failed 0.5/s  file ")


# In a terminal

IN_ITS_OWN_SESSION = """
import fcntl, os, runpy, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
runpy.run_module("craftcore", run_name="__main__", alter_sys=True)
"""
ENTERED, LEFT, CURSOR = "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25h"


@dataclass
class Terminal:
    """A pseudo-terminal with a program."""

    screen: int
    program_side: int
    process: WarmProcess
    output: str = ""
    before: list[Any] = field(default_factory=list)

    def until(self, text: str) -> None:
        """Read the output of the program until the text appears."""
        deadline = time.monotonic() + PATIENCE
        seen = len(self.output)
        while text not in self.output[seen:]:
            assert time.monotonic() < deadline, self.output[-2000:]
            if select.select([self.screen], [], [], 0.1)[0]:
                self.output += os.read(self.screen, 65_536).decode(errors="replace")

    def type(self, keys: bytes) -> None:
        os.write(self.screen, keys)

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.program_side, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def wait(self) -> int:
        """Read the rest of the output, and return the exit code."""
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None or select.select([self.screen], [], [], 0)[0]:
            assert time.monotonic() < deadline, self.output[-2000:]
            if select.select([self.screen], [], [], 0.05)[0]:
                self.output += os.read(self.screen, 65_536).decode(errors="replace")
        return self.process.wait()

    def is_restored(self) -> bool:
        restored = termios.tcgetattr(self.program_side) == self.before
        return restored and self.output.rindex(LEFT) > self.output.rindex(ENTERED) and CURSOR in self.output


@contextmanager
def top(folder: Path, *arguments: str, columns: int = 80, lines: int = 24, **env: str) -> Iterator[Terminal]:
    screen, program_side = os.openpty()
    command = ["--db", "agent.db", "top", "--interval", "0.1", *arguments]
    environ = {name: value for name, value in environment().items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    before = termios.tcgetattr(program_side)
    fcntl.ioctl(program_side, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    process = start_program(
        ["-c", IN_ITS_OWN_SESSION, *command],
        cwd=folder,
        env={**environ, "TERM": "xterm-256color", **env},
        stdin=program_side,
        stdout=program_side,
        stderr=program_side,
    )
    try:
        yield Terminal(screen, program_side, process, before=before)
    finally:
        process.kill()
        process.wait()
        os.close(screen)
        os.close(program_side)


@pytest.fixture
def folder(here) -> Path:
    here.core.close()
    path: Path = here.core.database.path
    return path.parent


def test_q_key_leaves_top_and_restores_the_terminal(folder):
    with top(folder) as terminal:
        terminal.until("q leaves")
        assert termios.tcgetattr(terminal.program_side) != terminal.before

        terminal.type(b"x")
        terminal.type(b"q")

        assert terminal.wait() == 0
        assert terminal.is_restored()
    assert "held: it was restored" in terminal.output
    assert "\x1b[1;31mdown: no daemon runs on" in terminal.output


@pytest.mark.parametrize("how", ["Ctrl-C", "SIGTERM", "SIGHUP"])
def test_terminal_is_restored_after_ctrl_c_and_signals(folder, how):
    with top(folder) as terminal:
        terminal.until("q leaves")

        match how:
            case "Ctrl-C":
                terminal.type(b"\x03")
            case signal_name:
                os.kill(terminal.process.pid, getattr(signal, signal_name))

        assert terminal.wait() == {"Ctrl-C": 0, "SIGTERM": 143, "SIGHUP": 129}[how]
        assert terminal.is_restored()


def test_ctrl_z_does_not_suspend_top(folder):
    with top(folder) as terminal:
        terminal.until("q leaves")
        terminal.type(b"\x1a")
        terminal.until("q leaves")
        terminal.type(b"Q")

        assert terminal.wait() == 0


def test_top_redraws_changes_without_a_key(folder):
    """The process uses the machine's clock, so timers and the schedule `ahead` are due, too."""
    [(due,)] = ask(
        folder / "agent.db", f"SELECT count(*) FROM triggers WHERE status = 'PENDING' AND due_at <= {time.time()}"
    )
    assert due

    with top(folder) as terminal:
        terminal.until(f"due {due} ")
        assert craftcore(folder, "emit", "nap").code == 0

        terminal.until(f"due {due + 1} ")

        terminal.type(b"q")
        assert terminal.wait() == 0


def test_terminal_resize_is_redrawn_at_once(folder):
    with top(folder, "--interval", "1h") as terminal:
        terminal.until("q leaves")

        terminal.resize(30, 12)

        terminal.until("also everything is held: it w…")
        terminal.type(b"q")
        assert terminal.wait() == 0


def test_top_prints_no_colours_with_the_no_color_variable(folder):
    with top(folder, NO_COLOR="1") as terminal:
        terminal.until("q leaves")
        terminal.type(b"q")
        assert terminal.wait() == 0
    assert "\x1b[31m" not in terminal.output
    assert ";31m" not in terminal.output


def test_dumb_terminal_gets_a_single_frame(folder):
    with top(folder, TERM="dumb") as terminal:
        assert terminal.wait() == 0
    assert "held: it was restored" in terminal.output
    assert "\x1b" not in terminal.output


def test_error_in_top_is_printed_after_the_terminal_is_restored(folder):
    with top(folder) as terminal:
        terminal.until("q leaves")
        (folder / "agent.db").rename(folder / "gone.db")

        assert terminal.wait() == 10
        assert terminal.is_restored()
    assert "no such database" in terminal.output[terminal.output.rindex(LEFT) :]
