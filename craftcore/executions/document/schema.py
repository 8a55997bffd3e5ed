"""The shape of a record's document, and what may not be in one. Pure. `export.py` has the words."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from craftcore.clock import YEAR_10000
from craftcore.errors import InvalidInput
from craftcore.executions.model import Status
from craftcore.serialization.type_descriptions import describe_type

FORMAT = 1

DEPTH_MAX = 100
"""Levels of a document: a result has at most 64."""

HALF = "it has half of a character"

Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9._:@+-]{1,300}\Z")]
Text = Annotated[str, msgspec.Meta(max_length=10_000)]
Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Moment = Annotated[float, msgspec.Meta(ge=0, lt=YEAR_10000)]
Duration = Annotated[float, msgspec.Meta(ge=0, lt=1e15)]
Object = dict[str, Any]


class DocumentHeader(msgspec.Struct):
    """`header` of any document."""

    executionId: Name
    createdUtcIso: Text | None
    envelopeHash: Text
    replayable: bool
    replayableReason: Text | None = None


class DocumentEvent(msgspec.Struct):
    """One of `events` of any document."""

    seq: Number
    type: Text
    payload: Object | None = None


class OurHeader(msgspec.Struct, forbid_unknown_fields=True):
    """`craftcore.header`: fields of a record that the document itself does not have, or has as people read them."""

    seq: Number
    trigger_id: Name
    task_id: Name | None
    turn: Number | None
    attempt: Number
    epoch: Number
    workflow: Name | None
    created_at: Moment
    ended_at: Moment | None
    status: Status
    replayable: bool
    replayable_reason: Text | None
    error_code: Text | None
    latency_ms: Duration | None
    chain_seq: Number | None
    events_hash: Text | None
    response_hash: Text | None
    prev_hash: Text | None
    record_hash: Text | None
    stripped_at: Moment | None
    invalidated: Text | None


class OurEvent(msgspec.Struct, forbid_unknown_fields=True):
    """One of `craftcore.events`: the same of an event; None is left out."""

    at: Moment
    task_seq: Number | None = None
    turn: Number | None = None
    memo: Text | None = None
    activity_seq: Number | None = None


class Ours(msgspec.Struct, forbid_unknown_fields=True):
    """`craftcore`."""

    format: int
    header: OurHeader
    events: list[OurEvent]
    texts: dict[str, str]


class Document(msgspec.Struct):
    """The whole of it. Other keys are ignored."""

    header: DocumentHeader
    envelope: Object | None
    events: list[DocumentEvent]
    finalResponse: Object | None = None
    routerDecision: Object | None = None
    craftcore: Ours | None = None


describe_type(Document)


def shape_of(value: Any) -> Document:
    """Return the document. Raises InvalidInput with the path to what cannot be in one: `events[3].seq: …`."""
    _refuse_deep(value)
    ours = value.get("craftcore") if isinstance(value, dict) else None
    if isinstance(ours, dict) and ours.get("format") != FORMAT:
        raise schema_refusal("craftcore.format", f"it is {ours.get('format')!r:.80}, and this program reads {FORMAT}")
    try:
        document = msgspec.convert(value, Document)
    except msgspec.ValidationError as error:
        raise schema_refusal(*_split_error(str(error))) from None
    except UnicodeEncodeError:
        raise schema_refusal("", HALF) from None
    _refuse_halves(document)
    return document


def schema_refusal(path: str, why: str) -> InvalidInput:
    """Return the refusal; `path` '': of the whole."""
    return InvalidInput(f"it is not the document of a record: {f'{path:.200}: ' if path else ''}{why:.500}")


def _refuse_deep(value: Any) -> None:
    level = [value]
    for _ in range(DEPTH_MAX):
        level = [part for one in level for part in _parts(one) if isinstance(part, dict | list)]
        if not level:
            return
    raise schema_refusal("", f"it is deeper than {DEPTH_MAX} levels")


def _parts(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []


def _refuse_halves(document: Document) -> None:
    """Refuse halves of characters in texts that are hashed or shown as they are."""
    _check_texts(msgspec.to_builtins(document.header), "header")
    for number, event in enumerate(document.events):
        _check_texts(event.type, f"events[{number}].type")
    if document.craftcore is not None:
        _check_texts(msgspec.to_builtins(document.craftcore), "craftcore")


def _check_texts(value: Any, path: str) -> None:
    match value:
        case str():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise schema_refusal(path, HALF) from None
        case dict():
            for key, part in value.items():
                _check_texts(key, path)
                _check_texts(part, f"{path}.{key}")
        case list():
            for number, part in enumerate(value):
                _check_texts(part, f"{path}[{number}]")


def _split_error(message: str) -> tuple[str, str]:
    """Return the path and the words of an error of msgspec: `Expected … - at `$.events[3].seq``."""
    words, _, place = message.rpartition(" - at `")
    return (place.removesuffix("`").lstrip("$."), words) if words else ("", message)
