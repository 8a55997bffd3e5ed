"""The search for a sent message on IMAP servers, real and faulty."""

from __future__ import annotations

import socket
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import anyio
import anyio.to_thread
import pytest

from craftcore import App
from craftcore.activities.model import OnUnknown
from craftcore.outcome_exceptions import NoEffect
from craftcore.registry.call import Call, message_id
from craftcore.tasks.outcomes import Done
from examples.email_sent_folder import Folder, FolderUnreadable, declare_email, is_in_folder, reconcile_by, utf7
from tests.support.dovecot import USER, Dovecot, a_dovecot
from tests.support.imap_peers import SILENCE, an_imap_server
from tests.support.processes import PATIENCE

pytestmark = pytest.mark.anyio

PASSWORD = 'correct/horse "battery" stäple'
OUR_ID = "<activity.1@example.org>"
CALL = Call(key="activity:t1:1.1", attempt=1, deadline=datetime(2026, 11, 21, tzinfo=UTC))


@pytest.fixture(scope="module")
def dovecot() -> Iterator[Dovecot]:
    with a_dovecot(PASSWORD) as dovecot:
        dovecot.put(a_message("<other@example.org>"))
        dovecot.put(a_message(OUR_ID))
        yield dovecot


def a_message(own_id: str) -> bytes:
    return f"From: house@example.org\r\nMessage-ID: {own_id}\r\nSubject: Hello\r\n\r\nHello\r\n".encode()


def folder_at(port: int, password: str = PASSWORD, **more: Any) -> Folder:
    options: dict[str, Any] = {"timeout": PATIENCE, "security": "none", **more}
    return Folder(host="127.0.0.1", port=port, username=USER, password=password, **options)


async def search_and_fail(folder: Folder) -> str:
    with pytest.raises(FolderUnreadable) as failed:
        await is_in_folder(folder, OUR_ID)
    assert failed.value.__context__ is None
    text = "".join(traceback.format_exception(failed.value))
    assert PASSWORD not in text
    return str(failed.value)


@pytest.mark.parametrize("security", ["none", "starttls", "tls"])
async def test_imap_search_finds_only_the_message_in_the_folder(dovecot, monkeypatch, security):
    monkeypatch.setenv("SSL_CERT_FILE", str(dovecot.certificate))
    sent = folder_at(dovecot.tls_port if security == "tls" else dovecot.port, security=security)

    assert await is_in_folder(sent, OUR_ID)
    assert not await is_in_folder(sent, "<activity.2@example.org>")


async def test_imap_search_leaves_flags_and_messages_unchanged(dovecot):
    """The search does not even change the flag of a new message."""
    before = dovecot.messages()

    await is_in_folder(folder_at(dovecot.port), OUR_ID)

    assert dovecot.messages() == before


async def test_imap_folder_with_any_name_is_searched(dovecot, anyio_backend):
    name, own_id = "Gesendete R&D Ä", f"<{anyio_backend}@example.org>"
    sent = folder_at(dovecot.port, name=name)
    assert not await is_in_folder(sent, own_id)

    dovecot.put(a_message(own_id), f'"{utf7(name)}"')

    assert await is_in_folder(sent, own_id)


def test_folder_name_is_encoded_as_imap_utf7():
    """The names are the examples of RFC 3501, 5.1.3, and names with special characters."""
    assert utf7("~peter/mail/台北/日本語") == "~peter/mail/&U,BTFw-/&ZeVnLIqe-"
    assert utf7("Hi Mom -☺-!") == "Hi Mom -&Jjo--!"
    assert utf7("[Gmail]/Sent Mail") == "[Gmail]/Sent Mail"
    assert utf7("R&D") == "R&-D"


async def test_missing_imap_folder_is_reported(dovecot):
    error = await search_and_fail(folder_at(dovecot.port, name="Gone"))

    assert error.startswith(f"folder Gone at 127.0.0.1:{dovecot.port} cannot be searched: ")
    assert "Mailbox doesn't exist" in error


async def test_wrong_imap_password_is_reported_without_the_password(dovecot):
    assert "Authentication failed" in await search_and_fail(folder_at(dovecot.port, password="wrong"))


@pytest.mark.parametrize("security", ["starttls", "tls"])
async def test_untrusted_imap_server_is_refused_for_the_certificate(dovecot, security):
    sent = folder_at(dovecot.tls_port if security == "tls" else dovecot.port, security=security)

    assert "certificate" in await search_and_fail(sent)


# The reconciliation of a message in doubt


def reconciler(folder: Folder) -> Any:
    return reconcile_by(folder, "example.org")


ARGUMENTS = {"to": "ada@example.net", "subject": "Hello", "body": "Hello"}


async def test_reconcile_returns_done_for_a_message_in_the_folder(dovecot):
    own_id = message_id(CALL.key, "example.org")
    dovecot.put(a_message(own_id))

    assert await reconciler(folder_at(dovecot.port))(CALL, **ARGUMENTS) == Done(own_id)


async def test_reconcile_finds_a_message_sent_from_an_earlier_domain(dovecot, anyio_backend):
    call = Call(key=f"activity:{anyio_backend}:1.1", attempt=1, deadline=CALL.deadline)
    dovecot.put(a_message(message_id(call.key, "before.example")))

    assert isinstance(await reconciler(folder_at(dovecot.port, is_complete=True))(call, **ARGUMENTS), Done)


