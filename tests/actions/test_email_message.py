"""The message that `email.send` builds from its arguments, and the arguments that it refuses."""

from __future__ import annotations

from email import message_from_bytes, policy
from email.header import decode_header, make_header
from email.message import EmailMessage
from email.utils import getaddresses
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from craftcore.actions.email.message import BODY_MAX_CHARACTERS, RECIPIENTS_MAX, Draft, OutgoingMessage, build_message
from craftcore.config.references import Mailbox, is_one_line, mailbox
from craftcore.errors import ErrorCode
from craftcore.outcome_exceptions import Fail

SENDER = Mailbox("The house", "house", "example.org")
NOW = 1_795_000_000.0


def build(**arguments: Any) -> OutgoingMessage:
    draft = Draft(**{"to": "ada@example.net", "subject": "Hello", "body": "Hello Ada\n", **arguments})
    return build_message(draft, message_id="<activity.1@example.org>", sender=SENDER, now=NOW)


def parse(message: OutgoingMessage) -> EmailMessage:
    """Parse the message as a receiving program does, and require the form that servers accept."""
    content = message.content
    assert content.endswith(b"\r\n")
    assert content.isascii()
    assert b"\0" not in content
    assert not content.replace(b"\r\n", b"").translate(
        None, b"".join(bytes([i]) for i in range(256) if i not in b"\r\n")
    )
    assert max(map(len, content.split(b"\r\n"))) <= 998
    found = message_from_bytes(content, policy=policy.default)
    assert isinstance(found, EmailMessage)
    return found


def lines_of(message: EmailMessage, kind: str = "plain") -> list[bytes]:
    """Return the lines of the text, split as bytes: `str.splitlines` would also split at other characters."""
    part = message.get_body((kind,))
    assert part is not None
    return part.get_content().encode().splitlines()  # type: ignore[no-any-return]


def refusal(**arguments: Any) -> str:
    with pytest.raises(Fail) as refused:
        build(**arguments)
    assert refused.value.code == ErrorCode.VALIDATION_ERROR
    assert len(str(refused.value)) < 1000
    return str(refused.value)


def test_email_has_the_expected_headers_and_hides_bcc():
    message = build(
        to=["Ada <ada@example.net>", "bob@example.net"],
        cc="eve@example.net",
        bcc=["dan@example.net"],
        reply_to="desk@example.org",
        in_reply_to="<before@example.net>",
    )

    assert message.sender == "house@example.org"
    assert message.recipients == ("ada@example.net", "bob@example.net", "eve@example.net", "dan@example.net")
    assert b"dan" not in message.content
    found = parse(message)
    assert {name: str(value) for name, value in found.items()} == {
        "Date": "Wed, 18 Nov 2026 11:06:40 +0000",
        "Message-ID": "<activity.1@example.org>",
        "From": "The house <house@example.org>",
        "To": "Ada <ada@example.net>, bob@example.net",
        "Cc": "eve@example.net",
        "Reply-To": "desk@example.org",
        "Subject": "Hello",
        "In-Reply-To": "<before@example.net>",
        "References": "<before@example.net>",
        "Content-Type": 'text/plain; charset="utf-8"',
        "Content-Transfer-Encoding": "7bit",
        "MIME-Version": "1.0",
    }
    assert lines_of(found) == [b"Hello Ada"]


def test_email_with_html_is_multipart_alternative():
    found = parse(build(html="<p>Grüße</p>"))

    assert found.get_content_type() == "multipart/alternative"
    assert lines_of(found) == [b"Hello Ada"]
    assert lines_of(found, "html") == ["<p>Grüße</p>".encode()]


def test_email_recipient_named_twice_is_listed_once():
    message = build(to=["ada@example.net", "Ada <ada@EXAMPLE.net>"], cc="ada@example.net", bcc="Ada@example.net")

    assert message.recipients == ("ada@example.net", "Ada@example.net")


def test_email_sender_may_be_another_address_of_the_same_domain():
    message = build(sender="Desk <desk@Example.org>")

    assert message.sender == "desk@Example.org"
    assert str(parse(message)["From"]) == "Desk <desk@Example.org>"


one_line = st.text(max_size=70).filter(is_one_line)
tricky = st.text(alphabet='Aé 👩\u200d,;"\\<>()@.=?_:', max_size=120)
names = st.one_of(one_line, tricky, st.just("=?utf-8?q?x?=")).filter(lambda name: len(name) <= 200)


