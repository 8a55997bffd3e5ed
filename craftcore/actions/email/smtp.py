"""One message handed to an SMTP server, and what can be said of it afterwards.

    before the final dot     whatever goes wrong, the server must not deliver it (RFC 5321, 4.1.1.4): NoEffect, or Fail
                             where the server said 5xx: trying again would be told the same
    the final dot, a reply   2xx it took it · 4xx NoEffect · 5xx Fail
    the final dot, no reply  it may have been delivered: DeliveryUnknown

All recipients or none: if one of them is refused, the message is not handed over.
"""

from __future__ import annotations

import asyncio
import math
import re
from base64 import b64encode
from collections.abc import Iterator
from ipaddress import ip_address
from typing import cast

import anyio

from craftcore.actions.email.message import OutgoingMessage
from craftcore.actions.redaction import Scrubber
from craftcore.config import EmailSettings
from craftcore.errors import CraftcoreError, ErrorCode
from craftcore.outcome_exceptions import Fail, NoEffect
from craftcore.serialization.untrusted import message_of, truncate_text

QUIT_SECONDS = 2.0
CHUNK_BYTES = 64 << 10
REPLY_CHARACTERS = 500
REFUSED_MAX = 5
PORTS = {"tls": 465, "starttls": 587, "none": 25}
BEGIN_DATA = 354
WHO_ARE_YOU = frozenset({530, 534, 535, 538})
"""Replies that are about the password, whatever was asked."""


class DeliveryUnknown(CraftcoreError):
    """The server has, or may have, the whole message, and what became of it was not said."""

    code = ErrorCode.ACTIVITY_UNKNOWN


