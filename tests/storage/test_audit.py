"""The audit log: chained, immutable, and written in the commit of each change."""

from __future__ import annotations

import json
import signal

import pytest

from craftcore.audit.model import Actor
from craftcore.audit.store import NAME_MAX, TEXT_MAX, audit, list_rows
from craftcore.errors import DatabaseInvalid, RowInvalid, StateRefused
from craftcore.serialization.canonical import canonicalize, sha256_of
from tests.support.fakes import a_trigger
from tests.support.processes import PATIENCE, environment
from tests.support.warm_parent import start

ADA = Actor(uid=1000, name="ada")


def rows(core):
    with core.reading() as reader:
        return list(list_rows(reader))


def audit_as_ada(core, action="task cancel", subject=None, **more):
    return core.do(audit, ADA, action, subject, **more)


def prune_audit(core, row):
    """Remove the audit rows up to the given row and move the anchor, as retention does."""

    def move_anchor(tx):
        tx.run("UPDATE record_chain SET audit_anchor_seq = :seq, audit_anchor_hash = :hash", seq=row.seq, hash=row.hash)
        tx.run("DELETE FROM audit_log WHERE seq <= :seq", seq=row.seq)

    core.do(move_anchor)


def test_audit_row_has_actor_time_action_subject_and_reason(core, clock):
    seq = audit_as_ada(core, "task cancel", "t-1", reason="wrong city", details={"turn": 3, "at": None})

    [row] = rows(core)

    assert (row.seq, row.at, row.uid, row.name) == (seq, clock.now(), 1000, "ada")
    assert (row.action, row.subject, row.reason) == ("task cancel", "t-1", "wrong city")
    assert row.details == {"turn": 3, "at": None}


def test_audit_row_without_a_subject_or_reason_has_neither(core):
    audit_as_ada(core, "release")

    [row] = rows(core)

    assert (row.subject, row.reason, row.details) == (None, None, {})


def test_audit_row_is_chained_to_the_row_before(core):
    for number in range(4):
        audit_as_ada(core, "task cancel", f"t-{number}")

    chain = rows(core)

    assert [row.seq for row in chain] == [1, 2, 3, 4]
    assert [row.prev_hash for row in chain] == ["", *(row.hash for row in chain[:-1])]
    assert [row.hash for row in chain] == [row.hash_now for row in chain]


def test_audit_hash_covers_the_whole_row(core):
    audit_as_ada(core, "task cancel", "t-1", reason="wrong city", details={"turn": 3})

    [row] = rows(core)

    whole = [1, row.at, 1000, "ada", "task cancel", "t-1", "wrong city", {"turn": 3}, ""]
    assert row.hash == sha256_of(canonicalize(whole))


def test_audit_rows_can_be_read_from_a_number(core):
    for _ in range(3):
        audit_as_ada(core)

    with core.reading() as reader:
        assert [row.seq for row in list_rows(reader, after=1)] == [2, 3]


def test_long_audit_text_is_cut_and_the_row_has_its_hash(core):
    actor = Actor(uid=1, name="n" * (NAME_MAX + 1))
    core.do(audit, actor, "task cancel", reason="r" * (TEXT_MAX + 1), details={"choice": "c" * (TEXT_MAX + 1)})

    [row] = rows(core)

    assert (len(row.name), len(row.reason), len(row.details["choice"])) == (NAME_MAX, TEXT_MAX, TEXT_MAX)
    assert row.hash == row.hash_now


def test_invalid_audit_text_is_escaped(core):
    core.do(audit, Actor(uid=1, name="a\udcff"), "release", reason="\ud800", details={"choice": "\udcff"})

    [row] = rows(core)

    assert (row.name, row.reason, row.details["choice"]) == ("a\\udcff", "\\ud800", "\\udcff")


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE audit_log SET name = 'bob'",
        "UPDATE audit_log SET reason = NULL WHERE seq = 1",
        "UPDATE OR REPLACE audit_log SET seq = 2 WHERE seq = 1",
        "DELETE FROM audit_log WHERE seq = 2",
        "DELETE FROM audit_log",
    ],
)
def test_audit_row_is_neither_changed_nor_removed(core, change):
    audit_as_ada(core), audit_as_ada(core)
    before = rows(core)

    with pytest.raises(RowInvalid, match="the log of what people did"):
        core.do(lambda tx: tx.run(change))

    assert rows(core) == before


