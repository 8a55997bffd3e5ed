"""`craftcore audit`: operator actions with person, subject, reason and details, the newest first."""

from __future__ import annotations

import os
import pwd

import pytest

from craftcore.audit.model import Actor
from craftcore.operations.audit_scope import audited_transaction
from tests.support.damage import NO_TEXT, damage
from tests.support.populated_database import NOON

ME = pwd.getpwuid(os.getuid()).pw_name


@pytest.fixture
def done(cli, here, clock):
    """Cancel a task at noon, change a schedule a minute later, and release the hold another minute later."""
    assert cli("task", "cancel", here.world.nap, "--reason", "wrong\x1b[2J city").code == 0
    clock.advance(60)
    assert cli("schedule", "edit", "nightly", "--when", "every day at 4am").code == 0
    clock.advance(60)
    assert cli("release").code == 0
    return here


def actions(cli, *arguments):
    result = cli("--json", "audit", *arguments)
    assert result.code == 0, result
    return [row["action"] for row in result.json]


def test_audit_table_shows_time_user_action_subject_reason_and_details(cli, done):
    header, *lines = cli("audit").out.splitlines()

    assert header.split() == ["when", "who", "action", "subject", "reason", "details"]
    me, nap = f"{ME} (uid {os.getuid()})", done.world.nap
    assert [line.split(maxsplit=2)[:2] for line in lines] == [
        ["2026-11-21", "12:02:00Z"],
        ["2026-11-21", "12:01:00Z"],
        ["2026-11-21", "12:00:00Z"],
    ]
    rows = [" ".join(line.split()[2:]) for line in lines]
    assert rows == [
        f'{me} release - - held_because "it was restored"; released "everything"',
        f'{me} schedule edit nightly - change "changed"; expression "every day at 3am" -> "every day at 4am"',
        f"{me} task cancel {nap} wrong\\x1b[2J city -",
    ]


def test_audit_document_has_whole_rows_with_each_moment_also_as_iso(cli, done):
    released, edited, cancelled = cli("--json", "audit").json

    assert cancelled == {
        "seq": 1,
        "at": NOON,
        "at_iso": "2026-11-21T12:00:00.000Z",
        "uid": os.getuid(),
        "name": ME,
        "action": "task cancel",
        "subject": done.world.nap,
        "reason": "wrong\x1b[2J city",
        "details": {},
        "prev_hash": "",
        "hash": done.rows()[0].hash,
    }
    assert edited["details"]["expression"] == {"before": "every day at 3am", "after": "every day at 4am"}
    assert (released["subject"], released["reason"]) == (None, None)


def test_moment_in_audit_details_is_formatted_as_a_moment(cli, here):
    cli("schedule", "skip-next", "nightly")

    assert "skips_at 2026-11-22 03:00:00Z" in cli("audit").out
    [row] = cli("--json", "audit").json
    assert row["details"] == {"skips_at": NOON + 15 * 3600, "skips_at_iso": "2026-11-22T03:00:00.000Z"}


def test_audit_without_actions_has_no_rows(cli, here):
    assert cli("audit").out.splitlines() == ["when  who  action  subject  reason  details"]
    assert cli("--json", "audit").json == []


@pytest.fixture(scope="module")
def kept() -> list[bytes]:
    """Return a list for the bytes of the file that `done` leaves. The first test fills it."""
    return []


@pytest.fixture
def read(kept, cli, clock, database, request):
    """Write the bytes that `kept` holds."""
    if not kept:
        core = request.getfixturevalue("done").core
        core.do(lambda tx: None)  # the close of a writing connection checkpoints the WAL
        core.close()
        kept.append(database.read_bytes())
    database.write_bytes(kept[0])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], ["release", "schedule edit", "task cancel"]),
        (["--limit", "1"], ["release"]),
        (["night"], ["schedule edit"]),
        (["--action", "task cancel"], ["task cancel"]),
        (["--action", "schedule"], ["schedule edit"]),
        (["--action", "task retry"], []),
        (["--action", "task", "nightly"], []),
        (["--by", ME], ["release", "schedule edit", "task cancel"]),
        (["--by", str(os.getuid())], ["release", "schedule edit", "task cancel"]),
        (["--by", "4711"], []),
        (["--by", "nobody else"], []),
        (["--since", "2026-11-21T12:01:00Z"], ["release", "schedule edit"]),
        (["--until", "2026-11-21T13:01:00+01:00"], ["task cancel"]),
        (["--since", str(NOON + 1), "--until", str(NOON + 61)], ["schedule edit"]),
    ],
    ids=lambda value: " ".join(value) if value and value[0].startswith("-") else None,
)
def test_audit_is_filtered_by_subject_action_and_limit(cli, read, arguments, expected):
    assert actions(cli, *arguments) == expected


def test_audit_finds_an_activity_by_full_bare_or_shortened_key(cli, here):
    key = here.world.in_doubt
    cli("activity", "resolve", key, "--happened")

    for given in (key, key.removeprefix("activity:"), key[:20], f"{key[:20]}…"):
        assert actions(cli, given) == ["activity resolve"]


