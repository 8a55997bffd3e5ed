"""One request to one host, and its outcome: not sent, answered, or unknown.

The connection goes to an address that was judged, not to a name. The outcome is unknown from the first byte of the
request, not of the connection. A name that is not found, a refused connection, or a TLS handshake that fails or takes
too long has sent no request.
"""

from __future__ import annotations

import logging
import ssl
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import anyio

from craftcore.actions.http.address_rules import Resolve, addresses_of
from craftcore.errors import CraftcoreError, ErrorCode
from craftcore.outcome_exceptions import NoEffect
from craftcore.serialization.untrusted import message_of

if TYPE_CHECKING:
    import httpcore2
    import httpx2

CONNECT_SECONDS = 10.0
"""For one address, its TLS handshake included."""

BODY_SECONDS = 10.0
BODY_READ_MAX_BYTES = 16 << 20
"""Bytes of a body that are read, counted and hashed at most, however little is kept."""

CLOSE_SECONDS = 1.0


class MissingAnswer(CraftcoreError):
    """The request, or part of it, left, and no answer tells what became of it."""

    def __init__(
        self,
        message: str,
        /,
        *,
        code: str = ErrorCode.TRANSPORT_ERROR,
        retry_after: float | None = None,
        **details: Any,
    ) -> None:
        super().__init__(message, **details)
        self.code = code
        self.retry_after = retry_after


class Cut(StrEnum):
    """Why not all of a body is kept."""

    LONG = "long"
    """It came whole, and is longer than what is kept."""
    ENDLESS = "endless"
    """It had not ended after all that is read of a body."""
    LATE = "late"
    """It had not ended in time."""
    BROKEN = "broken"
    """The connection broke."""
    ENCODED = "encoded"
    """It came compressed or otherwise encoded, so that a secret in it would not be recognised. None of it is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer of a provider. `body` is the beginning; `body_bytes` and `body_sha256` are of all that arrived."""

    status: int
    headers: Sequence[tuple[str, str]]
    body: bytes
    body_bytes: int
    body_sha256: str
    cut: Cut | None


