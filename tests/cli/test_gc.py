"""`craftcore db gc`, and the retention section of `craftcore db stats`, as text and as JSON."""

from __future__ import annotations

import os
import re
import socket
import sys

import apsw
import pytest

from craftcore.daemon.lock import DaemonLock
from tests.support.retention_harness import DAY, assert_sound
from tests.support.trigger_steps import emit, run_one


def make_three_old_triggers(core, clock) -> None:
    for name in ("Ada", "Grace", "Hedy"):
        emit(
            core,
            payload={"name": name},
            dedup_key=name if name == "Grace" else None,
            dedup_scope="ever" if name == "Grace" else None,
        )
        run_one(core)
    clock.advance(DAY)


def test_gc_dry_run_reports_due_rows_and_changes_nothing(cli, core, clock):
    make_three_old_triggers(core, clock)
    before = core.rows("SELECT * FROM triggers")

    document = cli("--json", "db", "gc", "--dry-run").json

    assert document["dry_run"] is True
    assert document["due"]["triggers"] == 3
    assert {kind for kind, count in document["due"].items() if count} == {"triggers"}
    [(table, due)] = document["tables"].items()
    assert (table, due["rows"]) == ("triggers", 3)
    assert cli("db", "gc", "--dry-run").out == f"would take 3 of triggers, {due['bytes']:,} bytes\n"
    assert core.rows("SELECT * FROM triggers") == before
    assert core.rows("SELECT * FROM audit_log") == []


def test_manual_gc_removes_rows_like_a_daemon_and_reports_by_table(cli, core, clock):
    make_three_old_triggers(core, clock)

    document = cli("--json", "db", "gc").json

    assert (document["removed"], document["stripped"]) == ({"triggers": 1}, {"triggers": 2})
    assert (document["dry_run"], document["vacuumed"], document["gives_pages_back"]) == (False, False, True)
    assert_sound(core)
    again = cli("db", "gc")
    assert again.code == 0
    assert re.fullmatch(r"nothing is old enough to go\n0 pages given back, \d are free\n", again.out)
    assert [row["action"] for row in core.rows("SELECT action FROM audit_log")] == ["db gc", "db gc"]


def test_gc_reports_each_table_in_text(cli, core, clock):
    make_three_old_triggers(core, clock)

    lines = cli("db", "gc", "--dry-run").out.splitlines()

    assert lines[0].startswith("would take 3 of triggers, ")
    assert cli("db", "gc").out.splitlines()[:1] == [lines[0].replace("would take", "took")]


def test_gc_with_json_reports_the_same_before_and_after(cli, core, clock):
    make_three_old_triggers(core, clock)

    due = cli("--json", "db", "gc", "--dry-run").json["tables"]

    assert due["triggers"]["rows"] == 3
    assert due["triggers"]["bytes"] > 0
    assert cli("--json", "db", "gc").json["tables"] == due
    assert cli("--json", "db", "gc", "--dry-run").json["tables"] == {}


@pytest.mark.parametrize(
    ("options", "verb"), [(["--dry-run"], "looking for"), ([], "taking"), (["--vacuum"], "taking")]
)
def test_gc_at_a_terminal_shows_progress(cli, core, clock, monkeypatch, options, verb):
    monkeypatch.setattr("craftcore.cli.progress.EVERY_SECONDS", 0.0)
    make_three_old_triggers(core, clock)
    assert "\r" not in cli("db", "gc", "--dry-run").err
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)

    progress = cli("db", "gc", *options).err

    assert progress.startswith(f"\r{verb} what is old, 0 s")
    assert progress.endswith("\r\x1b[K")
    assert cli("--json", "db", "gc", *options).err == ""


def test_gc_uses_the_settings_file(cli, core, clock, tmp_path):
    make_three_old_triggers(core, clock)
    settings = tmp_path / "craftcore.toml"
    settings.write_text("[retention]\ntriggers = 0\n")

    assert cli("--config", str(settings), "db", "gc", "--dry-run").out == "nothing is old enough to go\n"
    settings.write_text("[retention]\nsettled = 0\n")
    assert cli("--config", str(settings), "db", "gc").code == 78


def test_file_without_auto_vacuum_is_reported_and_rebuilt_by_gc_vacuum(cli, core, database):
    emit(core)
    core.close()
    connection = apsw.Connection(str(database))
    connection.pragma("journal_mode", "delete")
    connection.pragma("auto_vacuum", "none")
    connection.execute("VACUUM")
    connection.close()

    reported = cli("db", "gc")
    assert "craftcore --db" in reported.out or "db gc --vacuum" in reported.out
    assert cli("--json", "db", "gc").json["gives_pages_back"] is False

    vacuumed = cli("--json", "db", "gc", "--vacuum").json
    assert (vacuumed["vacuumed"], vacuumed["gives_pages_back"]) == (True, True)
    assert_sound(core)
    assert cli("db", "gc").out.count("vacuum") == 0


def test_gc_vacuum_beside_a_daemon_is_refused_and_writes_nothing(cli, core, clock, database):
    make_three_old_triggers(core, clock)

    with DaemonLock.acquire(database, pid=os.getpid(), host=socket.gethostname(), now=clock.now()):
        refused = cli("db", "gc", "--vacuum")
        assert (refused.code, refused.out) == (75, "")
        assert core.rows("SELECT * FROM audit_log") == []
        assert cli("db", "gc").code == 0


@pytest.mark.parametrize("options", [[], ["--dry-run"], ["--vacuum"]])
def test_gc_without_a_database_creates_none(cli, database, options):
    assert cli("db", "gc", *options).code == 10
    assert not database.exists()
    assert list(database.parent.glob(f"{database.name}*")) == []


def test_stats_show_the_oldest_rows_and_due_rows(cli, core, clock):
    make_three_old_triggers(core, clock)

    document = cli("--json", "db", "stats").json

    assert document["due"]["triggers"] == 3
    assert document["oldest"]["triggers"]["at"] == clock.now() - DAY
    assert document["oldest"]["tasks"] == {"at": None, "at_iso": None}
    out = cli("db", "stats").out
    assert "retention would take triggers: 3" in out