class Delivery:
    """One connection for one message. No text of it, and none of its errors, tells the password."""

    def __init__(self, settings: EmailSettings, password: str | None, mail: OutgoingMessage) -> None:
        import aiosmtplib

        self._settings = settings
        self._password = password
        self._mail = mail
        self._port = settings.port or PORTS[settings.security]
        self._smtp = aiosmtplib.SMTP(
            hostname=settings.host,
            port=self._port,
            use_tls=settings.security == "tls",
            start_tls=False,  # asked for below, and insisted upon
            local_hostname="localhost",  # else it is looked up, for as long as that takes
            timeout=None,  # one time limit, and it is ours
        )
        self._scrubber = Scrubber(_password_forms(settings.username or "", password))
        self._is_heard = False
        """The server has replied to the last thing we said, and waits for another command."""

    def __str__(self) -> str:
        return f"{self._settings.host}:{self._port}"

    async def send(self) -> str:
        """Return what the server replied when it took the message. Raises NoEffect, Fail or DeliveryUnknown."""
        try:
            if (refused := await self._begin()) is not None:
                raise refused
            return await self._finish()
        finally:
            await self._leave()

    async def _begin(self) -> NoEffect | Fail | None:
        """Return everything but the final dot. The error is returned and raised elsewhere, so that the errors of the
        library, which may hold the words of the server, are not its context."""
        import aiosmtplib

        limit = self._settings.timeout
        try:
            with anyio.fail_after(limit):
                await self._introduce()
                await self._address()
                await self._send_content()
        except TimeoutError:
            message = f"{self} did not let us begin within {limit:g} seconds; nothing was sent"
            return NoEffect(message, code=ErrorCode.AGENT_TIMEOUT)
        except aiosmtplib.SMTPResponseException as error:
            self._is_heard = True
            return self._refusal(error.code, error.message)
        except Exception as error:  # whatever it is, the final dot was not sent
            message = f"{self} cannot be talked to: {self._answer_text(message_of(error))}; nothing was sent"
            return NoEffect(message, code=ErrorCode.TRANSPORT_ERROR)
        except anyio.get_cancelled_exc_class():
            if anyio.current_effective_deadline() != -math.inf:
                raise  # not by a scope of ours, which goes on cancelling: whoever it was must hear of it
            return NoEffect(f"cancelled before {self} had the message; nothing was sent")
        return None

    async def _introduce(self) -> None:
        await self._smtp.connect()
        self._smtp.local_hostname = _literal(self._smtp.get_transport_info("sockname")[0])
        if self._settings.security == "starttls":
            await self._smtp.starttls()
        if self._password is not None:
            await self._smtp.login(self._settings.username, self._password)

    async def _address(self) -> None:
        """Send the envelope. Stop at the first refused recipient; a permanent refusal is final."""
        import aiosmtplib

        await self._smtp.mail(self._mail.sender)
        refused = []
        for recipient in self._mail.recipients:
            try:
                await self._smtp.rcpt(recipient)
            except aiosmtplib.SMTPRecipientRefused as error:
                refused.append(error)
        if not refused:
            return
        worst = next((error for error in refused if 500 <= error.code < 600), refused[0])
        names = ", ".join(error.recipient for error in refused[:REFUSED_MAX])
        more = f" and {len(refused) - REFUSED_MAX} more" if len(refused) > REFUSED_MAX else ""
        raise aiosmtplib.SMTPResponseException(
            worst.code, f"{worst.message} (refused: {names}{more}; so it is sent to no recipient)"
        )

    async def _send_content(self) -> None:
        """Send the content without the final dot. The content has left this process when this returns."""
        import aiosmtplib

        reply = await self._smtp.execute_command(b"DATA")
        if reply.code != BEGIN_DATA:
            raise aiosmtplib.SMTPResponseException(reply.code, reply.message)
        transport = cast(asyncio.WriteTransport, self._smtp.transport)
        # So that to drain is to have handed over all of it. Not 0: of asyncio's TLS nothing is as much as that, too.
        transport.set_write_buffer_limits(high=1, low=0)
        self._stream = asyncio.StreamWriter(transport, self._smtp.protocol, None, asyncio.get_running_loop())  # type: ignore[arg-type]
        for chunk in _chunks(_dot_stuff(self._mail.content)):
            self._stream.write(chunk)
            await self._stream.drain()

    async def _finish(self) -> str:
        """Return the final dot, and what the server says to it."""
        import aiosmtplib

        if not self._smtp.is_connected:  # asked without giving way: from here to the dot nothing else runs
            message = f"{self} went away before it had the whole message; nothing was sent"
            raise NoEffect(message, code=ErrorCode.TRANSPORT_ERROR)
        try:
            with anyio.fail_after(self._settings.timeout):
                reply = await self._smtp.execute_command(b".")
        except TimeoutError:
            reply_text = f"no reply within {self._settings.timeout:g} seconds"
        except aiosmtplib.SMTPResponseException as error:
            reply_text = self._answer_text(error.message)
        except Exception as error:
            reply_text = self._answer_text(message_of(error))
        else:
            reply_text = self._answer_text(f"{reply.code} {reply.message}")
            self._is_heard = 200 <= reply.code < 600
            if 200 <= reply.code < 300:
                return reply_text
            if 400 <= reply.code < 600:
                raise self._refusal(reply.code, reply.message)
        raise DeliveryUnknown(
            f"{self} was given the whole message and did not say what became of it ({reply_text}); "
            f"its Message-ID is {self._mail.message_id}"
        )

    def _refusal(self, code: int, server_message: str) -> NoEffect | Fail:
        # Without a code the text comes from the library: the server gave no valid reply.
        words = f"{code} {server_message}" if code > 0 else server_message
        message = f"{self} said {self._answer_text(words)}; nothing was sent"
        if not 500 <= code < 600:
            is_busy = 400 <= code < 500  # else it is no reply that SMTP knows
            return NoEffect(message, code=ErrorCode.AGENT_UNAVAILABLE if is_busy else ErrorCode.TRANSPORT_ERROR)
        return Fail(ErrorCode.UNAUTHORIZED if code in WHO_ARE_YOU else ErrorCode.AGENT_ERROR, message, smtp_code=code)

    def _answer_text(self, text: str) -> str:
        """Return the server's reply as text that can be stored."""
        return truncate_text(" ".join(self._scrubber.head(text, REPLY_CHARACTERS).split()), REPLY_CHARACTERS)

    async def _leave(self) -> None:
        """Leave with QUIT where the server listens, and close at once elsewhere. The outcome does not change any
        more."""
        if self._smtp.is_connected and self._is_heard:
            with anyio.move_on_after(QUIT_SECONDS, shield=True):
                try:
                    await self._smtp.quit()
                except Exception:
                    pass  # it has said what matters
        if self._smtp.transport is not None:
            cast(asyncio.WriteTransport, self._smtp.transport).abort()  # closing waits until what is left was written
        self._smtp.close()


def _password_forms(username: str, password: str | None) -> Iterator[str]:
    """Yield the password, and the forms in which the server receives it."""
    if password is not None:
        yield password
        for spelt in (f"\0{username}\0{password}", password):
            yield b64encode(spelt.encode()).decode()


def _dot_stuff(content: bytes) -> bytes:
    """Return the content with dots doubled at the beginning of lines, so that no line ends the message."""
    return re.sub(rb"(?m)^\.", b"..", content)


def _chunks(content: bytes) -> Iterator[bytes]:
    return (content[start : start + CHUNK_BYTES] for start in range(0, len(content), CHUNK_BYTES))


def _literal(address: str) -> str:
    """Return the local address as EHLO takes it (RFC 5321, 4.1.4), which needs no name lookup."""
    found = ip_address(address.partition("%")[0])
    return f"[{found}]" if found.version == 4 else f"[IPv6:{found}]"
