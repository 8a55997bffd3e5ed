"""The three kinds of commands: commands that read, operator commands that are audited, and commands that work."""

from __future__ import annotations

import io
import os
import pwd
import sys
from pathlib import Path
from types import SimpleNamespace

import click
import pytest

from craftcore.cli.base import Command, OperatorCommand, WriteCommand
from craftcore.cli.main import main
from craftcore.cli.session import Session
from craftcore.services import Services
from craftcore.storage.database import Database
from craftcore.storage.migrate import migrate
from craftcore.storage.migrations import list_migrations
from tests.support.commands import BY_HAND, NEED_MORE, READS, SERVES, WORKS, commands, line
from tests.support.fakes import VirtualClock
from tests.support.processes import craftcore

ME = os.getuid(), pwd.getpwuid(os.getuid()).pw_name


# the three kinds


def test_commands_are_divided_into_reading_manual_and_working():
    kinds = {name: type(command) for name, command in commands()}

    by_hand = {name for name, kind in kinds.items() if issubclass(kind, OperatorCommand)}
    works = {name for name, kind in kinds.items() if issubclass(kind, WriteCommand)} - by_hand

    assert by_hand == set(BY_HAND)
    assert works == set(WORKS)
    assert set(kinds) - by_hand - works == {*READS, *SERVES}


# operator commands


@pytest.mark.parametrize("name", [name for name in BY_HAND if name not in NEED_MORE])
def test_manual_command_is_written_to_the_audit_log(cli, here, clock, name):
    call = BY_HAND[name]

    done = cli(*line(name, call, here.world))

    assert done.code == 0, done
    rows = here.rows()
    assert [(row.action, row.subject) for row in rows] == [(name, subject) for subject in call.subjects(here.world)]
    assert {(row.uid, row.name, row.at) for row in rows} == {(*ME, clock.now())}
    assert [row.hash for row in rows] == [row.hash_now for row in rows]


def test_manual_migration_is_audited_in_the_last_transaction(cli, database):
    old, clock = list_migrations()[:-2], VirtualClock()
    migrate(Database(database, clock), clock, old)

    assert cli("db", "migrate").code == 0
    assert cli("db", "migrate").code == 0

    [row] = cli("--json", "audit").json
    assert (row["action"], row["subject"], row["uid"]) == ("db migrate", None, ME[0])
    assert row["details"] == {"applied": [migration.name for migration in list_migrations()[-2:]]}


@pytest.mark.parametrize(
    ("arguments", "reason", "details"),
    [
        (["trigger", "cancel", "{world.waiting}", "--reason", "wrong city"], "wrong city", {}),
        (["task", "cancel", "{world.nap}", "--reason", "wrong city"], "wrong city", {}),
        (["task", "retry", "{world.failed}", "--reason", "paper is there"], "paper is there", {}),
        (["task", "signal", "{world.nap}", "go"], None, {"event": "go", "waited": False}),
        (["inbox", "answer", "{world.question}", "send", "--note", "I asked"], "I asked", {"choice": "send"}),
        (["activity", "resolve", "{world.in_doubt}", "--resend", "--note", "seen"], "seen", {"decision": "resend"}),
        (["schedule", "pause", "nightly", "--reason", "too loud"], "too loud", {}),
        (["schedule", "resume", "paused"], None, {"was": "PAUSED"}),
        (
            ["schedule", "edit", "nightly", "--when", "every day at 4am"],
            None,
            {"change": "changed", "expression": {"before": "every day at 3am", "after": "every day at 4am"}},
        ),
        (
            ["schedule", "edit", "nightly", "--payload", '{"seconds": 5}'],
            None,
            {"change": "changed", "payload": {"before": {}, "after": {"seconds": 5}}},
        ),
        (
            ["schedule", "add", "new", "@daily", "--workflow", "nap"],
            None,
            {"change": "added", "expression": "@daily", "workflow": "nap"},
        ),
        (["schedule", "remove", "ahead"], None, {"triggers_cancelled": 1}),
        (["release"], None, {"held_because": "it was restored"}),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else None,
)
def test_audit_row_has_the_reason_and_the_outcome(cli, here, arguments, reason, details):
    done = cli(*(argument.format(world=here.world) if "{world" in argument else argument for argument in arguments))

    assert done.code == 0, done
    [row] = here.rows()
    assert row.reason == reason
    assert {name: row.details.get(name) for name in details} == details


def test_refused_command_rolls_back_earlier_changes_and_audit_rows(cli, here):
    """The second trigger is settled already."""
    waiting, dead = here.world.waiting, here.world.dead

    refused = cli("trigger", "cancel", waiting, dead)

    assert refused.code == 1, refused
    assert here.rows() == []
    assert cli("--json", "trigger", "show", waiting).json["status"] == "PENDING"


@pytest.mark.parametrize(
    "arguments",
    [
        ["schedule", "pause", "paused"],
        ["schedule", "resume", "nightly"],
        ["schedule", "add", "nightly", "every day at 3am", "--workflow", "nap"],
        ["schedule", "edit", "nightly", "--when", "every day at 3am"],
        ["schedule", "backfill", "nightly", "--from", "2026-11-20T04:00Z", "--to", "2026-11-20T05:00Z"],
    ],
    ids=" ".join,
)
def test_command_without_a_change_is_not_audited(cli, here, arguments):
    done = cli(*arguments)

    assert (done.code, here.rows()) == (0, []), done


def test_repeated_command_without_further_change_is_not_audited(cli, here):
    for command in (["release"], ["schedule", "reanchor"]):
        assert cli(*command).code == cli(*command).code == 0

    assert [row.action for row in here.rows()] == ["release", "schedule reanchor"]


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    "arguments",
    [
        ["trigger", "cancel", "--all"],
        ["dead", "discard", "--all"],
        ["task", "cancel", "{world.nap}"],
        ["activity", "resolve", "{world.in_doubt}", "--give-up"],
        ["schedule", "remove", "nightly"],
    ],
    ids=lambda value: " ".join(value[:2]),
)
def test_declined_confirmation_is_not_audited(cli, here, monkeypatch, arguments):
    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr("craftcore.cli.confirm.click.confirm", lambda *_, **__: False)

    code = main([argument.format(world=here.world) for argument in arguments])

    assert (code, here.rows()) == (130, [])


