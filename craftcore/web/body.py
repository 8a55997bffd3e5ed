"""The form of a request, within limits: its size, its time, and its number of fields."""

from __future__ import annotations

from urllib.parse import parse_qsl

import anyio
from starlette.requests import ClientDisconnect, Request

BODY_MAX_BYTES = 64 << 10
BODY_SECONDS = 5.0
FIELDS_MAX = 50


class BodyRefused(Exception):
    """The body of a request cannot be taken. `status` is that of the answer."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form, the last of several with one name. Raises BodyRefused."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise BodyRefused(415, "a form is application/x-www-form-urlencoded")
    body = bytearray()
    try:
        with anyio.fail_after(BODY_SECONDS):
            async for part in request.stream():
                body += part
                if len(body) > BODY_MAX_BYTES:
                    raise BodyRefused(413, f"the form is larger than {BODY_MAX_BYTES:,} bytes")
    except TimeoutError:
        raise BodyRefused(408, f"the form did not arrive within {BODY_SECONDS:g} s") from None
    except ClientDisconnect:
        raise BodyRefused(400, "the form was cut off") from None
    return parse_fields(bytes(body))


def parse_fields(encoded: bytes) -> dict[str, str]:
    """Return the fields of a form, or of a query. Raises BodyRefused."""
    try:
        pairs = parse_qsl(encoded.decode("ascii"), keep_blank_values=True, max_num_fields=FIELDS_MAX, errors="strict")
    except ValueError:  # UnicodeDecodeError is one, and so is too many fields
        raise BodyRefused(400, "the fields cannot be read") from None
    if any(_is_unstorable(text) for pair in pairs for text in pair):
        raise BodyRefused(400, "a field has characters that cannot be stored")
    return {name: value.replace("\r\n", "\n") for name, value in pairs}


def _is_unstorable(text: str) -> bool:
    return "\0" in text or any("\ud800" <= sign <= "\udfff" for sign in text)
