"""`email.send` with real and faulty mail servers: a message is sent once, refused, or in doubt."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import ssl
import sys
import traceback
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any

import anyio
import pytest

from craftcore.actions.email import smtp
from craftcore.actions.email.email_action import email_action
from craftcore.actions.email.smtp import DeliveryUnknown
from craftcore.activities.model import OnUnknown
from craftcore.config import EmailSettings
from craftcore.daemon.secrets import Secrets
from craftcore.errors import ErrorCode
from craftcore.outcome_exceptions import Fail, NoEffect
from craftcore.registry.action import Action
from craftcore.registry.call import Call
from tests.support.processes import PATIENCE
from tests.support.smtp_peers import (
    USER,
    Conversation,
    Reply,
    Scripted,
    a_certificate,
    a_mailroom,
    a_server,
    closes,
    hangs,
    never_ends,
    resets,
    says_and_closes,
    served_with,
    stops_reading,
)

pytestmark = pytest.mark.anyio

CANARY = "correct/horse+battery=staple"
CALL = Call(key="activity:t1:1.1", attempt=1, deadline=datetime(2026, 11, 21, tzinfo=UTC))
MESSAGE_ID = "<activity.d96509284361ba076148e45828ce7962@example.org>"
TIMEOUTS = (0.2, 1, 8, 30, PATIENCE)
"""Timeouts in seconds; the test tries the next one if a slow machine did not send the message in time."""

LARGE = f"{'x' * 20}\n" * 249_000
"""The longest allowed body, which exceeds the buffers of two sockets. ASCII text needs no encoding."""


@pytest.fixture
def anyio_backend() -> str:
    """Return the only event loop that aiosmtplib supports."""
    return "asyncio"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return a_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture
def trusted(certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """Return the TLS context of a server whose certificate this machine trusts."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    return served_with(*certificate)


def an_action(port: int, *, secret: Callable[[str], str] | None = None, **settings: Any) -> Action:
    values = {"host": "127.0.0.1", "port": port, "security": "none", "sender": "House <house@example.org>"}
    secrets = Secrets({"SMTP": CANARY})
    return email_action(EmailSettings(**{**values, "timeout": PATIENCE, **settings}), secret or secrets.get)


async def send(action: Action, **arguments: Any) -> dict[str, str]:
    values = {"to": "ada@example.net", "subject": "Hello", "body": "Hello Ada\n", **arguments}
    sent: dict[str, str] = await action(CALL, **values)
    return sent


async def call_and_fail(action: Action, **arguments: Any) -> Exception:
    """Return the exception of a call that does not report a sent message."""
    with pytest.raises((NoEffect, Fail, DeliveryUnknown)) as failed:
        await send(action, **arguments)
    assert len(str(failed.value)) < 1500
    return failed.value


# Sent messages


async def test_email_arrives_unchanged_and_returns_the_message_id_as_reference():
    body = "Hello Ada\n.\n..two\n.dots and no more\r\nbare\rbreaks\n"
    async with a_mailroom() as server:
        result = await send(an_action(server.port), to=["Ada <ada@example.net>"], bcc="dan@example.net", body=body)

    assert result == {"provider_ref": MESSAGE_ID, "message_id": MESSAGE_ID, "reply": "250 taken as 4711"}
    [envelope] = server.taken
    assert envelope.mail_from == "house@example.org"
    assert envelope.rcpt_tos == ["ada@example.net", "dan@example.net"]
    content = envelope.content
    assert isinstance(content, bytes)
    found = message_from_bytes(content, policy=policy.default)
    assert found["Message-ID"] == MESSAGE_ID
    assert "dan" not in content.decode()
    assert found.get_content().split("\r\n") == ["Hello Ada", ".", "..two", ".dots and no more", "bare", "breaks", ""]


async def test_message_id_is_stable_for_a_call_and_differs_between_calls():
    async with a_mailroom() as server:
        action = an_action(server.port)
        first = await send(action)
        again = await send(action)
        other = await action(
            Call(key="activity:t1:1.2", attempt=1, deadline=CALL.deadline), to="a@b", subject="", body=""
        )

    assert first["message_id"] == again["message_id"] != other["message_id"]
    assert len(server.taken) == 3


