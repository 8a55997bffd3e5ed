"""Filters of the audit log, and a bounded cost in a long log."""

from __future__ import annotations

import pytest

from craftcore.audit.listing_store import NEWEST, NEWEST_OF, AuditFilter, AuditListStore
from craftcore.audit.model import Actor
from craftcore.audit.store import audit
from tests.support.fakes import NEW_YEAR
from tests.triggers.test_claim_plans import connection_of, steps_of

ADA, BOB, SERVICE = Actor(uid=1000, name="ada"), Actor(uid=1001, name="bob"), Actor(uid=990, name="craftcore")
NO_FILTER = {**dict.fromkeys(("action", "uid", "name", "since", "until")), "after": 0, "before": 100, "limit": 1}


def list_seqs(core, limit=100, **filters):
    with core.reading() as reader:
        return [row.seq for row in AuditListStore().list_newest(reader, limit, AuditFilter(**filters))]


@pytest.fixture
def log(core, clock):
    """Write four rows: ada cancels t-1, bob pauses a schedule as the service user, ada releases, bob cancels t-2."""
    for actor, action, subject, details in (
        (ADA, "task cancel", "t-1", {}),
        (SERVICE, "schedule pause", "nightly", {"login_uid": 1001, "login_name": "bob"}),
        (ADA, "release", None, {}),
        (BOB, "task cancel", "t-2", {}),
    ):
        core.do(audit, actor, action, subject, details=details)
        clock.advance(60)
    return core


def test_audit_list_is_newest_first(log):
    assert list_seqs(log) == [4, 3, 2, 1]
    assert list_seqs(log, limit=2) == [4, 3]


@pytest.mark.parametrize(
    ("filters", "seqs"),
    [
        ({"subject": "t-1"}, [1]),
        ({"subject": "t-"}, []),
        ({"action": "task cancel"}, [4, 1]),
        ({"action": "task"}, [4, 1]),
        ({"action": "tas"}, []),
        ({"action": "schedule"}, [2]),
        ({"uid": 1000}, [3, 1]),
        ({"name": "ada"}, [3, 1]),
        ({"uid": 1001}, [4, 2]),
        ({"name": "bob"}, [4, 2]),
        ({"name": "craftcore"}, [2]),
        ({"since": NEW_YEAR + 60}, [4, 3, 2]),
        ({"until": NEW_YEAR + 60}, [1]),
        ({"since": NEW_YEAR + 60, "until": NEW_YEAR + 180}, [3, 2]),
        ({"action": "task", "name": "bob", "subject": "t-2"}, [4]),
        ({"before": 3}, [2, 1]),
        ({"after": 1, "before": 4}, [3, 2]),
        ({"subject": "t-1", "before": 1}, []),
    ],
)
def test_audit_list_can_be_filtered(log, filters, seqs):
    assert list_seqs(log, **filters) == seqs


def test_clock_set_back_hides_no_audit_row_of_a_span(log, clock):
    clock.set_back(3600)
    log.do(audit, ADA, "release")

    assert list_seqs(log, since=NEW_YEAR) == [4, 3, 2, 1]
    assert list_seqs(log, until=NEW_YEAR) == [5]


def test_audit_subject_may_be_shortened_while_unambiguous(log):
    with log.reading() as reader:
        like = AuditListStore().subjects_like
        assert like(reader, "night") == ["nightly"]
        assert like(reader, "t-") == ["t-1", "t-2"]
        assert like(reader, "x") == []


def test_audit_queries_use_an_index(core):
    [plan] = core.rows(f"EXPLAIN QUERY PLAN {NEWEST}", **NO_FILTER)
    # SQLite searches from the end of the table.
    assert plan["detail"] == "SEARCH audit_log USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"
    [plan] = core.rows(f"EXPLAIN QUERY PLAN {NEWEST_OF}", **NO_FILTER, subject="t-1")
    assert plan["detail"] == "SEARCH audit_log USING INDEX audit_log_subject (subject=? AND seq>? AND seq<?)"


def test_audit_list_of_a_long_log_costs_no_more_than_a_short_log(core):
    """The newest rows, the newest rows of a subject, and subjects by prefix cost the same over 10 and 5,000 rows."""

    def fill(tx, count):
        for _ in range(count):
            audit(tx, ADA, "schedule pause", "nightly")
        audit(tx, ADA, "task cancel", "t-1")

    def steps(tx):
        listing = AuditListStore()
        return [
            steps_of(tx, lambda: listing.list_newest(tx, 5, AuditFilter())),
            steps_of(tx, lambda: listing.list_newest(tx, 5, AuditFilter(subject="t-1"))),
            steps_of(tx, lambda: listing.subjects_like(tx, "t-1")),
            steps_of(tx, lambda: listing.subjects_like(tx, "n")),
        ]

    with core.transaction() as tx:
        assert connection_of(tx).in_transaction
        fill(tx, 10)
        few = steps(tx)
        tx.run("UPDATE record_chain SET audit_anchor_seq = 11")
        tx.run("DELETE FROM audit_log")
        tx.run("UPDATE record_chain SET audit_anchor_seq = 0")
        fill(tx, 5_000)
        many = steps(tx)

    assert many == few
