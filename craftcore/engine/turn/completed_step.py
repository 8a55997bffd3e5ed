"""The event of a completed step, as the memo of its turn has it. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Completed(msgspec.Struct):
    """The event of a completed step."""

    args: str
    result: msgspec.Raw


decode_completed = msgspec.json.Decoder(Completed).decode


def find_completed_event(memo: Mapping[str, str], identity: str) -> str | None:
    """Return the newest event of a completed step; None when it is not completed."""
    text, revision = memo.get(identity), 0
    while (later := memo.get(f"{identity}~{revision + 1}")) is not None:
        text, revision = later, revision + 1
    return text
