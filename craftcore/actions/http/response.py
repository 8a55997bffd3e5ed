"""The meaning of an answer: done, not done and may be repeated, refused, or unknown.

    2xx                  it happened
    301, 307, 308        refused: it is to be asked elsewhere, and nothing was done here
    300, 302, 303, 304   unknown: many answer so after they have done it, as many before they would
    408                  unknown: some servers say so of their own slowness, after the whole request came
    409                  refused; where the provider drops a second call: unknown, for many answer so while
                                                  the first call with this key is still running
    425, 429             it did not happen
    other 4xx            refused
    5xx                  unknown, with Retry-After too: a proxy answers so for a request it has passed on

A safe method cannot have changed anything, so for it "unknown" means "ask again".
"""

from __future__ import annotations

import base64
import codecs
import json
import re
from collections.abc import Callable
from typing import Any, TypeVar

import anyio
import anyio.to_thread

from craftcore.actions.http.exchange import Answer, Cut, MissingAnswer
from craftcore.actions.http.status_codes import code_of, retry_after
from craftcore.actions.redaction import Scrubber
from craftcore.errors import ErrorCode
from craftcore.outcome_exceptions import Fail, NoEffect
from craftcore.serialization.untrusted import truncate_text

HEADERS_MAX = 64
HEADER_MAX_CHARACTERS = 1024
SERVER_TEXT_CHARACTERS = 200
REFERENCE_CHARACTERS = 200

SMALL_BYTES = 2 << 10
"""An answer as large is read on the loop: at worst it takes some milliseconds. A larger one is read in a thread."""

JSON_MAX_BYTES = 128 << 10
"""A complaint or an id is looked for in no larger body: the parser holds the interpreter while it reads."""

_NOT_KEPT = frozenset(
    {
        *("set-cookie", "set-cookie2", "authorization", "proxy-authorization", "authentication-info"),
        *("proxy-authentication-info", "www-authenticate", "proxy-authenticate"),
        *("connection", "keep-alive", "transfer-encoding", "trailer", "upgrade"),
    }
)
"""Headers of an answer that hand out credentials, and those of the connection only."""

_Read = TypeVar("_Read")

_UNCLEAR = frozenset({300, 302, 303, 304, 408})
_REFERENCES = ("location", "request-id", "x-request-id")
_CHARSET = re.compile(r"(?i);\s*charset\s*=\s*\"?(us-ascii|iso-8859-1|latin1|windows-1252)\b")


def judge(answer: Answer, *, safe: bool, provider_dedupes: bool, now: float, scrubber: Scrubber) -> None:
    """Return when it happened. Raises NoEffect, Fail, or MissingAnswer for an unknown outcome.

    `now` is for a Retry-After that is a moment, where the answer does not say what time it is.
    """
    status = answer.status
    if 200 <= status < 300 or (safe and status == 304):
        if safe and answer.cut in (Cut.LATE, Cut.BROKEN):
            code = ErrorCode.AGENT_TIMEOUT if answer.cut is Cut.LATE else ErrorCode.TRANSPORT_ERROR
            raise NoEffect(f"the answer broke off after {answer.body_bytes} bytes ({answer.cut})", code=code)
        return
    message = f"answered with HTTP status {status}{_error_message(answer, scrubber)}"
    code, wait = code_of(status), retry_after(header(answer, "retry-after"), header(answer, "date"), now)
    unclear = status >= 500 or status in _UNCLEAR or status < 200 or (status == 409 and provider_dedupes)
    if status in (425, 429) or (safe and unclear):
        raise NoEffect(message, retry_after=wait, code=code)
    if unclear:
        unclear_message = f"{message}, which does not tell whether it happened"
        raise MissingAnswer(unclear_message, code=code, retry_after=wait, status=status)
    raise Fail(code, message, status=status)