def test_retention_removes_oldest_audit_rows_and_the_chain_continues(core):
    for _ in range(3):
        audit_as_ada(core)
    _, second, third = rows(core)

    prune_audit(core, second)
    audit_as_ada(core)

    assert [(row.seq, row.prev_hash) for row in rows(core)] == [(3, second.hash), (4, third.hash)]


def test_audit_row_after_complete_retention_is_chained_to_the_last_removed(core):
    audit_as_ada(core), audit_as_ada(core)
    last = rows(core)[-1]

    prune_audit(core, last)
    audit_as_ada(core)

    assert [(row.seq, row.prev_hash) for row in rows(core)] == [(3, last.hash)]


def test_damaged_audit_hash_does_not_stop_the_next_row(core):
    for _ in range(2):
        audit_as_ada(core)

    def damage(tx):
        tx.run("DROP TRIGGER audit_log_is_final")
        tx.run("UPDATE audit_log SET hash = CAST(x'ff' AS TEXT) WHERE seq = 2")

    core.do(damage)

    assert audit_as_ada(core, "task cancel", "t-1") == 3
    [after] = core.rows("SELECT prev_hash, subject FROM audit_log WHERE seq = 3")
    assert after == {"prev_hash": r"\xff", "subject": "t-1"}


def test_audit_log_without_its_beginning_accepts_no_row(core):
    core.do(lambda tx: tx.run("DELETE FROM record_chain"))

    with pytest.raises(DatabaseInvalid, match="the end of the operators' log is damaged"):
        audit_as_ada(core)


def test_refused_change_leaves_no_audit_rows(core):
    """The second of two triggers is already settled, so neither the first cancel nor its audit row remains."""
    waiting, settled = (core.do(core.triggers.emit, a_trigger()).id for _ in range(2))
    core.do(core.triggers.cancel, settled, "cancelled")

    def cancel_both(tx):
        for trigger_id in (waiting, settled):
            core.triggers.cancel(tx, trigger_id, "cancelled")
            audit(tx, ADA, "trigger cancel", trigger_id)

    with pytest.raises(StateRefused):
        core.do(cancel_both)

    assert rows(core) == []
    [row] = core.rows("SELECT status FROM triggers WHERE id = :id", id=waiting)
    assert row["status"] == "PENDING"


def test_unwritable_audit_row_rolls_back_the_change(core):
    waiting = core.do(core.triggers.emit, a_trigger()).id

    def cancel_and_audit(tx):
        core.triggers.cancel(tx, waiting, "cancelled")
        audit(tx, ADA, "trigger cancel", waiting, details={"not JSON": object()})

    with pytest.raises(TypeError):
        core.do(cancel_and_audit)

    [row] = core.rows("SELECT status FROM triggers WHERE id = :id", id=waiting)
    assert (row["status"], rows(core)) == ("PENDING", [])


KILLED_PROGRAM = """
import json, os, signal, sys
from pathlib import Path
from craftcore.config import Config
from craftcore.services import Services
from craftcore.audit.model import Actor
from craftcore.audit.store import audit

path, trigger_id, dies = sys.argv[1:]

def die_if(point):
    if point == dies:
        os.kill(os.getpid(), signal.SIGKILL)

core = Services(Path(path), Config())
with core.transaction() as tx:
    core.triggers.cancel(tx, trigger_id, "cancelled")
    die_if("between")
    audit(tx, Actor(uid=1000, name="ada"), "trigger cancel", trigger_id)
    die_if("before the commit")
die_if("after the commit")
"""


@pytest.mark.parametrize(
    ("dies", "status", "written"),
    [("between", "PENDING", 0), ("before the commit", "PENDING", 0), ("after the commit", "DONE", 1)],
)
def test_crash_shows_change_and_audit_row_or_neither(core, tmp_path, dies, status, written):
    waiting = core.do(core.triggers.emit, a_trigger()).id
    path = str(core.database.path)
    core.close()

    with start(["-c", KILLED_PROGRAM, path, waiting, dies], env=environment(), cwd=tmp_path) as process:
        assert process.wait(PATIENCE) == -signal.SIGKILL

    [row] = core.rows("SELECT status FROM triggers WHERE id = :id", id=waiting)
    assert (row["status"], len(rows(core))) == (status, written)


def test_audit_details_are_canonical(core):
    audit_as_ada(core, details={"b": 1, "a": "é"})

    [row] = core.rows("SELECT details_json FROM audit_log")

    assert row["details_json"] == canonicalize({"a": "é", "b": 1})
    assert json.loads(row["details_json"]) == {"a": "é", "b": 1}
