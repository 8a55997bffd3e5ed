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


class Place:
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

    def require_locks(self, when: str) -> None:
        assert locks_of(os.getpid(), self.path) == HELD, when


def an_app() -> App:
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


async def a_transaction(place: Place) -> None:
    emitted = await place.app.emit("books")
    while place.status(emitted.id) != "DONE":  # noqa: ASYNC110 - a row has no event to wait on
        await anyio.sleep(0.01)


async def a_producer(place: Place) -> None:
    with Producer(place.path) as producer:
        producer.emit("greets")
        place.require_locks("while it is open")


async def two_producers(place: Place) -> None:
    with Producer(place.path) as first:
        with Producer(place.path) as second:
            first.emit("greets")
            second.emit("greets")
            place.require_locks("while both are open")
        place.require_locks("while one is open")


async def a_refused_second_engine(place: Place) -> None:
    with pytest.raises(DaemonRunning):
        async with running(App("second"), place.path, place.config):
            pass


async def what_a_start_looks_at(place: Place) -> None:
    refuse_foreign(place.path, place.config)


async def readings(place: Place) -> None:
    await place.app.emit("greets")
    core = place.core()
    core.prepare()
    with core.reading() as reader:
        reader.fetch_value("SELECT count(*) FROM facts")
    with core.database.reading(with_checks=True) as reader:
        reader.fetch_value("SELECT count(*) FROM facts")
    with read_passively(place.path) as reader:
        reader.fetch_value("SELECT count(*) FROM facts")
    assert wal_in_use(place.path) > 0


async def a_scrape(place: Place) -> None:
    found = await scrape(place.path.with_name("metrics.sock"))
    assert found.value("craftcore_database_read") == 1


async def retention(place: Place) -> None:
    own = RetentionLoop(place.core(), place.engine, first_after=0.0, every=0.01)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(own.run)
        while own.passes < 2:  # noqa: ASYNC110 - it has no event to wait on
            await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()


def a_command(*arguments: str, code: int = 0) -> Callable[[Place], Awaitable[None]]:
    """In this process, as a program that embeds the engine may call it."""

    async def run(place: Place) -> None:
        output = ["-o", str(place.path.with_name("backup.db"))] if arguments == ("db", "backup") else []
        ended = await anyio.to_thread.run_sync(main, ["--db", str(place.path), *arguments, *output])
        assert ended == code

    run.__name__ = "_".join(arguments)
    return run


WAYS = [
    a_transaction,
    a_producer,
    two_producers,
    a_refused_second_engine,
    what_a_start_looks_at,
    readings,
    a_scrape,
    retention,
    a_command("status"),
    a_command("top", "--once"),
    a_command("doctor"),
    a_command("verify"),
    a_command("emit", "greets"),
    a_command("trigger", "list"),
    a_command("db", "check"),
    a_command("db", "stats"),
    a_command("db", "backup"),
    a_command("db", "migrate", code=75),
]


@pytest.mark.anyio
async def test_engine_keeps_its_locks_despite_other_file_access_in_its_process(tmp_path, monkeypatch):
    monkeypatch.setattr(retention_loop, "REST", 0.001)
    app, path, config = an_app(), tmp_path / "agent.db", listening("unix:metrics.sock", Config())
    async with app.running(path, config=config) as engine:
        place = Place(app, engine, path, config)
        place.require_locks("before")

        for way in WAYS:
            await way(place)
            assert locks_of(os.getpid(), path) == HELD, way.__name__


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

    def hear(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and str(arguments[0]) in names and not arguments[2] & os.O_PATH:
            opened.append(arguments[0])

    sys.addaudithook(hear)
    with Producer(tmp_path / "agent.db") as producer:
        producer.emit("greets")
        producer.emit("greets")
        opened_by_then = list(opened)

    assert opened_by_then == []
    assert stat.S_IMODE((tmp_path / "agent.db").stat().st_mode) == 0o600


OPENERS = {"open", "os.open", "io.open", "os.fdopen"}
OPENING_METHODS = {"open", "read_bytes", "read_text", "write_bytes", "write_text", "touch"}

NO_OPENERS = {"self._waits.open", "Doorbell.open", "Listener.open", "help_format.write_text"}
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
    "testing/crash_cell.py": "what the processes of a crash matrix printed",
    "testing/crash_life.py": "what a process of a crash matrix prints",
    "testing/life_log.py": "the log of a scenario",
    "testing/power_loss_disk.py": "the files of a new folder",
    "web/asgi_app.py": "its own style sheet and script",
}
"""The modules that open files, and which ones. None of them is the database, its WAL or its shared memory, while this
process may have it open in SQLite."""


def opening(nodes: Iterable[ast.AST]) -> Iterator[int]:
    """Return the lines of the calls that open a file."""
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            name = ast.unparse(node.func)
            is_method = isinstance(node.func, ast.Attribute) and node.func.attr in OPENING_METHODS
            if name in OPENERS or (is_method and name not in NO_OPENERS):
                yield node.lineno


def test_modules_that_open_files_are_on_the_list():
    """A new one has to be looked at: does it open the database? Then it must not be."""
    found = {
        file.relative_to(prose.PACKAGE).as_posix() for file, tree in prose.modules() if any(opening(prose.nodes(tree)))
    }

    assert found == set(MAY_OPEN)


@pytest.mark.parametrize(
    "code",
    ["open(path)", "os.close(os.open(path, os.O_RDWR))", "path.open('rb')", "Path(path).read_bytes()", "path.touch()"],
)
def test_open_rule_detects_each_way_to_open_a_file(code):
    assert list(opening(ast.walk(ast.parse(code)))) == [1]
