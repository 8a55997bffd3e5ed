"""How what a setting names is spelt: a secret, that is never written out. Whoever reads settings and whoever uses them
judge by the same rules."""

from __future__ import annotations

import re
from typing import NamedTuple

_REFERENCE = re.compile(r"(env):([A-Za-z_][A-Za-z0-9_]{0,99})|(credential):([!-.0-9;-~]{1,200})")

REFERENCE_SAID = (
    '"env:NAME", a variable of the daemon\'s environment, or "credential:NAME", a file in $CREDENTIALS_DIRECTORY; '
    "never the secret itself"
)


class SecretReference(NamedTuple):
    """Where a secret is: `env` and the name of a variable, or `credential` and the name of a file."""

    scheme: str
    name: str


def secret_reference(text: object) -> SecretReference | None:
    """What a reference refers to. None when it is no reference: then it may be the secret itself, so do not show it."""
    found = _REFERENCE.fullmatch(text) if isinstance(text, str) else None
    if found is None or found[4] in (".", ".."):
        return None
    return SecretReference(found[1] or found[3], found[2] or found[4])
