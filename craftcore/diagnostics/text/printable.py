"""Text that is printed as it is, because it was made printable."""

from __future__ import annotations

import json
from typing import Any


class Verbatim(str):
    """Printable text that is printed as it is: an escape in it is its own."""

    __slots__ = ()


def show_json(value: Any, *, compact: bool = False) -> Verbatim:
    """Return JSON on one line, to read and to paste. Characters that do not print are escaped once, by the rules of
    JSON."""
    separators = (",", ":") if compact else None
    text = json.dumps(value, ensure_ascii=False, default=str, separators=separators)
    return Verbatim("".join(sign if sign.isprintable() else json.dumps(sign)[1:-1] for sign in text))