async def test_reconcile_returns_no_effect_for_a_missing_message_only_in_a_complete_folder(dovecot):
    """In an incomplete folder, a missing message may have been sent."""
    other = Call(key="activity:t2:1.1", attempt=1, deadline=CALL.deadline)

    assert await reconciler(folder_at(dovecot.port))(other, **ARGUMENTS) is None
    complete = await reconciler(folder_at(dovecot.port, is_complete=True))(other, **ARGUMENTS)
    assert isinstance(complete, NoEffect)


async def test_reconcile_raises_for_an_unreadable_folder(dovecot):
    sent = folder_at(dovecot.port, name="Gone", is_complete=True)

    with pytest.raises(FolderUnreadable):
        await reconciler(sent)(CALL, **ARGUMENTS)


# Servers without a valid answer

NO_ANSWERS: list[dict[str, str | None]] = [
    {"greeting": None},
    {"greeting": "* BYE too busy"},
    {"greeting": "* PREAUTH you are somebody"},
    {"greeting": "220 mail.example ESMTP"},
    {"greeting": "* OK " + "so on " * 20_000},
    {"CAPABILITY": "* CAPABILITY IMAP4rev1 LOGINDISABLED\r\n{tag} OK done"},
    {"AUTHENTICATE": "{tag} NO [UNAVAILABLE] later"},
    {"EXAMINE": None},
    {"EXAMINE": "{tag} NO not you"},
    {"EXAMINE": "+ go on"},
    {"UID": None},
    {"UID": "{tag} BAD what"},
    {"UID": "* BYE closing"},
    {"UID": "{tag} OK done"},
    {"UID": "b7 OK done"},
    {"UID": "* SEARCH {{3}}\r\n1 2\r\n{tag} OK done"},
    {"UID": "* SEARCH\r\n" * 1001 + "{tag} OK done"},
]


@pytest.mark.parametrize("replies", NO_ANSWERS, ids=[str(number) for number in range(17)])
async def test_imap_reply_without_a_valid_search_result_is_unreadable(replies):
    with an_imap_server(replies) as server:
        await search_and_fail(folder_at(server.port))


async def test_password_in_an_imap_reply_is_masked():
    with an_imap_server({"AUTHENTICATE": "{tag} NO no " + PASSWORD}) as server:
        assert (await search_and_fail(folder_at(server.port))).endswith("the server said NO no ***")


async def test_imap_login_without_sasl_accepts_only_an_ascii_password():
    with an_imap_server({"CAPABILITY": "* CAPABILITY IMAP4rev1\r\n{tag} OK done"}) as server:
        assert not await is_in_folder(folder_at(server.port, 'a "b" \\c'), OUR_ID)
        assert server.received[1] == 'a2 LOGIN "ada" "a \\"b\\" \\\\c"'
        assert "none beyond ASCII" in await search_and_fail(folder_at(server.port))


async def test_plain_text_injected_before_starttls_is_refused():
    """An attacker between client and server could have sent this text."""
    with an_imap_server({"STARTTLS": "{tag} OK begin\r\n* CAPABILITY AUTH=PLAIN"}) as server:
        error = await search_and_fail(folder_at(server.port, security="starttls"))
        assert "between the plain and the encrypted part" in error
        assert len(server.received) == 1


async def test_closed_imap_port_is_reported():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # bound, without a listener
        assert "cannot be searched" in await search_and_fail(folder_at(bound.getsockname()[1]))


async def test_imap_timeout_is_reported():
    with an_imap_server({"UID": SILENCE}) as server:
        assert "no answer within 0.3 seconds" in await search_and_fail(folder_at(server.port, timeout=0.3))


async def test_cancelled_imap_search_stops_at_once():
    with an_imap_server({"UID": SILENCE}) as server:
        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as group:
                group.start_soon(is_in_folder, folder_at(server.port, timeout=3600), OUR_ID)
                assert await anyio.to_thread.run_sync(server.silent.wait, PATIENCE)
                group.cancel_scope.cancel()
        assert await anyio.to_thread.run_sync(server.left.wait, PATIENCE)


# The declaration in an app

SERVER = "[email]\nhost = 'smtp.example.org'\nsender = 'ada@example.org'\n"
FOLDER = {"IMAP_HOST": "imap.example.org", "IMAP_USERNAME": USER, "IMAP_PASSWORD": PASSWORD, "IMAP_SETTLE": "30"}


def test_email_example_reconciles_only_with_a_configured_folder(tmp_path):
    (tmp_path / "craftcore.toml").write_text(SERVER)
    configured = {"CRAFTCORE_CONFIG": str(tmp_path / "craftcore.toml")}
    asks, reconciles = App(), App()
    declare_email(asks, configured)
    declare_email(reconciles, configured | FOLDER)

    assert asks.actions["email.send"].terms.on_unknown is OnUnknown.ASK
    terms = reconciles.actions["email.send"].terms
    assert (terms.on_unknown, terms.settle_after) == (OnUnknown.RECONCILE, 30)
    assert reconciles.actions["email.send"].reconciler is not None


def test_imap_password_in_clear_text_to_another_machine_is_refused():
    with pytest.raises(ValueError, match="clear text") as refused:
        declare_email(App(), FOLDER | {"IMAP_SECURITY": "none"})

    assert PASSWORD not in str(refused.value)
