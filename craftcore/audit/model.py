"""The rows of the operators' log.

hash   sha256 of the canonical JSON of the row: [seq, at, uid, name, action, subject, reason, details, prev_hash]
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any

from craftcore.serialization.canonical import canonicalize, sha256_of


@dataclass(frozen=True, slots=True)
class Actor:
    """A person or program, as the operating system knows them. `name`: '' where it has none for them.

    `login`: the user who logged in and became this one, when that is known and different. `person`: who acted through
    this process, as the process has authenticated them, and `via` what: `web`. `request`: the random name of the form
    that was sent, by which a second sending is recognized.
    """

    uid: int
    name: str
    login: Actor | None = None
    person: str | None = None
    via: str | None = None
    request: str | None = None

    @property
    def text(self) -> str:
        """The actor in one line: `ada (uid 1000)`, `uid 1000` where that user has no name, or `ada (web)`."""
        return self.account if self.person is None else f"{self.person} ({self.via})"

    @property
    def account(self) -> str:
        """The user of the process, in one line."""
        return f"{self.name} (uid {self.uid})" if self.name else f"uid {self.uid}"

    @property
    def details(self) -> dict[str, Any]:
        """The facts of the actor that a row keeps in its details, beside the columns `uid` and `name`."""
        login = {} if self.login is None else {"login_uid": self.login.uid, "login_name": self.login.name}
        given = {"person_name": self.person, "via": self.via, "request": self.request}
        return {**login, **{name: value for name, value in given.items() if value is not None}}


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """The whole row. `subject`: the id of what it was done to; None: of no one thing."""

    seq: int
    at: float
    uid: int
    name: str
    action: str
    subject: str | None
    reason: str | None
    details_json: str
    prev_hash: str
    hash: str

    @property
    def details(self) -> Any:
        return json.loads(self.details_json)

    @property
    def hash_now(self) -> str:
        """The hash of the row as it is now."""
        row = [
            self.seq, self.at, self.uid, self.name, self.action, self.subject, self.reason, self.details, self.prev_hash
        ]  # fmt: skip
        return sha256_of(canonicalize(row))


COLUMNS = tuple(field.name for field in fields(AuditRow))
"""The columns of the table, in its order."""
