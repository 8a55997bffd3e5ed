"""A message, made of arguments that anybody may have written: whole, within limits, with no header that was not meant.

The headers with addresses are written here, one address a line. The folding of the standard library breaks addresses
whose name has non-ASCII letters (seen in Python 3.11). Its EmailMessage makes the body.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email import policy
from email.message import EmailMessage
from email.utils import format_datetime

from craftcore.config.references import ADDRESS_SAID, Mailbox, is_one_line, mailbox
from craftcore.errors import ErrorCode
from craftcore.outcome_exceptions import Fail
from craftcore.serialization.untrusted import safe_repr, truncate_text

RECIPIENTS_MAX = 100
SUBJECT_MAX = 500
BODY_MAX_CHARACTERS = 5 << 20
SHOWN_CHARACTERS = 60
MISTAKES_MAX = 5

_BODY = policy.SMTP.clone(cte_type="7bit")
_PLAIN = re.compile(r"[ -~]*")
_MESSAGE_ID = re.compile(r"<[!-;=?-~]{1,250}>")
_WORD_BYTES = 45
"""Bytes of text in one encoded word: in base64 and with its frame the word has at most 75 characters (RFC 2047, 2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingMessage:
    """A message as a server takes it: the envelope, and its content in ASCII lines that end with CR LF."""

    message_id: str
    sender: str
    recipients: tuple[str, ...]
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """The arguments of `email.send`, as they were given."""

    to: object
    subject: object
    body: object
    cc: object = None
    bcc: object = None
    reply_to: object = None
    html: object = None
    in_reply_to: object = None
    sender: object = None


def build_message(draft: Draft, *, message_id: str, sender: Mailbox, now: float) -> OutgoingMessage:
    """Return the message. `sender` is whom it is from unless it names another of the same domain.

    Raises Fail with every mistake in the arguments: nothing was sent, and the same arguments never will be.
    """
    mistakes: list[str] = []
    to, cc, bcc = (_mailboxes(name, getattr(draft, name), mistakes) for name in ("to", "cc", "bcc"))
    reply_to = _mailboxes("reply_to", draft.reply_to, mistakes)
    author = _author(draft.sender, sender, mistakes)
    recipients = tuple({_identity(each): each.address for each in (*to, *cc, *bcc)}.values())
    mistakes.extend(_mistakes(draft, to, reply_to, recipients))
    if mistakes:
        more = f"; and {len(mistakes) - MISTAKES_MAX} more" if len(mistakes) > MISTAKES_MAX else ""
        raise Fail(ErrorCode.VALIDATION_ERROR, f"this email cannot be sent: {'; '.join(mistakes[:MISTAKES_MAX])}{more}")
    headers = [
        f"Date: {format_datetime(datetime.fromtimestamp(now, UTC))}",
        f"Message-ID: {message_id}",
        f"From: {_spell_address(author)}",
        f"To: {_join_addresses(to)}",
        *([f"Cc: {_join_addresses(cc)}"] if cc else []),
        *([f"Reply-To: {_join_addresses(reply_to)}"] if reply_to else []),
        f"Subject: {_spell_text(str(draft.subject))}",
        *([f"In-Reply-To: {draft.in_reply_to}", f"References: {draft.in_reply_to}"] if draft.in_reply_to else []),
    ]
    content = "".join(f"{header}\r\n" for header in headers).encode("ascii") + _body(draft)
    return OutgoingMessage(message_id=message_id, sender=author.address, recipients=recipients, content=content)


def _mailboxes(name: str, given: object, mistakes: list[str]) -> list[Mailbox]:
    """Return the addresses of one argument: none, one, or a list of them."""
    texts = [] if given is None else list(given) if isinstance(given, list | tuple) else [given]
    found = []
    for text in texts:
        if (read := mailbox(text)) is None:
            hint = ", several as a list" if isinstance(text, str) and "," in text else ""
            mistakes.append(f"{name} has {_quote_value(text)}; allowed: {ADDRESS_SAID}{hint}")
        else:
            found.append(read)
    return found


def _author(given: object, sender: Mailbox, mistakes: list[str]) -> Mailbox:
    if given is None:
        return sender
    read = mailbox(given)
    if read is None:
        mistakes.append(f"sender is {_quote_value(given)}; allowed: {ADDRESS_SAID}")
    elif read.domain.lower() != sender.domain.lower():
        mistakes.append(f"sender is {_quote_value(given)}; allowed: an address of {sender.domain}, as email.sender is")
    else:
        return read
    return sender


def _mistakes(draft: Draft, to: list[Mailbox], reply_to: list[Mailbox], recipients: tuple[str, ...]) -> Iterator[str]:
    if not to and draft.to in (None, [], ()):
        yield "to is empty; allowed: an address, or a list of them"
    if len(recipients) > RECIPIENTS_MAX:
        yield f"it has {len(recipients)} recipients; allowed: at most {RECIPIENTS_MAX}"
    if len(reply_to) > 1:
        yield "reply_to has several addresses; allowed: one"
    if not isinstance(draft.subject, str) or len(draft.subject) > SUBJECT_MAX or not is_one_line(draft.subject):
        yield f"subject is {_quote_value(draft.subject)}; allowed: one line, at most {SUBJECT_MAX} characters"
    texts = {"body": draft.body} if draft.html is None else {"body": draft.body, "html": draft.html}
    for name, text in texts.items():
        if not isinstance(text, str) or "\0" in text or not _is_encodable(text):
            yield f"{name} is {_quote_value(text)}; allowed: text without NUL"
        elif len(text) > BODY_MAX_CHARACTERS:
            yield f"{name} has {len(text)} characters; allowed: at most {BODY_MAX_CHARACTERS}"
    reply = draft.in_reply_to
    if reply is not None and not (isinstance(reply, str) and _MESSAGE_ID.fullmatch(reply)):
        yield f"in_reply_to is {_quote_value(reply)}; allowed: a Message-ID like <name@example.org>"


def _body(draft: Draft) -> bytes:
    """Return the rest of the headers, the empty line, and the text."""
    message = EmailMessage(policy=_BODY)
    message.set_content(str(draft.body))
    if draft.html is not None:
        message.add_alternative(str(draft.html), subtype="html")
    return re.sub(rb"\r\n|\r|\n", b"\r\n", message.as_bytes())


def _identity(each: Mailbox) -> tuple[str, str]:
    return each.local_part, each.domain.lower()


def _join_addresses(mailboxes: list[Mailbox]) -> str:
    return ",\r\n ".join(_spell_address(each) for each in mailboxes)


def _spell_address(each: Mailbox) -> str:
    if not each.name:
        return each.address
    if _PLAIN.fullmatch(each.name) and "=?" not in each.name:
        quoted = re.sub(r'(["\\])', r"\\\1", each.name)
        return f'"{quoted}" <{each.address}>'
    return f"{_words(each.name)}\r\n <{each.address}>"


def _spell_text(text: str) -> str:
    return text if _PLAIN.fullmatch(text) and "=?" not in text else _words(text)


def _words(text: str) -> str:
    """Return text as encoded words, one a line. No word begins or ends within a character."""
    parts = [""]
    for character in text:
        if len((parts[-1] + character).encode()) > _WORD_BYTES:
            parts.append("")
        parts[-1] += character
    return "\r\n ".join(f"=?utf-8?b?{b64encode(part.encode()).decode()}?=" for part in parts)


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _quote_value(value: object) -> str:
    return truncate_text(safe_repr(value), SHOWN_CHARACTERS)