@example(["é" * 60], "x")
@given(st.lists(names, min_size=1, max_size=6), st.one_of(one_line, tricky, st.just("=?utf-8?b?eA==?=")))
def test_email_names_and_subjects_arrive_unchanged_and_inject_no_header(names, subject):
    def quoted(name: str, address: str) -> str:
        escaped = name.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}" <{address}>'

    to = [text for number, name in enumerate(names) if mailbox(text := quoted(name, f"ada{number}@example.net"))]
    if not to:
        return

    message = build(to=to, subject=subject)
    found = parse(message)

    assert [entry.addr_spec for entry in found["To"].addresses] == list(message.recipients)
    read_names = display_names(message)
    meant = [entry.name for text in to if (entry := mailbox(text))]
    assert list(map(words, read_names)) == list(map(words, meant))
    assert words(str(found["Subject"])) == words(subject)
    assert len(found.keys()) == 8


def display_names(message: OutgoingMessage) -> list[str]:
    """Return the names in the To header. `policy.default` of older Pythons puts a space between encoded words."""
    values = message_from_bytes(message.content).get_all("To", [])
    return [str(make_header(decode_header(name))) for name, _ in getaddresses(values)]


def words(text: str) -> list[str]:
    """Return the words of a header value; a header does not preserve the space between words."""
    return text.split()


@given(st.one_of(st.text(), st.text(alphabet=".\r\n \tFé", max_size=200), st.text(alphabet="xé", min_size=900)))
def test_email_body_of_any_text_arrives_line_by_line(body):
    """The bodies have lines of dots, bare line breaks of any system, and lines over the limit of servers."""
    if "\0" in body or any(0xD800 <= ord(character) < 0xE000 for character in body):
        assert "body is" in refusal(body=body)
        return

    assert lines_of(parse(build(body=body))) == (body or "\n").encode().splitlines()


@pytest.mark.parametrize("name", ["to", "cc", "bcc", "reply_to", "sender"])
@pytest.mark.parametrize(
    "given",
    [
        "ada",
        "",
        3,
        {"address": "ada@example.net"},
        "ada@example.net\r\nBcc: eve@example.net",
        "Ada\nBcc: eve@example.net\n <ada@example.net>",
        "ada@example.net, bob@example.net",
        "ada@example.net> SIZE=1",
        "ada@exämple.net",
    ],
)
def test_email_with_an_invalid_address_is_refused_naming_the_argument(name, given):
    error = refusal(**{name: given})

    assert error.startswith(f"this email cannot be sent: {name} ")
    assert "\r" not in error
    assert "\n" not in error


@pytest.mark.parametrize(
    ("arguments", "mistake"),
    [
        ({"to": []}, "to is empty"),
        ({"to": None}, "to is empty"),
        ({"to": ["ada@example.net", "bob"]}, "to has 'bob'; allowed: an address like"),
        ({"to": "ada@a, bob@b"}, "several as a list"),
        (
            {"to": [f"a{i}@b" for i in range(RECIPIENTS_MAX)], "bcc": "eve@b"},
            "it has 101 recipients; allowed: at most 100",
        ),
        ({"reply_to": ["a@b", "c@d"]}, "reply_to has several addresses; allowed: one"),
        ({"sender": "ceo@example.com"}, "allowed: an address of example.org, as email.sender is"),
        ({"sender": "me@sub.example.org"}, "allowed: an address of example.org"),
        ({"subject": "a\r\nBcc: eve@example.net"}, "subject is "),
        ({"subject": "a\nb"}, "subject is "),
        ({"subject": "a\u2028b"}, "subject is "),
        ({"subject": "a\ud800"}, "subject is "),
        ({"subject": "a" * 501}, "subject is "),
        ({"subject": None}, "subject is None"),
        ({"body": None}, "body is None"),
        ({"body": b"x"}, "body is b'x'"),
        ({"body": "a\0b"}, "body is "),
        ({"html": "a\ud800"}, "html is "),
        ({"html": 3}, "html is 3"),
        ({"body": "x" * (BODY_MAX_CHARACTERS + 1)}, f"body has {BODY_MAX_CHARACTERS + 1} characters; allowed: at most"),
        ({"in_reply_to": "a@b"}, "in_reply_to is 'a@b'"),
        ({"in_reply_to": "<a@b>\r\nBcc: eve@b"}, "in_reply_to is "),
        ({"in_reply_to": "<a b@c>"}, "in_reply_to is "),
    ],
)
def test_email_with_invalid_arguments_is_refused_with_the_mistake(arguments, mistake):
    assert mistake in refusal(**arguments)


def test_email_refusal_lists_all_mistakes_and_stays_short():
    error = refusal(to="a", cc="b", subject="x\ny", body=None)
    assert [word in error for word in ("to has", "cc has", "subject is", "body is")] == [True] * 4

    assert refusal(to=["a" * 9999] * 60).endswith("; and 55 more")