@pytest.mark.parametrize(
    ("security", "size"),
    [
        ("tls", 1 << 20),
        *(pytest.param(security, 5 << 20, marks=pytest.mark.acceptance) for security in ("none", "tls")),
    ],
)
async def test_large_email_arrives_complete(trusted, security, size):
    body = "é" * size
    async with a_server(tls=trusted if security == "tls" else None) as server:
        await send(an_action(server.port, security=security), body=body)

    [message] = server.messages
    assert message_from_bytes(message, policy=policy.default).get_content().strip() == body


@pytest.mark.parametrize("security", ["tls", "starttls"])
async def test_password_is_sent_over_tls_to_a_trusted_server(trusted, security):
    kind = {"tls": trusted} if security == "tls" else {"starttls": trusted}
    async with a_mailroom(**kind, password=CANARY) as server:
        action = an_action(server.port, security=security, username=USER, password="env:SMTP")
        assert (await send(action))["reply"] == "250 taken as 4711"

    assert len(server.taken) == 1


@pytest.mark.parametrize("security", ["tls", "starttls"])
async def test_untrusted_mail_server_receives_nothing(certificate, security):
    context = served_with(*certificate)
    kind = {"tls": context} if security == "tls" else {"starttls": context}
    async with a_mailroom(**kind, password=CANARY) as server:
        error = await call_and_fail(an_action(server.port, security=security, username=USER, password="env:SMTP"))

    assert isinstance(error, NoEffect)
    assert "certificate" in str(error).lower()
    assert server.taken == []


@pytest.mark.parametrize("security", ["tls", "starttls"])
async def test_mail_server_without_tls_does_not_receive_the_password(security):
    async with a_server() as server:
        error = await call_and_fail(an_action(server.port, security=security, username=USER, password="env:SMTP"))

    assert isinstance(error, NoEffect)
    assert [line for line in server.received if line.startswith(("AUTH", "MAIL"))] == []


# Messages that were certainly not sent

CODES = {
    NoEffect: {"AGENT_UNAVAILABLE", "TRANSPORT_ERROR"},
    Fail: {"AGENT_ERROR", "UNAUTHORIZED"},
}
NOTHING_SENT: list[tuple[dict[str, Reply], type[Exception], str]] = [
    ({"greeting": "421 too busy"}, NoEffect, "421 too busy"),
    ({"greeting": "554 not from you"}, Fail, "554 not from you"),
    ({"greeting": "hello?"}, NoEffect, "Malformed"),
    ({"greeting": resets}, NoEffect, ""),
    ({"greeting": closes}, NoEffect, ""),
    ({"greeting": never_ends}, NoEffect, "too long"),
    ({"EHLO": "421 later"}, NoEffect, "421 later"),
    ({"EHLO": resets}, NoEffect, ""),
    ({"EHLO": "250-stub.example\n250 SIZE"}, NoEffect, "AUTH extension is not supported"),
    ({"AUTH": "535 5.7.8 wrong"}, Fail, "535 5.7.8 wrong"),
    ({"AUTH": "454 try later"}, NoEffect, "454 try later"),
    ({"AUTH": closes}, NoEffect, ""),
    ({"MAIL": "451 later"}, NoEffect, "451 later"),
    ({"MAIL": "550 not you"}, Fail, "550 not you"),
    ({"MAIL": "421 closing"}, NoEffect, "421 closing"),
    ({"MAIL": resets}, NoEffect, ""),
    ({"RCPT": "450 mailbox busy"}, NoEffect, "450 mailbox busy"),
    ({"RCPT": "550 no such user"}, Fail, "550 no such user (refused: ada@example.net; so it is sent to no recipient)"),
    ({"RCPT": closes}, NoEffect, ""),
    ({"DATA": "451 later"}, NoEffect, "451 later"),
    ({"DATA": "554 no valid recipients"}, Fail, "554 no valid recipients"),
    ({"DATA": "250 what for"}, NoEffect, "250 what for"),
    ({"DATA": says_and_closes("421 closing")}, NoEffect, "421 closing"),
    ({"DATA": resets}, NoEffect, ""),
]


