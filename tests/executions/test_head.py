"""Detection of a truncated or rewritten chain of records by a head that is stored elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from craftcore.audit.model import Actor
from craftcore.audit.store import audit
from craftcore.errors import InvalidInput
from craftcore.executions.chain.head import Head, head_from, head_text
from craftcore.executions.chain.verify import Verification
from craftcore.executions.chain.verify_rules import Fault
from craftcore.executions.recorder import AttemptInfo, Recorder, Routed
from craftcore.triggers.settlement import Succeeded
from tests.support.fakes import NEW_YEAR, VirtualClock, VirtualCore
from tests.support.recorded_executions import remove_up_to
from tests.support.trigger_steps import emit, start_one


@pytest.fixture
def core(sound: Path, tmp_path: Path) -> Iterator[VirtualCore]:
    (tmp_path / "agent.db").write_bytes(sound.read_bytes())
    core = VirtualCore(tmp_path / "agent.db", VirtualClock())
    yield core
    core.close()


def head_of(core: VirtualCore) -> Head:
    with core.reading() as reader:
        verification = Verification(reader, NEW_YEAR)
        assert list(verification.faults()) == []
        assert verification.head is not None
        return verification.head


def faults(core: VirtualCore, before: Head) -> list[Fault]:
    with core.reading() as reader:
        return list(Verification(reader, NEW_YEAR, before).faults())


def add_record(core: VirtualCore, id: str) -> None:
    recorder = Recorder()
    emit(core, id=id)
    [record] = core.do(recorder.open_all, 1, [AttemptInfo(start_one(core), Routed("greet", "explicit workflow"))])
    core.do(recorder.close_all, [(record, Succeeded(result_json="1"))])


def test_head_can_be_written_and_read_back(core):
    head = head_of(core)

    assert head_from(head_text(head)) == head
    assert head.place > 5
    assert head.hash.startswith("sha256:")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "Expecting value"),
        ("[]", "it is not one"),
        ("{}", "it is not one"),
        ('{"craftcore_head": 2}', "it is not one"),
        ('{"craftcore_head": 1}', "missing"),
        ('{"craftcore_head": 1, "more": 1}', "more"),
        ("\x00", "Expecting value"),
    ],
)
def test_head_of_another_file_is_refused(text, expected):
    with pytest.raises(InvalidInput, match=expected):
        head_from(text)


@pytest.mark.parametrize(
    "name", ["at", "place", "hash", "newest", "unchained_to", "removed", "audit_place", "audit_hash"]
)
def test_head_with_a_value_of_another_kind_is_refused(core, name):
    fields = {"craftcore_head": 1, **asdict(head_of(core))}

    values: list[Any] = [None, [], {}, True]
    for value in values:
        with pytest.raises(InvalidInput, match=f"{name} is"):
            head_from(json.dumps({**fields, name: value}))


def test_head_holds_after_later_records(core):
    before = head_of(core)
    add_record(core, "later")
    core.do(audit, Actor(1, "ada"), "task retry")

    assert faults(core, before) == []
    assert faults(core, head_of(core)) == []


def test_head_of_an_empty_file_holds_for_all_later_records(tmp_path):
    core = VirtualCore(tmp_path / "agent.db", VirtualClock())
    before = head_of(core)
    assert (before.place, before.hash, before.newest, before.audit_place) == (0, "", 0, 0)

    add_record(core, "first")

    assert faults(core, before) == []
    core.close()


@pytest.mark.parametrize("beyond", [0, 1])
def test_head_that_retention_has_reached_holds(core, beyond):
    """The hash of the record at the anchor is still known. Before the anchor, only the number of removed records is."""
    first = core.rows("SELECT chain_seq, record_hash FROM executions WHERE chain_seq IS NOT NULL ORDER BY chain_seq")[0]
    before = replace(head_of(core), place=first["chain_seq"], hash=first["record_hash"])

    core.do(remove_up_to, first["chain_seq"] + beyond)

    assert faults(core, before) == []
    if beyond == 0:
        [fault] = faults(core, replace(before, hash="sha256:another"))
        assert "is not the one that the head from before knew" in fault.wrong


def drop_guard(core: VirtualCore, table: str) -> None:
    core.do(lambda tx: tx.run(f"DROP TRIGGER {table}_{'is' if table == 'audit_log' else 'are'}_kept"))


def test_cut_off_tail_that_has_grown_again_is_detected_by_a_head(core):
    """The chain has as many records as before, and its last record differs from that of the head."""
    add_record(core, "cut")
    before = head_of(core)
    last = core.rows("SELECT seq, prev_hash, chain_seq FROM executions ORDER BY chain_seq DESC LIMIT 1")[0]
    for table in ("events", "executions"):
        drop_guard(core, table)
    core.do(lambda tx: tx.run("DELETE FROM event_rows WHERE execution_seq = :seq", seq=last["seq"]))
    core.do(lambda tx: tx.run("DELETE FROM executions WHERE seq = :seq", seq=last["seq"]))
    core.do(
        lambda tx: tx.run(
            "UPDATE record_chain SET head_seq = :place - 1, head_hash = :hash",
            place=last["chain_seq"],
            hash=last["prev_hash"],
        )
    )
    assert "were cut off" in faults(core, before)[0].wrong

    add_record(core, "another")

    assert head_of(core).place == before.place
    [fault] = faults(core, before)
    assert "is not the one that the head from before knew" in fault.wrong


def test_cut_off_end_of_the_audit_log_is_detected_by_a_head(core):
    before = head_of(core)
    drop_guard(core, "audit_log")
    core.do(lambda tx: tx.run("DELETE FROM audit_log WHERE seq = :seq", seq=before.audit_place))

    [fault] = faults(core, before)
    assert "the operators' log ends at row" in fault.wrong

    core.do(audit, Actor(1, "eve"), "task cancel")
    [fault] = faults(core, before)
    assert fault.wrong.startswith("row of the operators' log")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"newest": 10**6}, "knew number 1000000"),
        ({"unchained_to": 10**6}, "was changed since the head was written"),
        ({"removed": 10**6}, "was changed since the head was written"),
        ({"place": 10**6}, "was at place 1000000"),
        ({"audit_place": 10**6}, "was at row 1000000"),
        ({"hash": "sha256:other"}, "is not the one that the head from before knew"),
        ({"audit_hash": "sha256:other"}, "is not the one that the head from before knew"),
    ],
)
def test_head_fields_are_all_compared(core, change, expected):
    found = faults(core, replace(head_of(core), **change))

    assert expected in found[0].wrong


def test_missing_records_that_retention_did_not_count_are_found(core):
    """The anchor was moved. The file is consistent, and only the head shows the missing records."""
    first = core.rows("SELECT chain_seq, record_hash FROM executions WHERE chain_seq IS NOT NULL ORDER BY chain_seq")[0]
    before = replace(head_of(core), place=first["chain_seq"], hash=first["record_hash"])
    core.do(remove_up_to, first["chain_seq"] + 1)
    core.do(lambda tx: tx.run("UPDATE record_chain SET removed = removed - 2"))

    wrong = [fault.wrong for fault in faults(core, before)]

    assert wrong[-1] == "records were removed since that head, and retention removed none"