class Exchange:
    """One request, sent at most once."""

    def __init__(
        self,
        method: str,
        url: httpx2.URL,
        headers: Mapping[str, str],
        content: bytes | None,
        *,
        keep: int,
        settle: bool,
    ) -> None:
        """Keep `keep` bytes of the body. `settle`: the request may change something, so a cancellation still reads an
        answer that has begun."""
        self._method = method
        self._url = url
        self._headers = headers
        self._content = content
        self._keep = keep
        self._settle = settle
        self._sending = self._left = False
        self._stream: httpcore2.AsyncNetworkStream | None = None

    async def run(self, resolve: Resolve, deadline: float, *, allow_private: bool) -> Answer:
        """Ask the first of the host's addresses that lets us, until `deadline` (as of anyio).

        Raises Fail when an address may not be asked, NoEffect when nothing left (also when it is cancelled by then),
        MissingAnswer when something did and no answer came.
        """
        _keep_answers_out_of_logs()
        host = self._url.raw_host.decode("ascii")
        port = self._url.port or {"http": 80}.get(self._url.scheme, 443)
        trouble = _Missed("it was not found in time", ErrorCode.AGENT_TIMEOUT)
        try:
            addresses: list[str] = []
            with anyio.CancelScope(deadline=deadline):
                addresses = await addresses_of(host, port, allow_private=allow_private, resolve=resolve)
            for address in addresses:
                if self._left or anyio.current_time() >= deadline:
                    break
                try:
                    return await self._ask(address, deadline)
                except _Missed as missed:
                    trouble = missed
        except anyio.get_cancelled_exc_class():
            if self._left or not self._settle:
                raise
            raise NoEffect("cancelled before anything was sent") from None
        if self._left:
            raise MissingAnswer(f"{host} was asked, and no answer came: {trouble}", code=trouble.code)
        raise NoEffect(f"{host} cannot be talked to: {trouble}", code=trouble.code)

    async def _ask(self, address: str, deadline: float) -> Answer:
        import httpx2

        before = sys.exception()
        transport = httpx2.AsyncHTTPTransport(verify=_certificates(), trust_env=False)
        try:
            with anyio.CancelScope(deadline=deadline) as waiting:
                try:
                    request = self._pin_address(address)
                    self._left = True  # unless the transport says that it is still connecting
                    response = await transport.handle_async_request(request)
                except Exception as error:  # whatever it is: what counts is whether something left
                    timed_out = isinstance(error, httpx2.TimeoutException)
                    code = ErrorCode.AGENT_TIMEOUT if timed_out else ErrorCode.TRANSPORT_ERROR
                    raise _Missed(_cause_text(error, before), code) from None
            if waiting.cancelled_caught:
                raise _Missed("it was out of time", ErrorCode.AGENT_TIMEOUT)
            return await self._answer(response, deadline)
        finally:
            with anyio.move_on_after(CLOSE_SECONDS, shield=True):
                await transport.aclose()
                if self._stream is not None:  # the transport forgets it when it is cancelled in the TLS handshake
                    await self._stream.aclose()

    def _pin_address(self, address: str) -> httpx2.Request:
        """Return the request as it goes to this very address: the name is in its Host header, and in the TLS
        handshake."""
        import httpx2

        name = self._url.raw_host.decode("ascii").removesuffix(".")
        host = self._url.copy_with(host=name).netloc.decode("ascii")
        return httpx2.Request(
            self._method,
            self._url.copy_with(host=address),
            headers={"Host": host, "Connection": "close"} | dict(self._headers),
            content=self._content,
            extensions={"timeout": {"connect": CONNECT_SECONDS}, "sni_hostname": name, "trace": self._trace},
        )

    async def _trace(self, event: str, details: Mapping[str, Any]) -> None:
        """Note the events of the transport. A request is sent only during events other than `connection.…`."""
        self._sending = self._sending or not event.startswith("connection.")
        self._left = self._sending
        if event == "connection.connect_tcp.complete":
            self._stream = details["return_value"]

    async def _answer(self, response: httpx2.Response, deadline: float) -> Answer:
        """Read the answer. Its head shows what happened; with `settle`, neither a failure of the body nor a
        cancellation undoes that."""
        kept, seen, digest = bytearray(), 0, sha256()
        cut: Cut | None = None
        if self._settle:
            deadline = min(deadline, anyio.current_time() + BODY_SECONDS)
        with anyio.CancelScope(deadline=deadline, shield=self._settle) as reading:
            try:
                async for chunk in response.aiter_raw():
                    seen += len(chunk)
                    digest.update(chunk)
                    kept += chunk[: max(0, self._keep - len(kept))]
                    if seen > BODY_READ_MAX_BYTES:
                        cut = Cut.ENDLESS
                        reading.cancel()  # at its next read: a stream that is merely left is closed by nobody, later
            except Exception:
                cut = Cut.BROKEN
        if reading.cancelled_caught and cut is None:
            cut = Cut.LATE
        return Answer(
            status=response.status_code,
            headers=response.headers.multi_items(),
            body=bytes(kept),
            body_bytes=seen,
            body_sha256=digest.hexdigest(),
            cut=cut or (Cut.LONG if seen > self._keep else None),
        )


class _Missed(Exception):
    """No answer from this address."""

    def __init__(self, why: str, code: ErrorCode) -> None:
        super().__init__(why)
        self.code = code


@cache
def _certificates() -> ssl.SSLContext:
    """Return the trusted certificates. Reading them takes too long for each call."""
    import httpx2

    return httpx2.create_ssl_context()


def _cause_text(error: BaseException, before: BaseException | None) -> str:
    """Return the text of the first cause that has one: errors of the libraries often have none. The error that was
    handled `before` does not count as a cause."""
    why, cause = error, error.__cause__ or error.__context__
    while cause is not None and cause is not before:
        why, cause = cause if str(cause) else why, cause.__cause__ or cause.__context__
    return message_of(why)


def _keep_answers_out_of_logs() -> None:
    """Stop the library from logging headers of answers at DEBUG: they may repeat a secret, and come before
    redaction."""
    logger = logging.getLogger("httpcore2")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO)
