"""Suggested commands: a pasted command uses the database of the command that printed it."""

from __future__ import annotations

import re
import shlex
import shutil

from tests.support.commands import BY_HAND, READS, line

WRONG = {
    "no trigger": ["trigger", "why", "nothing"],
    "no task": ["task", "show", "nothing"],
    "no question": ["inbox", "answer", "nothing", "yes"],
    "no activity": ["activity", "show", "nothing"],
    "no record": ["inspect", "exec-nothing.1"],
    "no schedule": ["schedule", "show", "nothing"],
}
PLACEHOLDERS = {"CHOICE": "send", "JSON": "{}"}
NO_HINTS = {"systemd print", "systemd install", "completion"}
"""Commands that print files for installation."""

ALONE = re.compile(
    r"craftcore (?!--db )(?:run|release|status|doctor|verify|audit|inspect|\w+ (?:list|show|why)|db \w+)\b"
)


def printed_by(made):
    """Yield a named command line for each place of the program that may print a suggestion."""
    world, _ = made
    yield from ((name, line(name, call, world)) for name, call in {**READS, **BY_HAND}.items() if name not in NO_HINTS)
    yield from WRONG.items()
    for field in ("dead", "waiting", "nap", "waits", "failed", "asks"):
        yield f"trigger why {field}", ["trigger", "why", getattr(world, field)]
    for field in ("nap", "waits", "failed", "asks"):
        yield f"task show {field}", ["task", "show", getattr(world, field)]
    for schedule in ("ahead", "paused"):
        yield f"schedule why {schedule}", ["schedule", "why", schedule]
        yield f"schedule show {schedule}", ["schedule", "show", schedule]
    yield "a trigger that is no task", ["task", "show", world.waiting]


def hints_in(text, beginning):
    """Yield the commands in a text; each ends at the end of its sentence."""
    for found in re.finditer(re.escape(beginning) + r"((?: (?:'[^']*'|[^\s(]\S*))+)", text):
        words = []
        for word in re.findall(r"'[^']*'|\S+", found[1]):
            words.append(word.rstrip('.,;)"'))
            if words[-1] != word:
                break
        yield beginning + " " + " ".join(words)


def copy_database(sound, database):
    """Copy the populated database into a new folder."""
    shutil.rmtree(database.parent, ignore_errors=True)
    database.parent.mkdir()
    shutil.copy(sound, database)


def test_suggested_command_can_be_pasted(cli, made, tmp_path, monkeypatch):
    """If a variable names the database, the same commands are printed without the option."""
    _, sound = made
    database = tmp_path / "a place" / "agent.db"
    with_option = f"craftcore --db '{database}'"
    found: dict[str, str] = {}
    for name, arguments in printed_by(made):
        copy_database(sound, database)
        printed = cli("--db", str(database), *arguments)
        output = printed.out + printed.err
        assert ALONE.findall(output) == [], (name, output)
        suggested = list(hints_in(output, with_option))
        found |= dict.fromkeys(suggested, name)

        copy_database(sound, database)
        with monkeypatch.context() as environment:
            environment.setenv("CRAFTCORE_DB", str(database))
            printed = cli(*arguments)
        output = printed.out + printed.err
        assert "--db" not in output, (name, output)
        assert {hint.replace(with_option, "craftcore") for hint in suggested} <= {*hints_in(output, "craftcore")}, name

    assert len(found) >= 20, found
    for pasted, name in found.items():
        copy_database(sound, database)
        words = [PLACEHOLDERS.get(word, word) for word in shlex.split(pasted)[1:]]
        if "MODULE:APP" in words:
            words = [*words, "--help"]  # the command has a placeholder or starts a daemon
        answer = cli(*words)
        assert answer.code in (0, 1), (name, pasted, answer)


def test_suggested_command_without_another_database_is_short(cli, here):
    assert "See: craftcore inbox list" in cli("status").out
    assert "Look at it, then: craftcore release" in cli("trigger", "why", here.world.waiting).out