def test_audit_of_a_task_includes_answers_and_resolutions(cli, here):
    asks, question = here.world.asks, here.world.question
    assert cli("inbox", "answer", question, "send", "--note", "why not").code == 0

    assert actions(cli, asks) == actions(cli, question) == ["inbox answer"]
    assert cli("--json", "audit", asks).json[0]["subject"] == question

    assert cli("task", "cancel", asks, "--yes").code == 0
    assert actions(cli, asks) == ["task cancel", "inbox answer"]
    assert actions(cli, asks, "--limit", "1") == ["task cancel"]
    assert actions(cli, asks, "--action", "inbox") == ["inbox answer"]

    payer = here.world.in_doubt.split(":")[1]
    cli("activity", "resolve", here.world.in_doubt, "--give-up")
    assert actions(cli, payer) == ["activity resolve"]
    assert cli("audit", here.world.nap).code == 10


def test_audit_of_a_trigger_includes_actions_on_executions(cli, here):
    dead, why = here.world.dead, ("--reason", "nobody needs it")
    assert cli("execution", "skip", here.world.died, *why).code == 0

    assert actions(cli, dead) == ["execution skip"]
    assert cli("trigger", "requeue", dead).code == 0
    assert actions(cli, dead) == ["trigger requeue"]
    assert cli("audit", dead).err == (
        f"craftcore: more was done to its executions. See: craftcore audit {here.world.died}\n"
    )
    assert cli("audit", here.world.died).err == ""


def test_audit_filter_accepts_an_action_written_by_another_version(cli, here, core_audit):
    core_audit("record forget", "r-1")

    assert actions(cli, "--action", "record") == actions(cli, "--action", "record forget") == ["record forget"]
    assert cli("audit", "--action", "record for").code == 12


@pytest.fixture
def core_audit(here):
    from craftcore.audit.model import Actor
    from craftcore.audit.store import audit

    return lambda action, subject: here.core.do(audit, Actor(uid=1, name="ada"), action, subject)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--action", "task eat"], "action 'task eat' is unknown; it must be one of hold, release, trigger cancel, "),
        (["--action", "emit"], "action 'emit' is unknown"),
        (["--action", ""], "action '' is not a text"),
        (["--action", "\udcff"], "is not a text to look for"),
        (["--by", " "], "by ' ' is not a text"),
        (["--by", "\udcff"], "is not a text to look for"),
        (["--by", "4294967295"], "by 4294967295 is not a user id: the largest is 4294967294"),
        (["--by", "9" * 5_000], "is not a user id"),
        (["--since", "yesterday"], "'yesterday' is not a moment"),
        (["--since", "2026-11-21T12:00:00"], "since 2026-11-21T12:00:00 has no time zone"),
        (["--until", "nan"], "until nan"),
        (["--since", "200", "--until", "200"], "--since is not before --until"),
        (["--since", "200", "--until", "100"], "--since is not before --until"),
    ],
)
def test_bad_audit_filter_is_refused_with_the_reason(cli, here, arguments, words):
    refused = cli("audit", *arguments)

    assert (refused.code, words in refused.err, refused.out) == (12, True, ""), refused


@pytest.mark.parametrize("given", ["nothing", "activity:nothing", "%", "…x"])
def test_audit_of_an_id_without_actions_is_refused(cli, done, given):
    refused = cli("audit", given)

    assert (refused.code, f"no operator command has changed the id {given!r}" in refused.err) == (10, True)


def test_ambiguous_audit_id_is_refused(cli, here):
    cli("schedule", "pause", "nightly")
    cli("schedule", "add", "nights", "@daily", "--workflow", "nap")

    refused = cli("audit", "night")

    assert (refused.code, "fits several ids: nightly, nights" in refused.err) == (10, True)
    assert actions(cli, "nightl") == ["schedule pause"]


def test_audit_without_a_database_exits_10(cli):
    assert cli("audit").code == 10


@pytest.mark.parametrize(
    "column", ["name", "action", "subject", "reason", "details_json", "hash", "prev_hash", "uid", "at"]
)
def test_audit_row_with_invalid_utf8_is_listed_with_the_others(cli, done, column):
    done.core.close()
    damage(done.core.database.path, "audit_log", f"{column} = {NO_TEXT}", "seq = 2", any_type=True)

    assert cli("audit").code == 0
    row = cli("--json", "audit").json[-2]
    assert row["seq"] == 2
    if column == "details_json":
        assert row["details"] == {"damaged": r"\xffA"}
    else:
        assert row[column] == {"uid": -1, "at": 0.0}.get(column, r"\xffA")


def test_damaged_audit_row_is_shown_as_stored(cli, done):
    def damage(tx):
        tx.run("DROP TRIGGER audit_log_is_final")
        tx.run("UPDATE audit_log SET details_json = '{' WHERE seq = 2")

    done.core.do(damage)

    assert actions(cli, "--by", ME) == ["release", "schedule edit", "task cancel"]
    assert cli("--json", "audit", "nightly").json[0]["details"] == {"damaged": "{"}
    assert 'damaged "{"' in cli("audit", "nightly").out


def test_audit_by_a_person_of_the_page_finds_their_actions(cli, done):
    actor = Actor(uid=os.getuid(), name=ME, person="ada", via="web", request="r1")
    with audited_transaction(done.core, actor, "task cancel") as (_, scope):
        scope.record("0192", reason="twice")

    assert actions(cli, "--by", "ada") == ["task cancel"]
    assert f"ada, by the page ({ME}, uid {os.getuid()})" in cli("audit", "--by", "ada").out
