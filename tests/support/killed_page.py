"""Pages that are killed at the commit of an operator action.

The warm parent of the tests forks this module as a program, which imports the page once. For each line of its input,
the program forks a process that sends one form. SIGKILL ends that process before or after the COMMIT of the form.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from subprocess import PIPE
from typing import Literal

import apsw
import pytest

from craftcore.failpoints import kill_process
from craftcore.storage.commit import commit
from tests.crash.forks import fork, prepare_forks, wait
from tests.support.fakes import VirtualClock
from tests.support.populated_database import NOON, World
from tests.support.processes import environment
from tests.support.warm_parent import WarmProcess, start
from tests.support.web_actions import make_site, send

Place = Literal["before", "after"]
WAITS_SECONDS = 60.0


@dataclass(slots=True)
class KilledPage:
    """The program that forks pages, and the forms that it sends."""

    process: WarmProcess

    def send(self, database: Path, name: str, world: World, seen: str, error: str, place: Place) -> int:
        """Send a form from a process that is killed meanwhile, and return its exit code, minus the signal."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        request = json.dumps([str(database), name, asdict(world), seen, error, place])
        self.process.stdin.write(f"{request}\n".encode())
        self.process.stdin.flush()
        return int(self.process.stdout.readline())


@contextmanager
def killed_pages() -> Iterator[KilledPage]:
    """Run the program until the block ends."""
    root = Path(__file__).parents[2]
    process = start(["-m", "tests.support.killed_page"], cwd=root, env=environment(), stdin=PIPE, stdout=PIPE)
    with process:
        yield KilledPage(process)


def send_and_die(database: str, name: str, world: dict[str, str], seen: str, error: str, place: Place) -> None:
    """Send a form once, and kill this process at the commit of its transaction."""

    def commit_and_die(connection: apsw.Connection, path: Path) -> None:
        assert connection.changes() > 0, "the transaction changed nothing"
        if place == "after":
            commit(connection, path)
        kill_process()

    pytest.MonkeyPatch().setattr("craftcore.storage.database.commit", commit_and_die)
    site = make_site(Path(database), VirtualClock(now=NOON))
    send(site, name, World(**world), seen=seen, once="once", error=error)


def main() -> None:
    """Answer each line with the exit code of the process that was forked for it."""
    prepare_forks()
    for line in sys.stdin:
        print(wait(fork(send_and_die, *json.loads(line)), WAITS_SECONDS), flush=True)


if __name__ == "__main__":
    main()