@pytest.mark.parametrize(("replies", "kind", "reason"), NOTHING_SENT, ids=[str(number) for number in range(24)])
async def test_smtp_failure_before_the_message_reports_that_nothing_was_sent(replies, kind, reason):
    async with a_server(None, None, **replies) as server:
        error = await call_and_fail(an_action(server.port, username=USER, password="env:SMTP"))

    assert type(error) is kind, error
    assert reason in str(error)
    assert str(error).endswith("; nothing was sent")
    assert str(error).startswith(f"127.0.0.1:{server.port} ")
    assert server.messages == []
    assert isinstance(error, NoEffect | Fail)
    assert error.code in CODES[type(error)]
    if isinstance(error, NoEffect):  # a 4xx reply means a busy server, any other failure a broken connection
        assert error.code == ("AGENT_UNAVAILABLE" if re.match("4[0-9]{2} ", reason) else "TRANSPORT_ERROR")


@pytest.mark.parametrize(
    ("replies", "code"),
    [({"AUTH": "535 no"}, "UNAUTHORIZED"), ({"MAIL": "530 who"}, "UNAUTHORIZED"), ({"RCPT": "550 no"}, "AGENT_ERROR")],
)
async def test_smtp_refusal_is_unauthorized_only_for_login_errors(replies, code):
    async with a_server(None, None, **replies) as server:
        error = await call_and_fail(an_action(server.port, username=USER, password="env:SMTP"))

    assert isinstance(error, Fail)
    assert error.code == ErrorCode(code)


@pytest.mark.parametrize(
    ("reply", "kind"), [("451 later", NoEffect), ("421 closing", NoEffect), ("554 spam", Fail), ("552 too large", Fail)]
)
async def test_smtp_refusal_after_the_data_is_a_failure_without_effect(reply, kind):
    async with a_server(dot=reply) as server:
        error = await call_and_fail(an_action(server.port))

    assert type(error) is kind
    assert reply in str(error)
    assert len(server.messages) == 1


@pytest.mark.parametrize(
    ("refusals", "kind"),
    [
        ({"bob": "550 who"}, Fail),
        ({"bob": "450 busy"}, NoEffect),
        ({"bob": "450 busy", "eve": "550 who"}, Fail),
        ({"ada": "550 who", "bob": "550 who", "eve": "550 who"}, Fail),
    ],
)
async def test_email_is_not_sent_when_any_recipient_is_refused(refusals, kind):
    """A message sent to some recipients would be lost for the others, or doubled by another attempt."""
    async with a_server() as server:
        server.replies |= {f"RCPT TO:<{name}@example.net>": reply for name, reply in refusals.items()}
        error = await call_and_fail(
            an_action(server.port), to=["ada@example.net", "bob@example.net"], cc="eve@example.net"
        )

    assert type(error) is kind
    refused = ", ".join(f"{name}@example.net" for name in refusals)
    assert f"(refused: {refused}; so it is sent to no recipient)" in str(error)
    assert server.messages == []
    assert "DATA" not in server.received


@pytest.mark.parametrize(
    ("break_off", "security"),
    [
        (resets, "none"),
        (closes, "tls"),
        pytest.param(resets, "tls", marks=pytest.mark.acceptance),
        pytest.param(closes, "none", marks=pytest.mark.acceptance),
    ],
)
async def test_connection_lost_within_the_message_ends_without_an_effect(trusted, security, break_off: Any):
    """The final dot of the message was not sent."""

    async def read_and_break(conversation: Conversation) -> None:
        await conversation.reader.readexactly(1000)
        await break_off(conversation)

    tls = trusted if security == "tls" else None
    async with a_server(receive_buffer=4096, tls=tls, body=read_and_break) as server:
        error = await call_and_fail(an_action(server.port, security=security), body=LARGE)

    assert isinstance(error, NoEffect), error
    assert server.messages == []


@pytest.mark.parametrize("step", ["greeting", "EHLO", "DATA"])
async def test_smtp_timeout_before_the_message_ends_without_an_effect(step):
    async with a_server(None, None, **{step: hangs}) as server:
        error = await call_and_fail(an_action(server.port, timeout=0.2))

    assert isinstance(error, NoEffect)
    assert "did not let us begin within 0.2 seconds" in str(error)
    assert error.code == "AGENT_TIMEOUT"


