"""The POSIX locks on the database: a process that runs the engine keeps them despite other file access.

Closing any descriptor of a file drops every lock that the process holds on it. A foreign SQLite program that sees no
lock deletes the WAL.
"""

from __future__ import annotations

import ast
import os
import signal
import stat
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from craftcore import App, Producer, TaskContext
from craftcore.cli.main import main
from craftcore.config import Config
from craftcore.daemon import retention_loop
from craftcore.daemon.daemon_process import refuse_foreign
from craftcore.daemon.lifespan import running
from craftcore.daemon.retention_loop import RetentionLoop
from craftcore.engine.engine import Engine
from craftcore.errors import DaemonRunning
from craftcore.services import Services
from craftcore.storage.connection import read_passively
from craftcore.storage.files.file_size import wal_in_use
from tests.support import prose
from tests.support.kernel_locks import HELD, locks_of
from tests.support.metrics_client import listening, scrape
from tests.support.processes import APP, a_daemon, craftcore, until


class EngineUnderTest:
    """An engine that runs in this process, and its database."""

    def __init__(self, app: App, engine: Engine, path: Path, config: Config) -> None:
        self.app = app
        self.engine = engine
        self.path = path
        self.config = config

    def core(self) -> Services:
        return Services(self.path, self.config)

    def status(self, id: str) -> Any:
        with self.core().reading() as reader:
            return reader.fetch_value("SELECT status FROM triggers WHERE id = :id", id=id)

    def require_locks(self, moment: str) -> None:
        assert locks_of(os.getpid(), self.path) == HELD, moment


def build_app() -> App:
    app = App("locks")

    def book(tx: Any) -> None:
        tx.run("CREATE TABLE IF NOT EXISTS books (x)")

    @app.workflow("books")
    async def books(ctx: TaskContext) -> None:
        await ctx.transaction("book", book)

    @app.workflow("greets")
    async def greets() -> None:
        pass

    return app


async def run_transaction(subject: EngineUnderTest) -> None:
    emitted = await subject.app.emit("books")
    while subject.status(emitted.id) != "DONE":  # noqa: ASYNC110 - a row has no event to wait on
        await anyio.sleep(0.01)


async def use_producer(subject: EngineUnderTest) -> None:
    with Producer(subject.path) as producer:
        producer.emit("greets")
        subject.require_locks("while it is open")


async def use_two_producers(subject: EngineUnderTest) -> None:
    with Producer(subject.path) as first:
        with Producer(subject.path) as second:
            first.emit("greets")
            second.emit("greets")
            subject.require_locks("while both are open")
        subject.require_locks("while one is open")


async def start_second_engine(subject: EngineUnderTest) -> None:
    with pytest.raises(DaemonRunning):
        async with running(App("second"), subject.path, subject.config):
            pass


async def check_before_start(subject: EngineUnderTest) -> None:
    refuse_foreign(subject.path, subject.config)


async def read_in_all_ways(subject: EngineUnderTest) -> None:
    await subject.app.emit("greets")
    core = subject.core()
    core.prepare()
    with core.reading() as reader:
        reader.fetch_value("SELECT count(*) FROM facts")
    with core.database.reading(with_checks=True) as reader:
        reader.fetch_value("SELECT count(*) FROM facts")
    with read_passively(subject.path) as reader:
        reader.fetch_value("SELECT count(*) FROM facts")
    assert wal_in_use(subject.path) > 0


async def scrape_metrics(subject: EngineUnderTest) -> None:
    found = await scrape(subject.path.with_name("metrics.sock"))
    assert found.value("craftcore_database_read") == 1


async def run_retention(subject: EngineUnderTest) -> None:
    loop = RetentionLoop(subject.core(), subject.engine, first_after=0.0, every=0.01)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(loop.run)
        while loop.passes < 2:  # noqa: ASYNC110 - the loop has no event to wait on
            await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()


def command_call(*arguments: str, code: int = 0) -> Callable[[EngineUnderTest], Awaitable[None]]:
    """Return a call of a command in this process, as in a program that embeds the engine."""

    async def run(subject: EngineUnderTest) -> None:
        output = ["-o", str(subject.path.with_name("backup.db"))] if arguments == ("db", "backup") else []
        ended = await anyio.to_thread.run_sync(main, ["--db", str(subject.path), *arguments, *output])
        assert ended == code

    run.__name__ = "_".join(arguments)
    return run


ACCESSES = [
    run_transaction,
    use_producer,
    use_two_producers,
    start_second_engine,
    check_before_start,
    read_in_all_ways,
    scrape_metrics,
    run_retention,
    command_call("status"),
    command_call("top", "--once"),
    command_call("doctor"),
    command_call("verify"),
    command_call("emit", "greets"),
    command_call("trigger", "list"),
    command_call("db", "check"),
    command_call("db", "stats"),
    command_call("db", "backup"),
    command_call("db", "migrate", code=75),
]


@pytest.mark.anyio
async def test_engine_keeps_its_locks_despite_other_file_access_in_its_process(tmp_path, monkeypatch):
    monkeypatch.setattr(retention_loop, "REST", 0.001)
    app, path, config = build_app(), tmp_path / "agent.db", listening("unix:metrics.sock", Config())
    async with app.running(path, config=config) as engine:
        subject = EngineUnderTest(app, engine, path, config)
        subject.require_locks("before")

        for access in ACCESSES:
            await access(subject)
            assert locks_of(os.getpid(), path) == HELD, access.__name__


