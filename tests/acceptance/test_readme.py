"""The commands of the README and the first tutorial, run word for word from the first to the last.

The tests copy the tree, run the `sh` blocks in two terminals, and compare the output with the text.
"""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

import pytest

from tests.support.processes import PATIENCE, processes_in
from tests.support.readme_steps import SHELL_BLOCKS, Step, block, program, shown
from tests.support.terminal import Terminal, a_terminal

ROOT = Path(__file__).parents[2]

THIS_TEST = "test_readme_is_followed_word_for_word"
RUNNERS = {
    "crash-example": "tests/test_docs.py",
    "demo-command": THIS_TEST,
    "test-command": ".ci/run, which reads the command from the README",
    "the-path": THIS_TEST,
    "commands": THIS_TEST,
    "a-bad-night": THIS_TEST,
}
"""The test or program that runs the lines of each block."""

VIEW_COMMAND = re.compile(r"craftcore (status|inspect|inbox list|task list)\b")
"""Commands that only show a state; they are repeated until the state is shown."""

ID = re.compile(r"(?:exec-)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:\.\d+)?|\b[0-9a-f]{6,12}\.\d+\b")
READY, TAKES_NOTES, WRITES = map(shown, ("… daemon.ready …", "taking notes on tides", "writing about 2 notes"))
KILLED = 128 + 9


class Newcomer:
    """A reader of the README with two terminals."""

    def __init__(self, daemons: Terminal, own: Terminal) -> None:
        self.daemons, self.own = daemons, own
        self.id = "ID"
        self._daemons_before: list[str] = []

    @property
    def daemon_output(self) -> str:
        """Return the output of all daemons in order."""
        return "\n".join([*self._daemons_before, self.daemons.read()])

    def follow(self, step: Step) -> None:
        if step.terminal != 1:
            self._view(step) if VIEW_COMMAND.match(step.line) else self._run(step)
        elif step.line.startswith("craftcore run"):
            self._start(step)
        else:
            assert self.daemons.run(step.line) == 0, self.daemons.seen

    def _start(self, step: Step) -> None:
        """Start a daemon and wait until it is ready. The daemon before was killed."""
        if READY.search(self.daemons.seen):
            assert self.daemons.ended() == KILLED, self.daemons.seen
            self._daemons_before.append(self.daemons.seen)
        self.daemons.type(step.line)
        for wanted in (READY, *map(shown, step.seen)):
            self.daemons.until(wanted)

    def _run(self, step: Step) -> None:
        if step.line.startswith("kill"):
            self.daemons.until(WRITES)  # "when terminal 1 says that it is writing"
        assert self.own.run(self._with_id(step.line)) == 0, f"{step.line}\n{self.own.seen}"
        assert self._has_output(step), f"{step} is not in the output:\n{self.own.seen}"

    def _view(self, step: Step) -> None:
        deadline = time.monotonic() + PATIENCE
        while self.own.run(self._with_id(step.line)) == 0 and not self._has_output(step):
            assert time.monotonic() < deadline, f"{step} is not in the output:\n{self.own.seen}"
        assert self._has_output(step), f"{step.line}\n{self.own.seen}"

    def _has_output(self, step: Step) -> bool:
        """Return whether the terminal shows the expected output, and keep an id in it for the next line."""
        found = [shown(wanted).search(self.own.seen) for wanted in step.seen]
        for match in filter(None, found):
            if named := ID.search(match[0]):
                self.id = named[0]
        return all(found)

    def _with_id(self, line: str) -> str:
        return re.sub(r"\bID\b", self.id, line)


def test_readme_shell_blocks_are_all_run():
    assert [one.name for one in SHELL_BLOCKS] == list(RUNNERS)


@pytest.mark.system
def test_readme_is_followed_word_for_word(tmp_path):
    """The steps are install, init, run, emit, status, kill -9, restart, backup, loss of the file, restore, release."""
    tree, elsewhere = tmp_path / "craftcore", tmp_path / "state"
    shutil.copytree(ROOT, tree, symlinks=True, ignore=shutil.ignore_patterns(".git", *ignored_paths()))
    env = {"XDG_STATE_HOME": str(elsewhere)}
    with a_terminal(tree, **env) as daemons, a_terminal(tree, **env) as own:
        newcomer = Newcomer(daemons, own)

        [install] = block("demo-command")
        if own.run(install.line, patience=10 * PATIENCE) != 0:
            pytest.fail(f"the README's first command failed. It needs the index that pip has here:\n{own.seen}")
        assert "Every accepted trigger was done and settled exactly once." in own.seen

        for step in block("the-path"):
            if step.line.startswith("craftcore release"):
                assert not WRITES.search(daemons.read()), "work ran before the release"
            newcomer.follow(step)
        assert len(TAKES_NOTES.findall(newcomer.daemon_output)) == 1, "a recorded step was repeated"
        assert len(WRITES.findall(newcomer.daemon_output)) in (2, 3), (
            "a backup in the middle of the step repeats it once"
        )
        assert f"{tree}/.venv/bin/craftcore run app:app" in commands_in(tree / "my-agent")

        for step in block("commands"):
            newcomer.follow(step)
        assert own.run(f"python - <<'PROGRAM'\n{program('Producer(')}PROGRAM") == 0, own.seen

        for step, id in zip(block("a-bad-night"), fail_and_find_ids(own), strict=True):
            newcomer.id = id
            newcomer.follow(step)

        daemons.interrupt()
        assert daemons.ended() == 0, daemons.seen
    assert not elsewhere.exists(), "no line went to another database than the one that the README means"
    assert processes_in(tmp_path) == []


def ignored_paths() -> list[str]:
    """Return the paths that git ignores."""
    lines = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    return [line.rstrip("/") for line in lines if line and not line.startswith("#")]


def fail_and_find_ids(own: Terminal) -> list[str]:
    """Fail a trigger for good, and return the id for each line of the block `a-bad-night`."""
    assert own.run("craftcore emit fragile --wait") == 4, own.seen
    found = {}
    for status in ("incomplete", "error", "success"):
        assert own.run(f"craftcore inspect --list --status {status}") == 0, own.seen
        match = ID.search(own.seen)
        assert match is not None, own.seen
        found[status] = match[0]
    return ["", found["incomplete"], found["error"], found["success"], "", ""]


def commands_in(folder: Path) -> str:
    """Return the command lines of the processes in a folder."""
    return "\n".join(Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ") for pid in processes_in(folder))
