"""The people of the page: `[[web.person]]` of the configuration. Tokens are references, never the secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Literal

from craftcore.config.references import REFERENCE_SAID, secret_reference

PEOPLE_MAX = 200
TOKEN_MIN = 16
"""Characters that a token must have, and the secret of a proxy."""
NAME_SAID = "a name of letters, digits and ._@+-, at most 100"
_NAME = re.compile(r"[A-Za-z0-9._@+-]{1,100}")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebPerson:
    """A person who may log in. `token`: a reference to the secret; empty: only by a proxy. `in_doubt`: may decide about
    activities in doubt. `groups`: the groups that a question may be asked of."""

    name: str
    token: str = ""
    may: Literal["look", "answer", "act"] = "look"
    in_doubt: bool = True
    groups: tuple[str, ...] = ()

    def may_answer(self, addressee: str | None) -> bool:
        """Return whether this person may answer a question to that person or group; None: to everybody."""
        if self.may == "answer":
            return addressee is None or addressee in (self.name, *self.groups)
        return self.may == "act"


def find_length_mistake(noun: str, secret: str) -> str | None:
    """Return that a secret is too short; None: it is not. `noun`: the word for it."""
    return f"the {noun} is shorter than {TOKEN_MIN} characters" if len(secret) < TOKEN_MIN else None


def read_people(where: str, given: object, mistakes: list[str]) -> tuple[WebPerson, ...]:
    """Return the `[[web.person]]` tables that have no mistake. A mistake is one line, and shows no secret."""
    if not isinstance(given, list) or not all(isinstance(table, dict) for table in given):
        mistakes.append(f"{where} must be written as [[{where}]], once for each")
        return ()
    people: list[WebPerson] = []
    for number, table in enumerate(given, 1):
        found = list(_mistakes_of_person(table, {person.name for person in people}))
        mistakes.extend(f"{where} {number}: {mistake}" for mistake in found)
        if not found:
            people.append(WebPerson(**{**table, "groups": tuple(table.get("groups", ()))}))
    if len(people) > PEOPLE_MAX:
        mistakes.append(f"{where}: there are {len(people)}; allowed: at most {PEOPLE_MAX}")
    return tuple(people)


def _mistakes_of_person(table: dict[str, Any], names: set[str]) -> Iterator[str]:
    known = [field.name for field in fields(WebPerson)]
    if unknown := [key for key in table if key not in known]:
        shown = unknown[0] if unknown[0].isidentifier() else repr(unknown[0])
        yield f"{shown:.80} is unknown; allowed: {', '.join(known)}"
        return
    name = table.get("name")
    if name is None:
        yield f"name is missing; give {NAME_SAID}"
    elif not isinstance(name, str) or not _NAME.fullmatch(name):
        yield f"name is {name!r:.60}; allowed: {NAME_SAID}"
    elif name in names:
        yield f"name {name} is given twice"
    if "token" in table and secret_reference(table["token"]) is None:
        yield f"token is not shown; allowed: {REFERENCE_SAID}"
    if table.get("may", "look") not in ("look", "answer", "act"):
        yield f'may is {table["may"]!r:.60}; allowed: "look", "answer" or "act"'
    if type(table.get("in_doubt", True)) is not bool:
        yield f"in_doubt is {table['in_doubt']!r:.60}; allowed: true or false"
    groups = table.get("groups", [])
    if not isinstance(groups, list) or not all(isinstance(one, str) and _NAME.fullmatch(one) for one in groups):
        yield f"groups is {groups!r:.60}; allowed: a list of names of letters, digits and ._@+-"


def is_person_name(text: str) -> bool:
    """Return whether a person of the page can have this name."""
    return _NAME.fullmatch(text) is not None