def test_daemon_keeps_its_locks_through_a_reload_and_every_command(tmp_path):
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "craftcore.toml").write_text('[metrics]\nlisten = "unix:metrics.sock"\n')
    with a_daemon(tmp_path, "app:app", CRAFTCORE_CONFIG="craftcore.toml") as daemon:
        daemon.ready()
        database = tmp_path / "agent.db"
        assert locks_of(daemon.pid, database) == HELD

        daemon.signal(signal.SIGHUP)
        until(lambda: "config.unchanged" in daemon.log)
        assert locks_of(daemon.pid, database) == HELD
        for command in ("emit greet", "status", "doctor", "db backup -o backup.db", "run app:app", "reload"):
            craftcore(tmp_path, *command.split())
            assert locks_of(daemon.pid, database) == HELD, command


def test_database_creation_opens_no_descriptor_that_could_drop_locks(tmp_path):
    names = [str(tmp_path / f"agent.db{side}") for side in ("", "-wal", "-shm")]
    opened = []

    def record_open(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and str(arguments[0]) in names and not arguments[2] & os.O_PATH:
            opened.append(arguments[0])

    sys.addaudithook(record_open)
    with Producer(tmp_path / "agent.db") as producer:
        producer.emit("greets")
        producer.emit("greets")
        opened_so_far = list(opened)

    assert opened_so_far == []
    assert stat.S_IMODE((tmp_path / "agent.db").stat().st_mode) == 0o600


OPENERS = {"open", "os.open", "io.open", "os.fdopen"}
OPENING_METHODS = {"open", "read_bytes", "read_text", "write_bytes", "write_text", "touch"}

OTHER_CALLS = {
    "self._waits.open",
    "self._streams.open",
    "self._journal.open",
    "Doorbell.open",
    "Listener.open",
    "help_format.write_text",
}
"""Calls of the same name that open no file of the file system."""

MAY_OPEN = {
    "actions/process/process_group.py": "/proc",
    "audit/caller.py": "/proc",
    "cli/demo/demo_app.py": "the demo's own ledger",
    "cli/demo/demo_daemon.py": "the demo's own log",
    "cli/demo/demo_verdict.py": "the demo's own ledger",
    "diagnostics/invariants.py": "a file of the package",
    "diagnostics/unit.py": "unit files",
    "cli/init.py": "the files that it makes, and those of the package",
    "cli/main.py": "/dev/null",
    "cli/service/systemd.py": "unit files",
    "cli/service/units.py": "files of the package",
    "diagnostics/write_lock.py": "/proc",
    "machine_zone.py": "files of the system's time zone",
    "storage/files/second_names.py": "/proc",
    "daemon/lock_owner.py": "/proc",
    "daemon/lock_file.py": "the lock file",
    "daemon/lifespan.py": "/proc",
    "daemon/log_stream.py": "the pipe or terminal of the log",
    "files.py": "a file that a person names",
    "storage/files/daemon_files.py": "the lock file",
    "storage/backup/staging_file.py": "a file in the making; its descriptor is closed after SQLite has let go of it",
    "storage/backup/backup.py": "the descriptor of a file in the making, which it does not close",
    "storage/migrations.py": "files of the package",
    "storage/files/file_modes.py": "by O_PATH, which opens no file: its close drops no locks",
    "storage/backup/restore.py": "the database that is replaced, under the daemon's lock; closed after SQLite",
    "storage/doorbell_client.py": "a folder, by O_PATH",
    "storage/files/wal_locks.py": "/proc",
    "storage/files/whole_file.py": "a file in the making, and folders",
    "temporal/cluster_connection.py": "the certificate and the key of a client",
    "testing/crash_cell.py": "the output of the processes of a crash matrix",
    "testing/crash_life.py": "the output of a process of a crash matrix",
    "testing/life_log.py": "the log of a scenario",
    "testing/power_loss_disk.py": "the files of a new folder",
    "web/asgi_app.py": "its own style sheet and script",
}
"""The modules that open files, with their files. No module opens the database, its WAL or its shared memory, which this
process may have open in SQLite."""


def opening_lines(nodes: Iterable[ast.AST]) -> Iterator[int]:
    """Return the lines of the calls that open a file."""
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            name = ast.unparse(node.func)
            is_method = isinstance(node.func, ast.Attribute) and node.func.attr in OPENING_METHODS
            if name in OPENERS or (is_method and name not in OTHER_CALLS):
                yield node.lineno


def test_modules_that_open_files_are_on_the_list():
    """A new module with an open call needs a review: it must not open the database."""
    found = {
        file.relative_to(prose.PACKAGE).as_posix()
        for file, tree in prose.modules()
        if any(opening_lines(prose.nodes(tree)))
    }

    assert found == set(MAY_OPEN)


@pytest.mark.parametrize(
    "code",
    ["open(path)", "os.close(os.open(path, os.O_RDWR))", "path.open('rb')", "Path(path).read_bytes()", "path.touch()"],
)
def test_open_rule_detects_each_way_to_open_a_file(code):
    assert list(opening_lines(ast.walk(ast.parse(code)))) == [1]
