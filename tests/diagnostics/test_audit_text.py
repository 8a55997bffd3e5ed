"""The actor of an audit row as text."""

from dataclasses import replace

from craftcore.audit.model import Actor, AuditRow
from craftcore.diagnostics.text.audit_text import actor_text, other_details
from craftcore.serialization.canonical import canonicalize

ROW = AuditRow(
    seq=1, at=0.0, uid=997, name="craftcore", action="inbox answer", subject=None, reason=None,
    details_json="{}", prev_hash="", hash="",
)  # fmt: skip


def row_of(actor: Actor, **details):
    return replace(ROW, name=actor.name, details_json=canonicalize({**details, **actor.details}))


def test_actor_by_the_page_is_the_person_and_the_process():
    row = row_of(Actor(uid=997, name="craftcore", person="ada", via="web", request="r1"), choice="send")

    assert actor_text(row) == "ada, by the page (craftcore, uid 997)"
    assert other_details(row) == {"choice": "send"}


def test_actor_of_a_process_without_a_name_is_its_number():
    assert actor_text(row_of(Actor(uid=997, name="", person="ada", via="web"))) == "ada, by the page (uid 997)"


def test_actor_by_another_channel_names_the_channel():
    row = row_of(Actor(uid=997, name="craftcore", person="ada", via="mcp"))

    assert actor_text(row) == "ada, by mcp (craftcore, uid 997)"


def test_actor_of_a_command_is_the_user_and_the_login():
    assert actor_text(row_of(Actor(uid=997, name="ada"))) == "ada (uid 997)"
    assert (
        actor_text(row_of(Actor(uid=0, name="root", login=Actor(uid=5, name="ada")))) == "root (uid 997) of ada (uid 5)"
    )


def test_decision_by_the_page_is_by_the_person():
    assert Actor(uid=997, name="craftcore", person="ada", via="web").text == "ada (web)"