async def test_smtp_server_that_stops_reading_within_the_message_ends_without_an_effect():
    """The server never receives the final dot."""
    async with a_server(receive_buffer=4096, body=stops_reading) as server:
        error = await call_and_fail(an_action(server.port, timeout=1), body=LARGE)

    assert isinstance(error, NoEffect)
    assert "did not let us begin" in str(error)


async def test_closed_smtp_port_fails_as_a_transport_error():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # bound, without a listener
        error = await call_and_fail(an_action(bound.getsockname()[1]))

    assert isinstance(error, NoEffect)
    assert "cannot be talked to" in str(error)
    assert error.code == "TRANSPORT_ERROR"


async def test_unknown_smtp_host_fails_without_an_effect():
    error = await call_and_fail(an_action(25, host="no-such-host.invalid", timeout=30))

    assert isinstance(error, NoEffect)
    assert str(error).startswith("no-such-host.invalid:25 ")


@pytest.mark.parametrize("step", ["greeting", "EHLO", "RCPT"])
async def test_email_call_cancelled_before_the_message_ends_without_an_effect(step):
    """Otherwise a shutdown would leave a question with a known answer."""
    scope = anyio.CancelScope()

    async def cancels(conversation: Conversation) -> None:
        scope.cancel()
        await hangs(conversation)

    async with a_server(None, None, **{step: cancels}) as server:
        with scope:
            error = await call_and_fail(an_action(server.port))

    assert isinstance(error, NoEffect)
    assert "cancelled before" in str(error)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_asyncio_cancel_of_the_sending_task_is_propagated():
    """A task cancellation, unlike that of an anyio scope, is delivered only once."""
    began = asyncio.Event()

    async def begins(conversation: Conversation) -> None:
        began.set()
        await hangs(conversation)

    async with a_server(EHLO=begins) as server:
        sending = asyncio.create_task(send(an_action(server.port)))
        await began.wait()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending


@pytest.mark.parametrize("arguments", [{"to": "ada"}, {"subject": "a\r\nBcc: eve@example.net"}, {"cc": ["a@b\r\nc"]}])
async def test_email_with_invalid_arguments_is_refused_without_a_connection(arguments):
    async with a_server() as server:
        error = await call_and_fail(an_action(server.port), **arguments)

    assert isinstance(error, Fail)
    assert error.code == ErrorCode.VALIDATION_ERROR
    assert server.received == []


async def test_missing_password_secret_is_named_without_a_connection():
    async with a_server() as server:
        error = await call_and_fail(an_action(server.port, username=USER, password="env:OTHER"))

    assert isinstance(error, NoEffect)
    assert "env:OTHER is not there" in str(error)
    assert server.received == []


# Messages whose delivery is unknown


NO_REPLY: list[Reply] = [resets, closes, "hello?", "354 go on", "111", never_ends, says_and_closes("250-half")]


@pytest.mark.parametrize("dot", NO_REPLY, ids=[str(number) for number in range(7)])
async def test_missing_reply_after_the_message_leaves_the_delivery_unknown(dot):
    async with a_server(dot=dot) as server:
        error = await call_and_fail(an_action(server.port))

    assert isinstance(error, DeliveryUnknown)
    assert str(error).startswith(
        f"127.0.0.1:{server.port} was given the whole message and did not say what became of it"
    )
    assert str(error).endswith(f"its Message-ID is {MESSAGE_ID}")
    assert len(server.messages) == 1


async def test_reply_timeout_after_the_message_leaves_the_delivery_unknown():
    for seconds in TIMEOUTS:
        async with a_server(dot=hangs) as server:
            error = await call_and_fail(an_action(server.port, timeout=seconds))
        if server.messages:
            break
    assert isinstance(error, DeliveryUnknown)
    assert f"no reply within {seconds:g} seconds" in str(error)


async def test_email_call_cancelled_after_the_message_leaves_the_delivery_unknown():
    scope = anyio.CancelScope()

    async def cancels(conversation: Conversation) -> None:
        scope.cancel()
        await hangs(conversation)

    async with a_server(dot=cancels) as server:
        with scope:
            await send(an_action(server.port))

    assert scope.cancelled_caught
    assert len(server.messages) == 1


# Failures after an accepted message


