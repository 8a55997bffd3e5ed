"""Commands of a user id without an entry in passwd and without HOME, as in a container."""

from __future__ import annotations

import os
import pwd

import pytest

from craftcore import Producer


@pytest.fixture
def homeless(cli, monkeypatch):
    """Run commands as a user without an entry in passwd and without HOME."""

    def fail(uid: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", fail)
    for name in ("HOME", "STATE_DIRECTORY", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    return cli


WHY = f"user id {os.getuid()} has no home directory (no entry in passwd, and HOME is not set)"


@pytest.mark.parametrize("command", ["status", "emit greet", "doctor", "trigger list", "db stats"])
def test_command_without_a_database_option_names_the_missing_home(homeless, command):
    done = homeless(*command.split())

    assert (done.code, done.out) == (64, "")
    assert done.err == f"craftcore: {WHY}: name the database with --db or CRAFTCORE_DB\n"


def test_check_lists_the_missing_home_among_its_problems(homeless):
    done = homeless("check")

    assert done.code == 1
    assert f"FAIL  directory: {WHY}: name the database with --db or CRAFTCORE_DB\n" in done.out


@pytest.mark.parametrize("command", ["systemd print --user", "systemd install --user"])
def test_units_of_a_user_without_a_home_are_refused(homeless, command):
    done = homeless(*command.split())

    assert (done.code, done.err) == (64, f"craftcore: {WHY}: set HOME to the directory of the units\n")


@pytest.mark.parametrize("command", ["doctor", "check", "status", "audit", "trigger list"])
def test_command_with_a_database_option_needs_no_home(homeless, tmp_path, command):
    path = str(tmp_path / "given.db")
    with Producer(path) as producer:
        producer.emit("greet")

    done = homeless("--db", path, *command.split())

    assert done.code in (0, 1)
    assert "home directory" not in done.err
    assert "a bug in craftcore" not in done.err