def result(answer: Answer, *, keep: int, url: str, scrubber: Scrubber) -> dict[str, Any]:
    """Return what is kept of an answer, without any secret. Secrets are replaced first, and the body is cut to `keep`
    then."""
    cut = answer.cut or (Cut.LONG if answer.body_bytes > keep else None)
    body = answer.body
    if scrubber.has_secrets and _is_encoded(answer):
        cut, body = Cut.ENCODED, b""
    content = scrubber.bytes(body, is_cut=len(answer.body) < answer.body_bytes or answer.cut is not None)[:keep]
    text = _text(content, header(answer, "content-type") or "", complete=cut is None)
    return {
        "status": answer.status,
        "url": _mask(url, 2048, scrubber),
        "headers": _headers(answer, scrubber),
        "body": base64.b64encode(content).decode() if text is None else text,
        "body_encoding": "base64" if text is None else "text",
        "body_bytes": answer.body_bytes,
        "body_sha256": answer.body_sha256,
        "body_cut": None if cut is None else str(cut),
        "provider_ref": _reference(answer, scrubber),
    }


async def read_in_thread(answer: Answer, read: Callable[[], _Read]) -> _Read:
    """Return what `read` makes of the answer. A large answer is read in a thread, so that the loop goes on.

    A cancellation waits for it: what happened is known by now, and must not be forgotten.
    """
    if len(answer.body) + sum(len(name) + len(value) for name, value in answer.headers) <= SMALL_BYTES:
        return read()
    with anyio.CancelScope() as waiting:
        waiting.shield = True
        found = await anyio.to_thread.run_sync(read, limiter=anyio.CapacityLimiter(1))
    return found


def header(answer: Answer, name: str) -> str | None:
    """Return the first header of this name, in lower case."""
    return next((value for header, value in answer.headers if header.lower() == name), None)


def _is_encoded(answer: Answer) -> bool:
    given = ",".join(value for name, value in answer.headers if name.lower() == "content-encoding")
    return bool({coding.strip().lower() for coding in given.split(",")} - {"", "identity"})


def _error_message(answer: Answer, scrubber: Scrubber) -> str:
    """Return what the provider says is wrong, or where else it is to be asked."""
    if 300 <= answer.status < 400:
        location = header(answer, "location") or ""
        where = f" to {_mask(location, SERVER_TEXT_CHARACTERS, scrubber)}" if location else ""
        return f", a redirect{where} that is not followed"
    match _json(answer):
        case (
            {"error": {"message": str(text)}}
            | {"error": str(text)}
            | {"message": str(text)}
            | {"detail": str(text)}
            | {"title": str(text)}
        ):
            return f": {_mask(text, SERVER_TEXT_CHARACTERS, scrubber)}"
    return ""


def _reference(answer: Answer, scrubber: Scrubber) -> str | None:
    """Return how the provider calls what it did: the `id` of its answer, or where it is, or how it calls the
    request."""
    match _json(answer):
        case {"id": str(reference)} if reference:
            return _mask(reference, REFERENCE_CHARACTERS, scrubber)
        case {"id": int(number)} if not isinstance(number, bool):
            return truncate_text(str(number), REFERENCE_CHARACTERS) if abs(number) < 10**100 else None
    found = next((value for name in _REFERENCES if (value := header(answer, name))), None)
    return None if found is None else _mask(found, REFERENCE_CHARACTERS, scrubber)


def _json(answer: Answer) -> Any:
    """Return the value; None when the body is not JSON, is too large, or is incomplete."""
    try:
        return json.loads(answer.body) if answer.cut is None and len(answer.body) <= JSON_MAX_BYTES else None
    except (ValueError, RecursionError):
        return None


def _headers(answer: Answer, scrubber: Scrubber) -> dict[str, str]:
    kept: dict[str, str] = {}
    for name, value in answer.headers:
        lower = scrubber.text(name.lower())
        if lower in _NOT_KEPT or (lower not in kept and len(kept) >= HEADERS_MAX):
            continue
        masked = scrubber.head(value, HEADER_MAX_CHARACTERS)
        joined = f"{kept[lower]}, {masked}" if lower in kept else masked
        kept[lower] = truncate_text(joined, HEADER_MAX_CHARACTERS)
    return kept


def _mask(text: str, limit: int, scrubber: Scrubber) -> str:
    return truncate_text(scrubber.head(text, limit), limit)


def _text(content: bytes, content_type: str, *, complete: bool) -> str | None:
    """Return the text that the bytes are; a character that is cut at the end is left out. None: the bytes are not
    text."""
    charset = match[1] if (match := _CHARSET.search(content_type)) else "utf-8"
    try:
        return codecs.getincrementaldecoder(charset)().decode(content, final=complete)
    except UnicodeDecodeError:
        return None
