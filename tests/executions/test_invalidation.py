"""Invalidation of records: a row in the audit log, and an unchanged record."""

from __future__ import annotations

import pytest

from craftcore.audit.model import Actor
from craftcore.audit.store import list_rows
from craftcore.errors import NotFound, StateRefused
from craftcore.executions.record import faults, refusal_to_replay
from craftcore.executions.record_store import RecordStore
from craftcore.operations.executions import invalidate_record
from craftcore.triggers.settlement import Succeeded
from tests.support.attempts import begin, end
from tests.support.fakes import VirtualClock, VirtualCore

ADA = Actor(1000, "ada")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "agent.db"


@pytest.fixture
def core(path):
    core = VirtualCore(path, VirtualClock())
    yield core
    core.close()


def write_record(core: VirtualCore) -> str:
    begun = begin(core)
    end(core, begun, Succeeded(result_json='"hi"'))
    return begun.id


def look(core: VirtualCore, id_: str):
    with core.reading() as reader:
        record = RecordStore().get(reader, id_)
    assert record is not None
    return record


def test_invalidated_record_stays_unreplayable_and_unchanged_after_a_restart(core, path):
    id_ = write_record(core)
    [before] = core.rows("SELECT * FROM executions")
    assert refusal_to_replay(look(core, id_)) is None

    returned = core.do(invalidate_record, id_, ADA, "the price was wrong")
    core.close()

    again = VirtualCore(path, VirtualClock())
    record = look(again, id_)
    assert record == returned
    assert (refusal_to_replay(record), record.invalidated) == ("manually_invalidated", "the price was wrong")
    assert faults(record) == []
    assert again.rows("SELECT * FROM executions") == [before]
    again.close()


def test_invalidation_is_in_the_audit_log_with_actor_subject_and_reason(core):
    id_ = write_record(core)

    core.do(invalidate_record, id_, ADA, "the price was wrong")

    with core.reading() as reader:
        [row] = list_rows(reader)
    assert (row.action, row.subject, row.reason) == ("invalidate", id_, "the price was wrong")
    assert (row.uid, row.name) == (1000, "ada")
    assert row.details == {"record_hash": look(core, id_).record_hash}


def test_invalidation_of_an_invalidated_record_is_refused(core):
    id_ = write_record(core)
    core.do(invalidate_record, id_, ADA, "the price was wrong")

    with pytest.raises(StateRefused, match="already: the price was wrong"):
        core.do(invalidate_record, id_, ADA, "again")

    assert core.rows("SELECT count(*) AS rows FROM audit_log") == [{"rows": 1}]


def test_invalidation_of_an_unknown_record_is_refused(core):
    with pytest.raises(NotFound, match=r"no execution exec-t\.1"):
        core.do(invalidate_record, "exec-t.1", ADA, "why not")

    assert core.rows("SELECT * FROM audit_log") == []


def test_invalidation_before_the_end_makes_the_record_unreplayable(core):
    begun = begin(core)

    core.do(invalidate_record, begun.id, ADA, "the input was wrong")

    assert refusal_to_replay(look(core, begun.id)) == "execution_incomplete", (
        "an open record is incomplete first of all"
    )
    end(core, begun, Succeeded(result_json='"hi"'))
    assert refusal_to_replay(look(core, begun.id)) == "manually_invalidated"
