"""A person invalidates a record: the log says it, the record stays as it was."""

from __future__ import annotations

import pytest

from craftcore.errors import NotFound, StateRefused
from craftcore.executions.invalidation import Invalidation
from craftcore.executions.record import faults, why_not_replayable
from craftcore.executions.record_store import RecordStore
from craftcore.executions.recorder import Attempt, Record, Recorder, Routed
from craftcore.storage.audit import Actor, audited
from craftcore.triggers.settlement import Succeeded
from tests.triggers.life import emit, start_one
from tests.virtual import VirtualClock, VirtualCore

ADA = Actor(1000, "ada")
GREET = Routed("greet", "explicit workflow")
RECORDER = Recorder()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "agent.db"


@pytest.fixture
def core(path):
    core = VirtualCore(path, VirtualClock())
    yield core
    core.close()


def begin(core: VirtualCore) -> Record:
    emit(core)
    [record] = core.do(RECORDER.open_all, 1, [Attempt(start_one(core), GREET)])
    return record


def finish(core: VirtualCore, record: Record) -> None:
    core.do(RECORDER.close_all, [(record, Succeeded(result_json='"hi"'))])


def a_record(core: VirtualCore) -> str:
    record = begin(core)
    finish(core, record)
    return record.id


def look(core: VirtualCore, id_: str):
    with core.reading() as reader:
        record = RecordStore().get(reader, id_)
    assert record is not None
    return record


def test_an_invalidated_record_is_not_replayable_after_a_restart_and_is_as_it_was(core, path):
    id_ = a_record(core)
    [before] = core.rows("SELECT * FROM executions")
    assert why_not_replayable(look(core, id_)) is None

    told = core.do(Invalidation().invalidate, id_, ADA, "the price was wrong")
    core.close()

    again = VirtualCore(path, VirtualClock())
    record = look(again, id_)
    assert record == told
    assert (why_not_replayable(record), record.invalidated) == ("manually_invalidated", "the price was wrong")
    assert faults(record) == []
    assert again.rows("SELECT * FROM executions") == [before]
    again.close()


def test_the_log_says_who_did_it_to_what_and_why(core):
    id_ = a_record(core)

    core.do(Invalidation().invalidate, id_, ADA, "the price was wrong")

    with core.reading() as reader:
        [row] = audited(reader)
    assert (row.action, row.subject, row.reason) == ("invalidate", id_, "the price was wrong")
    assert (row.uid, row.name) == (1000, "ada")
    assert row.details == {"record_hash": look(core, id_).record_hash}


def test_one_that_is_invalidated_is_not_invalidated_again(core):
    id_ = a_record(core)
    core.do(Invalidation().invalidate, id_, ADA, "the price was wrong")

    with pytest.raises(StateRefused, match="already: the price was wrong"):
        core.do(Invalidation().invalidate, id_, ADA, "again")

    assert core.rows("SELECT count(*) AS rows FROM audit_log") == [{"rows": 1}]


def test_one_that_is_not_there_cannot_be_invalidated(core):
    with pytest.raises(NotFound, match=r"no execution exec-t\.1"):
        core.do(Invalidation().invalidate, "exec-t.1", ADA, "why not")

    assert core.rows("SELECT * FROM audit_log") == []


def test_one_may_be_invalidated_before_its_end_and_is_not_replayable_then(core):
    record = begin(core)

    core.do(Invalidation().invalidate, record.id, ADA, "the input was wrong")

    assert why_not_replayable(look(core, record.id)) == "execution_incomplete", "which it is, first of all"
    finish(core, record)
    assert why_not_replayable(look(core, record.id)) == "manually_invalidated"
