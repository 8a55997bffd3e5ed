"""SMTP servers on loopback: a real server, and a scripted server with a programmed answer at each step."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import struct
import subprocess
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

USER = "house"


class Mailroom:
    """The messages that a server of aiosmtpd accepted."""

    def __init__(self) -> None:
        self.taken: list[Envelope] = []
        self.port = 0

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        self.taken.append(envelope)
        return "250 taken as 4711"


@asynccontextmanager
async def a_mailroom(
    *, tls: ssl.SSLContext | None = None, starttls: ssl.SSLContext | None = None, password: str | None = None
) -> AsyncIterator[Mailroom]:
    """Run a server of aiosmtpd on this loop; with a password, it requires a login."""

    def judge(server: SMTP, session: Session, envelope: Envelope, mechanism: str, given: Any) -> AuthResult:
        wanted = LoginPassword(USER.encode(), (password or "").encode())
        return AuthResult(success=given == wanted, handled=False)

    room = Mailroom()
    options: dict[str, Any] = {"hostname": "mailroom.example", "loop": asyncio.get_running_loop()}
    if password is not None:
        options |= {"authenticator": judge, "auth_required": True, "auth_require_tls": False}
    if starttls is not None:
        options |= {"tls_context": starttls, "require_starttls": True}

    def protocol() -> SMTP:
        with warnings.catch_warnings(action="ignore"):  # aiosmtpd warns of passwords in clear text
            return SMTP(room, **options)

    server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0, ssl=tls)
    room.port = server.sockets[0].getsockname()[1]
    try:
        yield room
    finally:
        server.close()


class Left(Exception):
    """Raised when this side of the conversation has ended."""


class Conversation:
    """The conversation with one client of a scripted server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, text: str) -> None:
        self.writer.write("".join(f"{line}\r\n" for line in text.split("\n")).encode())
        await self.writer.drain()

    async def receive_line(self) -> bytes:
        line = await self.reader.readline()
        if not line.endswith(b"\n"):
            raise Left
        return line


Reply = str | Callable[[Conversation], Awaitable[None]]

GOES_WELL: dict[str, Reply] = {
    "greeting": "220 stub.example ESMTP",
    "EHLO": "250-stub.example\n250 AUTH PLAIN LOGIN",
    "AUTH": "235 hello",
    "MAIL": "250 from whom you like",
    "RCPT": "250 to whom you like",
    "DATA": "354 go on",
    "body": "",
    "dot": "250 taken",
    "QUIT": "221 bye",
    "unknown": "500 what",
}


class Scripted:
    """A scripted server, with a reply or an action for each step or each recipient of RCPT.

    `messages`: the messages whose final dot has arrived, with any reply to it.
    """

    def __init__(self, replies: dict[str, Reply]) -> None:
        self.replies = GOES_WELL | replies
        self.received: list[str] = []
        self.messages: list[bytes] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._talk(Conversation(reader, writer))
        except (Left, ConnectionError, ssl.SSLError):
            pass
        finally:
            writer.close()

    async def _talk(self, conversation: Conversation) -> None:
        await self._reply("greeting", conversation)
        while True:
            line = (await conversation.receive_line()).decode().strip()
            self.received.append(line)
            verb = line.partition(" ")[0].upper()
            step = next((key for key in (line, verb) if key in self.replies), "unknown")
            reply = await self._reply(step, conversation)
            if verb == "DATA" and reply == "354 go on":
                await self._take(conversation)
            if verb == "QUIT":
                return

    async def _take(self, conversation: Conversation) -> None:
        await self._reply("body", conversation)
        message = bytearray()
        while (line := await conversation.receive_line()) != b".\r\n":
            message += line
        self.messages.append(bytes(message))
        await self._reply("dot", conversation)

    async def _reply(self, step: str, conversation: Conversation) -> str | None:
        reply = self.replies[step]
        if not isinstance(reply, str):
            await reply(conversation)
            return None
        if reply:
            await conversation.send(reply)
        return reply


@asynccontextmanager
async def a_server(
    receive_buffer: int | None = None, tls: ssl.SSLContext | None = None, **replies: Reply
) -> AsyncIterator[Scripted]:
    """Run a scripted server until the block ends."""
    scripted = Scripted({key.replace("_", " "): reply for key, reply in replies.items()})
    listening = socket.create_server(("127.0.0.1", 0))
    if receive_buffer is not None:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    serving: set[asyncio.Task[None]] = set()

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.get_running_loop().create_task(scripted.serve(reader, writer)))

    server = await asyncio.start_server(begin, sock=listening, ssl=tls)
    scripted.port = listening.getsockname()[1]
    try:
        yield scripted
    finally:
        server.close()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


async def resets(conversation: Conversation) -> None:
    """Reset the connection, and lose the data in flight."""
    conversation.writer.get_extra_info("socket").setsockopt(
        socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
    )
    conversation.writer.transport.abort()
    raise Left


async def closes(conversation: Conversation) -> None:
    """Close the connection in order."""
    raise Left


async def hangs(conversation: Conversation) -> None:
    """Send no reply until the client disconnects."""
    while await conversation.reader.read(1 << 16):
        pass
    raise Left


async def stops_reading(conversation: Conversation) -> None:
    """Stop reading, and send no reply."""
    await asyncio.get_running_loop().create_future()


async def never_ends(conversation: Conversation) -> None:
    """Send one reply with endless lines."""
    while True:
        await conversation.send("250-and " + "so on " * 100)


def says_and_closes(text: str) -> Reply:
    async def reply(conversation: Conversation) -> None:
        await conversation.send(text)
        raise Left

    return reply


def says_in_turn(*texts: str) -> Reply:
    """Send each text once, and then repeat the last one."""
    left = list(texts)

    async def reply(conversation: Conversation) -> None:
        await conversation.send(left.pop(0) if len(left) > 1 else left[0])

    return reply


def a_certificate(folder: Path) -> tuple[Path, Path]:
    """Return a self-signed certificate for this machine, and its key. Skips where no program can create one."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed, so there is no certificate to serve TLS with")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-days", "3650"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command, *subject, *files], check=True, capture_output=True)
    return certificate, key


def served_with(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    return context
