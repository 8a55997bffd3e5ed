"""Tab completion in each shell at a terminal: the completed line is the line that the command receives."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import environment, until

SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], 'eval "$(craftcore completion bash)"'),
    "zsh": (["zsh", "-f", "-i"], 'autoload -U compinit; compinit -u -D; eval "$(craftcore completion zsh)"'),
    "fish": (["fish", "--no-config", "-i"], "craftcore completion fish | source"),
}

PROGRAM = """#!/bin/sh
if [ -n "$_CRAFTCORE_COMPLETE" ] || [ "$1" = completion ]; then
    exec {python} -m craftcore "$@"
fi
echo "$@" >> {typed}
"""
"""The program answers completions of TAB, and records the line at Enter."""


AT_A_TERMINAL = 'exec "$@" <"$0" >"$0" 2>&1'
"""The first process of a session that opens the terminal controls it."""


class Terminal:
    """A shell at a terminal, in a folder. `enter` types text, presses TAB and Enter, and returns the completed line."""

    def __init__(self, shell: str, folder: Path, database: Path) -> None:
        command, setup = SHELLS[shell]
        self._typed = folder / "typed"
        self._typed.touch()
        program = folder / "bin" / "craftcore"
        program.parent.mkdir()
        program.write_text(PROGRAM.format(python=sys.executable, typed=self._typed))
        program.chmod(0o755)
        path = f"{program.parent}:{os.environ['PATH']}"
        env = environment(PATH=path, CRAFTCORE_DB=str(database), HOME=str(folder), TERM="xterm", INPUTRC="/dev/null")
        self._screen, self._theirs = os.openpty()
        null = subprocess.DEVNULL
        self._process = subprocess.Popen(
            ["sh", "-c", AT_A_TERMINAL, os.ttyname(self._theirs), *command],
            cwd=folder,
            env=env,
            stdin=null,
            stdout=null,
            stderr=null,
            start_new_session=True,
        )
        self.enter(f"{setup}\n craftcore begin", tab="")

    def enter(self, line: str, tab: str = "\t") -> str:
        before = self._typed.read_text()
        os.write(self._screen, f"{line}{tab}\n".encode())
        until(lambda: self._typed_since(before), f"what {line!r} became")
        return self._typed.read_text()[len(before) :].removesuffix("\n").rstrip()

    def _typed_since(self, before: str) -> bool:
        self._look()
        return self._typed.read_text() != before

    def _look(self) -> None:
        """Read the output, so that the shell does not block on a full terminal; the output itself is ignored."""
        if select.select([self._screen], [], [], 0.01)[0]:
            os.read(self._screen, 1 << 16)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._screen)
        os.close(self._theirs)


@pytest.fixture(params=SHELLS)
def terminal(request, here, database, tmp_path) -> Iterator[Terminal]:
    if shutil.which(request.param) is None:
        pytest.skip(f"there is no {request.param} here")
    here.core.close()
    (tmp_path / "folder").mkdir()
    terminal = Terminal(request.param, tmp_path / "folder", database)
    yield terminal
    terminal.close()


@pytest.mark.parametrize(
    "in_full", [pytest.param(False, id="some"), pytest.param(True, id="all", marks=pytest.mark.acceptance)]
)
def test_tab_at_a_terminal_completes_the_line_in_each_shell(terminal, here, tmp_path, in_full):
    """The default cases are lines that shells split differently; `tests/cli/test_completion.py` has the candidates."""
    world = here.world
    (tmp_path / "folder" / "settings.toml").touch()
    task = world.in_doubt.split(":")[1]

    assert terminal.enter("craftcore sched") == "schedule"
    assert terminal.enter("craftcore trigger list --status=pend") == "trigger list --status=pending"
    assert terminal.enter(f"craftcore activity show {task}") == f"activity show {world.in_doubt.split(':', 1)[1]}"
    assert terminal.enter("craftcore --config sett") == "--config settings.toml"
    assert terminal.enter("craftcore schedule show nothing-of-that-name") == "schedule show nothing-of-that-name"
    if in_full:
        assert terminal.enter("craftcore dead requ") == "dead requeue"
        assert terminal.enter("craftcore schedule show nigh") == "schedule show nightly"
        assert terminal.enter("craftcore schedule backfill nightly --fr") == "schedule backfill nightly --from"
        assert terminal.enter("craftcore emit na") == "emit nap"
        assert terminal.enter("craftcore trigger list --status pend") == "trigger list --status pending"
        assert terminal.enter("craftcore trigger list --source=mess") == "trigger list --source=message"
        assert terminal.enter(f"craftcore inbox answer {world.question} se") == f"inbox answer {world.question} send"
        assert terminal.enter(f"craftcore task signal {world.waits} app") == f"task signal {world.waits} approved"
