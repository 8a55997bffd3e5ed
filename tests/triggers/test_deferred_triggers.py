"""Triggers that are deferred because their key is at a limit: their rows and their keys."""

from __future__ import annotations

from typing import Any

import pytest

from craftcore.executions import starts_store
from craftcore.executions.model import envelope
from craftcore.executions.starts_store import StartsStore
from craftcore.serialization.canonical import canonicalize
from craftcore.triggers.limit_keys import KEY_MAX, KeyedLimit, LimitKey, key_text
from craftcore.triggers.limit_wait_store import LimitWaitStore
from craftcore.triggers.model import LIMITED_UNTIL, Claim
from tests.support.fakes import NEW_YEAR, VirtualCore
from tests.support.trigger_steps import claim_all, claim_one, emit, look

STORE = LimitWaitStore()
ADA, BOB = LimitKey("mail", '"ada"'), LimitKey("mail", '"bob"')
VALUES = [
    "a",
    "é\u2028\ud83d\ude00",
    'quote " and \\ back',
    1,
    1.0,
    1e300,
    -0.0,
    12345678901234567890,
    True,
    [],
    {"b": [1.5]},
]


def put_off(core: VirtualCore, *claims: Claim, key: LimitKey = ADA) -> None:
    core.do(lambda tx: STORE.put_off(tx, [(claim, "to", key) for claim in claims], weight=60.0))


def limit_waits(core: VirtualCore) -> list[dict[str, Any]]:
    with core.reading() as reader:
        return reader.fetch_all("SELECT trigger_seq, key FROM limit_waits ORDER BY trigger_seq")


def test_trigger_that_is_put_off_is_due_as_before_when_put_back(core):
    ids = [emit(core, priority=priority).id for priority in (60, 50, 50)]
    before = {id: look(core, id).due_at for id in ids}
    put_off(core, *claim_all(core))
    assert {look(core, id).due_at for id in ids} == {LIMITED_UNTIL}
    assert claim_all(core) == []

    assert [core.do(STORE.put_back, ADA, most) for most in (1, 9, 9)] == [1, 2, 0]

    assert {id: look(core, id).due_at for id in ids} == before
    assert [claim.id for claim in claim_all(core)] == [ids[1], ids[2], ids[0]]
    assert limit_waits(core) == []


def test_first_in_the_queue_is_put_back_first(core):
    last, first, second = (emit(core, priority=priority).id for priority in (60, 50, 50))
    put_off(core, *claim_all(core))

    for id in (first, second, last):
        core.do(STORE.put_back, ADA, 1)
        assert claim_one(core).id == id


def test_key_that_is_put_back_leaves_other_keys(core):
    emit(core)
    put_off(core, claim_one(core))
    other = emit(core).id
    put_off(core, claim_one(core), key=BOB)

    assert core.do(STORE.put_back, ADA, 9) == 1
    assert look(core, other).due_at == LIMITED_UNTIL


def test_claim_that_lost_its_lease_is_not_put_off(core):
    id = emit(core).id
    claim = claim_one(core)

    put_off(core, claim._replace(lease_token="another"))

    assert look(core, id).status == "CLAIMED"
    assert limit_waits(core) == []


@pytest.mark.parametrize("declared", [[], [("mail", "customer")], [("post", "to")]])
def test_limit_that_is_not_declared_any_more_puts_back_its_triggers(core, declared):
    id = emit(core).id
    put_off(core, claim_one(core))

    assert core.do(STORE.put_back_others, [("mail", "to")]) == 0
    assert core.do(STORE.put_back_others, declared) == 1
    assert claim_one(core).id == id


