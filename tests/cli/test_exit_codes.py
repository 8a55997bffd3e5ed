"""The exit codes that help pages name: each command ends with them, and each refusal names a remedy."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from craftcore.cli.base import Command
from craftcore.cli.exit_codes import NO_SUCH
from tests.support.commands import BY_HAND, READS, SERVES, WORKS, commands, line
from tests.support.populated_database import World

COMMANDS = dict(commands())
CALLS = {**READS, **BY_HAND, **WORKS, **SERVES}
TESTS = Path(__file__).parents[1]

Lines = Callable[[World], list[list[str]]]

ENDS: dict[tuple[str, int], Lines] = {
    ("init", 73): lambda world: [["init"], ["init"]],
    ("check", 78): lambda world: [["check", "nowhere:app"]],
    ("doctor", 1): lambda world: [["--db", "no/agent.db", "doctor"]],
    ("emit", 75): lambda world: [["emit", "nap", "--wait", "0"]],
    ("emit", 73): lambda world: [["init"], ["--db", "app.py/agent.db", "emit", "nap"]],
    ("trigger list", 12): lambda world: [["trigger", "list", "--status", "gone"]],
    ("trigger cancel", 1): lambda world: [["trigger", "cancel", world.dead]],
    ("trigger requeue", 1): lambda world: [["trigger", "requeue", world.waiting]],
    ("dead requeue", 1): lambda world: [["dead", "requeue", world.waiting]],
    ("dead discard", 1): lambda world: [["dead", "discard", world.waiting]],
    ("schedule add", 73): lambda world: [
        ["init"],
        ["--db", "app.py/agent.db", "schedule", "add", "new", "@daily", "--workflow", "nap"],
    ],
    ("schedule run-now", 1): lambda world: [
        ["schedule", "edit", "nightly", "--overlap", "skip"],
        ["schedule", "run-now", "nightly"],
        ["schedule", "run-now", "nightly"],
    ],
    ("schedule skip-next", 1): lambda world: [
        ["schedule", "add", "once", "in 1h", "--workflow", "nap"],
        ["schedule", "skip-next", "once"],
        ["schedule", "skip-next", "once"],
    ],
    ("schedule backfill", 1): lambda world: [
        ["schedule", "add", "once", "in 1h", "--workflow", "nap"],
        ["schedule", "backfill", "once", "--from", "2026-11-19T00Z", "--to", "2026-11-21T00Z"],
    ],
    ("schedule reanchor", 1): lambda world: [["schedule", "reanchor", "nightly"]],
    ("task list", 12): lambda world: [["task", "list", "--status", "gone"]],
    ("task cancel", 1): lambda world: [["task", "cancel", world.failed]],
    ("task stop", 1): lambda world: [["task", "stop", world.nap]],
    ("task retry", 1): lambda world: [["task", "retry", world.nap]],
    ("task signal", 1): lambda world: [["task", "signal", world.failed, "approved"]],
    ("inbox answer", 1): lambda world: [
        ["inbox", "answer", world.question, "send"],
        ["inbox", "answer", world.question, "hold"],
    ],
    ("activity list", 12): lambda world: [["activity", "list", "--status", "gone"]],
    ("activity resolve", 1): lambda world: [
        ["activity", "resolve", world.in_doubt, "--happened"],
        ["activity", "resolve", world.in_doubt, "--resend"],
    ],
    ("inspect", 12): lambda world: [["inspect", "--list", "--status", "gone"]],
    ("replay", 11): lambda world: [
        ["invalidate", world.ended, "--reason", "wrong"],
        ["replay", world.ended],
    ],
    ("invalidate", 1): lambda world: [
        ["invalidate", world.ended, "--reason", "wrong"],
        ["invalidate", world.ended, "--reason", "wrong"],
    ],
    ("diff", 1): lambda world: [["diff", world.ended, world.died]],
    ("execution retry", 1): lambda world: [["execution", "retry", world.ended, "--reason", "again"]],
    ("execution skip", 1): lambda world: [["execution", "skip", world.ended, "--reason", "never"]],
    ("db backup", 73): lambda world: [["db", "backup", "-o", "backup.db"], ["db", "backup", "-o", "backup.db"]],
    ("db restore", 65): lambda world: [["init"], ["db", "restore", "app.py", "--yes"]],
    ("audit", 12): lambda world: [["audit", "--action", "fly"]],
    ("web", 78): lambda world: [["web"]],
    ("systemd install", 73): lambda world: [
        ["systemd", "install", "--program", "/opt/craftcore", "--root", "image"],
        ["systemd", "install", "--program", "/opt/other", "--root", "image"],
    ],
}
"""Commands typed in order: the last one ends with this code, and the earlier ones succeed."""

SHOWN: dict[tuple[str, int], str] = {
    ("status", 1): "cli/test_health.py: test_check_exits_1_unless_the_verdict_is_healthy",
    ("run", 4): "cli/test_command_surface.py: test_run_and_reload_with_json_print_a_document",
    ("run", 75): "daemon/test_main.py: test_second_daemon_exits_75_and_names_the_first",
    ("run", 78): "cli/test_bad_input.py: test_unrunnable_app_is_refused_with_the_location_of_the_mistake",
    ("check", 1): "cli/test_permissions.py: test_check_reports_a_read_only_database_file",
    ("top", 65): "cli/test_damaged_rows.py: test_top_shows_every_undamaged_section",
    ("top", 78): "cli/test_top.py: test_top_without_rich_names_the_extra_and_json_still_works",
    ("reload", 1): "cli/test_reload.py: test_reload_without_a_daemon_is_refused",
    ("reload", 75): "cli/test_reload.py: test_reload_reports_a_daemon_that_does_not_answer",
    ("reload", 78): "cli/test_reload.py: test_reload_with_a_mistake_changes_nothing_and_reports_the_mistake",
    ("crashtest", 1): "cli/test_crashtest.py: test_email_in_a_plain_action_breaks_a_promise",
    ("crashtest", 78): "cli/test_crashtest.py: test_crashtest_without_an_app_exits_78",
    ("demo", 1): "cli/test_demo.py: test_demo_verdict_reports_a_broken_promise",
    ("emit", 4): "cli/test_emit_wait.py: test_cancelled_task_exits_4",
    ("schedule add", 1): "cli/test_schedule.py: test_schedule_declared_in_code_cannot_be_changed_by_command",
    ("schedule edit", 1): "cli/test_schedule.py: test_schedule_declared_in_code_cannot_be_changed_by_command",
    ("schedule remove", 1): "cli/test_schedule.py: test_schedule_declared_in_code_cannot_be_changed_by_command",
    ("schedule pause", 1): "cli/test_schedule.py: test_finished_schedule_cannot_be_paused_resumed_or_skipped",
    ("schedule resume", 1): "cli/test_schedule.py: test_finished_schedule_cannot_be_paused_resumed_or_skipped",
    ("verify", 1): "cli/test_verify.py: test_first_bad_record_is_named_with_place_and_advice",
    ("db migrate", 75): "daemon/test_main.py: test_second_daemon_exits_75_and_names_the_first",
    ("db backup", 65): "cli/test_backup.py: test_backup_exits_with_documented_codes",
    ("db restore", 75): "cli/test_backup.py: test_restore_is_refused_while_a_daemon_holds_the_database",
    ("db check", 1): "cli/test_verify.py: test_dropped_guard_is_named_by_db_check",
    ("session history", 65): "cli/test_conversation.py: test_damaged_message_is_named_and_hides_no_other",
    ("db check", 65): "cli/test_verify.py: test_damaged_file_is_reported_by_db_check_with_advice",
    ("db gc", 78): "cli/test_gc.py: test_gc_uses_the_settings_file",
    ("db gc", 75): "cli/test_gc.py: test_gc_vacuum_beside_a_daemon_is_refused_and_writes_nothing",
    **{
        (f"{noun}{verb}", 65): "cli/test_damaged_rows.py: test_damaged_row_is_named_and_hides_no_other_row"
        for noun, verb in [
            *((noun, " list") for noun in ("trigger", "dead", "task", "inbox", "activity", "schedule")),
            ("inspect", ""),
        ]
    },
    ("web", 73): "cli/test_web.py: test_page_at_an_address_in_use_exits_73",
    ("systemd install", 77): "cli/test_systemd.py: test_systemd_install_without_write_permission_suggests_root_or_user",
}
"""Exit codes that need more than a populated database, and their tests."""

NAMED = [
    (name, code)
    for name, command in COMMANDS.items()
    if isinstance(command, Command)
    for code in sorted(command.exits)
    if code != NO_SUCH
]


def test_exit_codes_named_in_help_are_all_tested():
    assert sorted([*ENDS, *SHOWN]) == sorted(NAMED)


@pytest.mark.parametrize(("name", "code"), ENDS, ids=lambda value: str(value))
def test_command_exits_with_the_code_named_in_the_help_page(cli, here, name, code):
    here.core.close()
    *before, last = ENDS[name, code](here.world)
    for words in before:
        assert cli(*words).code == 0

    ended = cli(*last)

    assert ended.code == code, ended
    assert ended.err.startswith("craftcore: ") or ended.out


@pytest.mark.parametrize(("name", "code"), SHOWN, ids=lambda value: str(value))
def test_exit_code_tested_elsewhere_is_in_the_named_test(name, code):
    file, _, test = SHOWN[name, code].partition(": ")
    text = (TESTS / file).read_text()
    body = re.search(rf"^def {test}\(.*?(?=^@|^def |\Z)", text, re.M | re.S)

    assert body, "the test does not exist"
    assert re.search(rf"\b{code}\b", body[0]), "the test does not contain the code"
    named = all(f'"{word}"' in body[0] for word in name.split()) or re.search(rf'^    "{name}[" ]', text, re.M)
    assert named or name in ("run", "demo"), "the test does not run the command"


# an invalid id, or one that is too short


TAKES_AN_ID = [
    name
    for name, command in COMMANDS.items()
    for param in command.params
    if isinstance(param, click.Argument) and re.search(r"\b(?:ID|KEY|A)\b", param.metavar or "")
]
ALONE = {"verify", "audit", "dead requeue", "schedule reanchor"}
"""Commands whose calls in `commands` have no id."""


def about(name: str, world: World, id: str) -> list[str]:
    """Return the arguments of the command with that id."""
    return [*name.split(), id, *([] if name in ALONE else CALLS[name].arguments(world)[1:])]


@pytest.mark.parametrize("name", TAKES_AN_ID)
def test_unknown_id_is_refused_with_the_command_to_list(cli, shared, name):
    refused = cli(*about(name, shared.world, "no-such-id"))

    assert (refused.code, refused.out) == (10, "")
    [error_line] = refused.err.splitlines()
    assert re.match(
        r"craftcore: (?:no \w+ has the (?:id|key) 'no-such-id'|no operator command has changed)", error_line
    )
    assert "; see: craftcore " in error_line or name == "audit"
    assert shared.is_unchanged()


@pytest.mark.parametrize("name", TAKES_AN_ID)
def test_ambiguous_id_prefix_is_refused_and_names_two_ids(cli, here, name):
    if name == "audit":
        assert cli("trigger", "requeue", here.world.dead).code == cli("task", "retry", here.world.failed).code == 0
    if name.startswith("schedule"):
        assert cli("schedule", "add", "nightly2", "@daily", "--workflow", "nap").code == 0
    beginning = "night" if name.startswith("schedule") else here.world.ended[:9] if RECORD.search(name) else "01"
    before = len(here.rows())

    refused = cli(*about(name, here.world, beginning))

    assert (refused.code, refused.out) == (10, ""), refused
    assert f"{beginning} fits several ids: " in refused.err
    assert "give more of it" in refused.err
    assert len(here.rows()) == before


RECORD = re.compile("inspect|replay|verify|invalidate|export|diff|execution")


# an invalid value


ANY_TEXT = {
    "ACTION[:OPTION=JSON]",
    "WORKFLOW",
    "ID",
    "TEXT",
    "NAME",
    "SESSION",
    "REF",
    "[REF]",
    "FILE",
    "DIR",
    "PATH",
    "EXPR",
    "NAME|UID",
}
VALUED = [
    (name, param.opts[-1], param.metavar)
    for name, command in COMMANDS.items()
    for param in command.params
    if isinstance(param, click.Option) and not param.is_flag and param.opts[-1] not in ("--db", "--config")
]


def with_option(name: str, world: World, option: str, value: str) -> list[str]:
    """Return the arguments of an otherwise valid call with that option."""
    if name == "inspect":
        return ["inspect", "--list", f"{option}={value}"]
    if name == "schedule preview" and option in ("--expr", "--timezone"):
        return ["schedule", "preview", *(["--expr=@daily"] if option == "--timezone" else []), f"{option}={value}"]
    if name == "db backup":
        return ["db", "backup", *(["--dir", "backups"] if option == "--keep" else []), f"{option}={value}"]
    if name == "systemd install":
        return ["systemd", "install", "--root", "image", f"{option}={value}"]
    return [*line(name, CALLS[name], world), f"{option}={value}"]


@pytest.mark.parametrize(("name", "option"), [one[:2] for one in VALUED if one[2] not in ANY_TEXT])
def test_invalid_option_value_is_refused_and_changes_nothing(cli, shared, name, option):
    refused = cli(*with_option(name, shared.world, option, "?!"))

    assert (refused.code in (12, 64), refused.out) == (True, ""), refused
    [error_line] = refused.err.splitlines()
    assert "?!" in error_line or "the payload is not JSON" in error_line
    assert shared.is_unchanged()


@pytest.mark.parametrize(
    ("name", "option"), [one[:2] for one in VALUED if one[1] not in ("--description", "--task")], ids=str
)
def test_empty_option_value_is_refused_and_changes_nothing(cli, shared, name, option):
    refused = cli(*with_option(name, shared.world, option, ""))

    assert (refused.code in (12, 64), refused.out) == (True, ""), refused
    assert len(refused.err.splitlines()) == 1
    assert shared.is_unchanged()