def test_emit_and_run_are_not_audited(cli, here, database):
    assert cli("emit", "nap").code == 0
    assert "engine.booted" in craftcore(database.parent, "run", "--until-idle").err

    assert here.rows() == []


# completeness of the audit


def a_session(database: Path) -> tuple[Session, Services]:
    session = Session({"CRAFTCORE_DB": str(database)})
    return session, session.core()


def called(kind: type[Command], name: str) -> click.Context:
    return click.Context(kind("it"), info_name=f"craftcore {name}")


def test_unrecorded_change_by_an_operator_command_is_rolled_back(cli, here, database):
    session, core = a_session(database)

    with (
        called(OperatorCommand, "forgets"),
        pytest.raises(AssertionError, match="forgets changed 1 row and did not say to what"),
        session.write(core) as (tx, _),
    ):
        tx.run("UPDATE triggers SET priority = 1 WHERE id = :id", id=here.world.waiting)

    assert cli("--json", "trigger", "show", here.world.waiting).json["priority"] != 1
    assert here.rows() == []


def test_recorded_change_is_audited_under_the_command_name(here, database):
    session, core = a_session(database)

    with called(OperatorCommand, "noun verb"), session.write(core) as (tx, scope):
        tx.run("UPDATE triggers SET priority = 1 WHERE id = :id", id=here.world.waiting)
        scope.record(here.world.waiting)

    assert [(row.action, row.subject) for row in here.rows()] == [("noun verb", here.world.waiting)]


@pytest.mark.parametrize("kind", [Command, WriteCommand])
def test_audited_session_accepts_only_operator_commands(here, database, kind):
    session, core = a_session(database)

    with called(kind, "reads"), pytest.raises(AssertionError, match="reads"), session.write(core):
        pass


# the person


def test_user_without_a_name_is_audited_as_a_number(cli, here, monkeypatch):
    def fail(uid):
        raise KeyError(uid)

    monkeypatch.setattr("craftcore.audit.caller.pwd.getpwuid", fail)
    cli("task", "cancel", here.world.nap)

    [row] = here.rows()
    assert (row.uid, row.name) == (os.getuid(), "")
    assert f"  uid {os.getuid()}  task cancel  " in cli("audit").out


@pytest.mark.parametrize("name", ["task cancel", "task signal", "inbox answer", "activity resolve", "invalidate"])
def test_user_name_that_is_not_text_is_escaped_and_blocks_no_command(cli, here, monkeypatch, name):
    monkeypatch.setattr("craftcore.audit.caller.pwd.getpwuid", lambda uid: SimpleNamespace(pw_name="ad\udcff"))

    done = cli(*name.split(), *BY_HAND[name].arguments(here.world))

    assert (done.code, [row.name for row in here.rows()]) == (0, [r"ad\udcff"])


def test_caller_identity_ignores_environment_variables(cli, here, monkeypatch):
    for name, value in {"SUDO_UID": "4711", "SUDO_USER": "mallory", "USER": "mallory", "LOGNAME": "mallory"}.items():
        monkeypatch.setenv(name, value)

    cli("task", "cancel", here.world.nap)

    [row] = here.rows()
    assert (row.uid, row.name) == ME
    assert "mallory" not in row.details_json
    assert "4711" not in row.details_json


def test_login_user_is_audited_beside_the_effective_user(cli, here, monkeypatch, tmp_path):
    """The kernel keeps the login user through sudo and su; the test writes its own number to such a file."""
    login = tmp_path / "loginuid"
    login.write_text("65534")
    monkeypatch.setattr("craftcore.audit.caller.LOGIN_UID", login)

    cli("task", "cancel", here.world.nap)

    [row] = here.rows()
    name = pwd.getpwuid(65534).pw_name
    assert (row.uid, row.details) == (ME[0], {"login_uid": 65534, "login_name": name})
    assert f"{ME[1]} (uid {ME[0]}) of {name} (uid 65534)" in cli("audit").out
    assert len(cli("--json", "audit", "--by", name).json) == len(cli("--json", "audit", "--by", "65534").json) == 1
    assert cli("--json", "audit", "--by", "65533").json == []


@pytest.mark.parametrize("kept", ["4294967295", str(os.getuid()), "", "somebody", None])
def test_login_user_is_omitted_when_the_kernel_reports_no_other_user(cli, here, monkeypatch, tmp_path, kept):
    login = tmp_path / "loginuid"
    if kept is not None:
        login.write_text(kept)
    monkeypatch.setattr("craftcore.audit.caller.LOGIN_UID", login)

    cli("task", "cancel", here.world.nap)

    [row] = here.rows()
    assert row.details == {}