@pytest.mark.parametrize(
    "change",
    [
        "status = 'DONE', reason = 'cancelled', settled_at = 1",
        "not_before = NULL, due_at = fire_at",
        "not_before = 1, due_at = max(fire_at, 1)",
        "status = 'CLAIMED', claimed_epoch = 1, lease_token = 'x'",
    ],
)
def test_moved_trigger_is_removed_from_the_deferred_list(core, change):
    emit(core)
    emit(core)
    put_off(core, *claim_all(core))
    core.do(lambda tx: tx.run("UPDATE triggers SET updated_at = 7, fire_at = fire_at - 1 WHERE seq = 1"))
    assert len(limit_waits(core)) == 2

    core.do(lambda tx: tx.run(f"UPDATE triggers SET {change} WHERE seq = 1"))

    assert [row["trigger_seq"] for row in limit_waits(core)] == [2]


def test_damaged_row_does_not_hide_other_keys(core):
    emit(core)
    put_off(core, claim_one(core))
    core.do(
        lambda tx: tx.run(
            "INSERT INTO limit_waits (trigger_seq, workflow, limit_by, key, rank, priority) "
            "VALUES (98, 'mail', 'to', CAST(x'ff' AS TEXT), 1, 1), (99, 'gone', 'to', '1', 1, 1)"
        )
    )

    with core.reading() as reader:
        assert STORE.list_keys(reader, {"mail"}) == {ADA, LimitKey("mail", "\ufffd")}


# Keys of triggers


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_key_of_a_start_is_that_of_its_trigger(core, value):
    """The key is read from the record after a restart, and from the trigger otherwise."""
    limits = {"mail": KeyedLimit("to", None, 1, 60.0), "post": KeyedLimit("session_id", None, 1, 60.0)}
    payload = canonicalize({"to": value, "z": 1})
    with core.transaction() as tx:
        for seq, workflow in enumerate(("mail", "post"), 1):
            request = envelope(
                workflow=workflow,
                payload_json=payload,
                request_id="t",
                source="IMMEDIATE",
                session_id="s",
                description=None,
            )
            tx.run(
                """
                INSERT INTO executions (seq, id, trigger_id, attempt, epoch, workflow, created_at, envelope_json,
                                        envelope_hash)
                VALUES (:seq, 'exec-t.' || :seq, 't', 1, 1, :workflow, :now, :envelope, 'h')
                """,
                seq=seq,
                workflow=workflow,
                envelope=request.text,
            )

    with core.reading() as reader:
        starts, are_all = StartsStore().list_keyed_since(reader, limits, NEW_YEAR - 60, NEW_YEAR)

    key = key_text("to", None, payload)
    assert key is not None
    assert (starts, are_all) == ([(LimitKey("post", '"s"'), NEW_YEAR), (LimitKey("mail", key), NEW_YEAR)], True)


@pytest.mark.parametrize("text", ["", "{", "not json", "[]"])
def test_start_with_a_damaged_record_and_no_trigger_has_no_key(core, monkeypatch, text):
    with core.transaction() as tx:
        for seq in (1, 2):
            tx.run(
                "INSERT INTO executions (seq, id, trigger_id, attempt, epoch, workflow, created_at, envelope_json, "
                "envelope_hash) VALUES (:seq, :seq, 't', 1, 1, 'mail', :now, :text, 'h')",
                seq=seq,
                text=text,
            )
    monkeypatch.setattr(starts_store, "READ_MAX", 1)

    with core.reading() as reader:
        limits = {"mail": KeyedLimit("to", None, 1, 60.0)}
        assert StartsStore().list_keyed_since(reader, limits, NEW_YEAR - 60, NEW_YEAR) == ([], False)
        assert StartsStore().list_keyed_since(reader, limits, NEW_YEAR, NEW_YEAR) == ([], True)


@pytest.mark.parametrize("payload", ["{}", '{"to":null}', "", None, b"\xff", "[1]", "{"])
def test_payload_without_a_value_has_no_key(payload):
    assert key_text("to", "s", payload) is None


def test_long_key_is_known_by_its_hash():
    short, long = ("x" * (KEY_MAX - 2), "x" * (KEY_MAX - 1))
    assert key_text("session_id", short, None) == f'"{short}"'
    assert str(key_text("session_id", long, None)).startswith("sha256:")
    assert key_text("session_id", long, None) == key_text("to", None, canonicalize({"to": long}))
