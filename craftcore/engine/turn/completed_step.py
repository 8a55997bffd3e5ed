"""The event of a completed step, as the memo of its turn has it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

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


def list_steps(memo: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the identity of each completed step, and its newest event."""
    for identity in memo:
        if identity.startswith("step:") and "~" not in identity and (text := find_completed_event(memo, identity)):
            yield identity, text


def find_alike(steps: Mapping[str, str], name: str, args: str, is_taken: Callable[[str], bool]) -> str | None:
    """Return a completed step that may be this one under another name or key; None when there is none.

    No call has come to it, and it has the same arguments, and without any the same name.
    """
    for identity, text in steps.items():
        is_named = identity.partition("|")[0].partition("/")[0] == f"step:{name}"
        if (args or is_named) and not is_taken(identity) and decode_completed(text).args == args:
            return identity
    return None