@pytest.mark.parametrize("goodbye", ["500 stay", "421 go", resets, closes, hangs, "what"])
async def test_failed_quit_after_an_accepted_message_is_ignored(goodbye, monkeypatch):
    monkeypatch.setattr(smtp, "QUIT_SECONDS", 0.05)
    async with a_server(QUIT=goodbye) as server:
        assert (await send(an_action(server.port)))["reply"] == "250 taken"


async def test_cancellation_during_quit_keeps_the_accepted_result():
    scope = anyio.CancelScope()

    async def cancels(conversation: Conversation) -> None:
        scope.cancel()
        await conversation.send("221 bye")

    results = []
    async with a_server(QUIT=cancels) as server:
        with scope:
            results.append(await send(an_action(server.port)))

    assert [result["reply"] for result in results] == ["250 taken"]


# Secrets


async def test_password_appears_in_no_result_error_or_log_line(caplog):
    """The replies of the server repeat the password, plain and in the encodings of the login."""
    caplog.set_level(logging.DEBUG)
    plain = b64encode(f"\0{USER}\0{CANARY}".encode()).decode()
    echo = f"{CANARY} and {plain} and {b64encode(CANARY.encode()).decode()}"
    texts = []
    echoes: list[dict[str, Reply]] = [
        {"AUTH": f"535 {echo}"},
        {"AUTH": f"454 {echo}"},
        {"AUTH": f"{echo}"},
        {"MAIL": f"550 {echo}"},
        {"RCPT": f"450 {echo}"},
        {"DATA": f"451 {echo}"},
        {"dot": f"554 {echo}"},
        {"dot": f"354 {echo}"},
        {"dot": f"{echo}"},
    ]
    for replies in echoes:
        async with a_server(None, None, **replies) as server:
            error = await call_and_fail(an_action(server.port, username=USER, password="env:SMTP"))
        assert "*** and *** and ***" in str(error)
        assert error.__cause__ is None
        assert error.__context__ is None
        texts += [str(error), repr(error), *traceback.format_exception(error)]
    async with a_server(dot=f"250 {echo}") as server:
        action = an_action(server.port, username=USER, password="env:SMTP")
        result = await send(action)
    assert result["reply"] == "250 *** and *** and ***"

    texts += [repr(action), repr(result), caplog.text]
    assert not any(CANARY in text or plain in text for text in texts)


@pytest.mark.parametrize("at", [1, 5, len(CANARY) - 1])
async def test_password_split_over_two_reply_lines_is_masked(at):
    half, rest = CANARY[:at], CANARY[at:]
    async with a_server(dot=f"554-{half}\r\n554 {rest}") as server:
        error = await call_and_fail(an_action(server.port, username=USER, password="env:SMTP"))

    assert "554 ***" in str(error)
    assert not [part for part in (half, rest) if len(part) > 3 and part in str(error)]


# Terms and settings


def test_email_terms_are_irreversible_and_ask_without_a_reconciler():
    terms = an_action(25, timeout=60).terms
    assert (terms.irreversible, terms.on_unknown, terms.idempotent_provider) == (True, OnUnknown.ASK, False)
    assert terms.timeout > 120
    assert an_action(25).reconciler is None

    async def look_up(call: Call, **arguments: Any) -> None: ...

    asked = email_action(EmailSettings(), Secrets({}).get, reconcile=look_up, settle_after=30.0)
    assert asked.terms.on_unknown is OnUnknown.RECONCILE
    assert asked.terms.settle_after == 30
    assert asked.reconciler is look_up


async def test_email_without_a_configured_server_names_the_missing_settings():
    action = email_action(EmailSettings(), Secrets({}).get)
    error = await call_and_fail(action)

    assert isinstance(error, Fail)
    assert "set host and sender in [email]" in str(error)


async def test_missing_smtp_library_is_named_with_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "aiosmtplib", None)
    error = await call_and_fail(an_action(25))

    assert isinstance(error, Fail)
    assert "pip install 'craftcore[email]'" in str(error)


@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_email_on_trio_is_refused():
    error = await call_and_fail(an_action(25))

    assert isinstance(error, Fail)
    assert "needs asyncio" in str(error)


def test_scripted_server_without_changes_accepts_the_message(certificate):
    """Each scripted server above misbehaves in a single step; the other steps are correct."""
    assert Scripted({}).replies["dot"] == "250 taken"
