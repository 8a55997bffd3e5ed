"""`--read-only` and CRAFTCORE_READ_ONLY: commands that write are refused before a file is opened, and others work."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from craftcore.cli.session import Session
from craftcore.errors import PermissionRefused
from tests.support.commands import BY_HAND, READS, WORKS, line

LIFT = "craftcore: release writes, and this is read only: nothing was done. To do it, {}\n"


def the_folder(database: Path) -> dict[str, bytes]:
    """Return the files of the folder, without the empty ones that a reader leaves beside a database."""
    wal, shm = (database.with_name(database.name + end) for end in ("-wal", "-shm"))
    assert not wal.exists() or wal.stat().st_size == 0
    wal.unlink(missing_ok=True)
    shm.unlink(missing_ok=True)
    return {path.name: path.read_bytes() for path in database.parent.rglob("*")}


@pytest.mark.parametrize("name", [*BY_HAND, *WORKS])
def test_writing_command_is_refused_in_read_only_mode(cli, here, database, name):
    here.core.close()
    call = {**BY_HAND, **WORKS}[name]
    before = the_folder(database)

    refused = cli("--read-only", *line(name, call, here.world))

    assert (refused.code, refused.out) == (77, "")
    assert refused.err == (
        f"craftcore: {name} writes, and this is read only: nothing was done. To do it, leave out --read-only\n"
    )
    assert set(os.listdir(database.parent)) == set(before), "the command opened a database"
    assert the_folder(database) == before


@pytest.mark.parametrize("name", READS)
def test_reading_command_works_in_read_only_mode(cli, here, database, name):
    here.core.close()
    before = the_folder(database)

    done = cli("--read-only", *line(name, READS[name], here.world))

    assert (done.code, bool(done.out)) == (0, name != "task stream"), done
    assert the_folder(database) == before


def test_read_only_option_works_after_the_command(cli, here):
    refused = cli("release", "--read-only")

    assert (refused.code, refused.err) == (77, LIFT.format("leave out --read-only"))


@pytest.mark.parametrize("value", ["1", "true", "no"])
def test_read_only_variable_refuses_writes(cli, here, monkeypatch, value):
    """An ambiguous value counts as the safe one."""
    monkeypatch.setenv("CRAFTCORE_READ_ONLY", value)

    refused, both = cli("release"), cli("--read-only", "release")

    assert (refused.code, refused.err) == (77, LIFT.format("unset CRAFTCORE_READ_ONLY"))
    assert (both.code, both.err) == (77, LIFT.format("leave out --read-only and unset CRAFTCORE_READ_ONLY"))
    assert cli("status").code == 0


@pytest.mark.parametrize("value", ["", "0"])
def test_read_only_variable_empty_or_zero_allows_writes(cli, here, monkeypatch, value):
    monkeypatch.setenv("CRAFTCORE_READ_ONLY", value)

    assert cli("release").code == 0


def test_read_only_refusal_with_json_is_a_document(cli, here):
    refused = cli("--json", "--read-only", "release")

    assert refused.json["error"]["code"] == "PERMISSION_REFUSED"
    assert refused.json["error"]["exit_code"] == 77


def test_read_only_refusal_comes_before_confirmation(cli, here):
    """Without `--yes` and a terminal the command would otherwise be a usage error."""
    assert cli("dead", "discard", "--all").code == 64
    assert cli("--read-only", "dead", "discard", "--all").code == 77


def test_read_only_mode_creates_no_file(cli, database):
    assert cli("--read-only", "schedule", "add", "s", "@daily", "--workflow", "nap").code == 77
    assert cli("--read-only", "emit", "nap").code == 77
    assert cli("--read-only", "status").code == 10

    assert os.listdir(database.parent) == []


@pytest.fixture
def core(database):
    """Open the database as a reading command does: the connection also refuses writes."""
    return Session({"CRAFTCORE_DB": str(database), "CRAFTCORE_READ_ONLY": "1"}).core()


def test_read_only_database_cannot_be_opened_for_writing(here, core):
    with pytest.raises(PermissionRefused, match="is read only here"), core.transaction():
        pass
    with pytest.raises(PermissionRefused, match="is read only here"):
        core.database.connect()
    with core.reading() as reader:
        assert reader.fetch_value("SELECT count(*) FROM audit_log") == 0


def test_read_only_database_is_not_created_when_missing(core, database):
    with pytest.raises(PermissionRefused, match="is read only here"):
        core.prepare()
    with pytest.raises(PermissionRefused, match="is read only here"):
        core.database.create()

    assert not database.exists()
