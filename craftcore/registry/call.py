"""One call of an action, as its function receives it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256

KEY_HEADER = "Idempotency-Key"
MESSAGE_ID_DOMAIN = "craftcore.invalid"
"""A reserved domain (RFC 2606): the text only has to be an identifier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The first argument of an action: this call of it.

    key       the same for every call of one activity, in every process. Give it to the provider
    attempt   the number of this call, from 1
    deadline  when this call is cancelled
    """

    key: str
    attempt: int
    deadline: datetime

    @property
    def headers(self) -> dict[str, str]:
        """The key as HTTP providers take it."""
        return {KEY_HEADER: self.key}

    @property
    def message_id(self) -> str:
        """The key as a Message-ID (RFC 5322, 3.6.4), angle brackets included."""
        return message_id(self.key)


def message_id(key: str, domain: str = MESSAGE_ID_DOMAIN) -> str:
    """Return `<activity.{32 hex digits}@{domain}>`, the same for the same key."""
    return f"<activity.{sha256(key.encode()).hexdigest()[:32]}@{domain}>"
