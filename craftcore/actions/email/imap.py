"""Whether a message is in a folder, asked of an IMAP server by its Message-ID. Nothing there is changed.

Five commands of IMAP4rev1 (RFC 3501), spoken here: the standard library's client blocks, and cannot be stopped. What is
not plainly an answer is none, so that "it is not there" is only ever what the server said.
"""

from __future__ import annotations

import re
import ssl
from base64 import b64encode
from typing import NoReturn

import anyio
import anyio.to_thread
from anyio.abc import ByteStream
from anyio.streams.buffered import BufferedByteReceiveStream
from anyio.streams.tls import TLSStream

from craftcore.actions.redaction import Scrubber
from craftcore.config import EmailSettings
from craftcore.errors import CraftcoreError, ErrorCode
from craftcore.serialization.untrusted import bounded, message_of

PORTS = {"tls": 993, "starttls": 143, "none": 143}
LINE_MAX_BYTES = 64 << 10
LINES_MAX = 1000
SAID_CHARACTERS = 500


class FolderUnreadable(CraftcoreError):
    """Nobody could look into the folder: it may hold the message, or not."""

    code = ErrorCode.AGENT_UNAVAILABLE


async def is_in_folder(settings: EmailSettings, password: str, message_id: str) -> bool:
    """Whether the folder of the settings has it; a part of the id will do.

    Raises FolderUnreadable, in no text of which the password is.
    """
    port = settings.imap_port or PORTS[settings.imap_security]
    try:
        with anyio.fail_after(settings.timeout):
            return await _is_found(settings, port, password, message_id)
    except TimeoutError:
        why = f"no answer within {settings.timeout:g} seconds"
    except Exception as error:
        why = message_of(error)
    spelt = (password, _quoted(password)[1:-1], _plain(settings.imap_username, password))
    why = Scrubber(spelt).text(why)
    where = f"folder {settings.imap_folder} at {settings.imap_host}:{port}"
    raise FolderUnreadable(f"{where} cannot be searched: {bounded(' '.join(why.split()), SAID_CHARACTERS)}")


async def _is_found(settings: EmailSettings, port: int, password: str, message_id: str) -> bool:
    connection = _Connection(await anyio.connect_tcp(settings.imap_host, port))
    try:
        if settings.imap_security == "tls":
            await connection.encrypt(settings.imap_host)
        await connection.greeting()
        if settings.imap_security == "starttls":
            await connection.ask("STARTTLS")
            await connection.encrypt(settings.imap_host)
        await _log_in(connection, settings.imap_username, password)
        await connection.ask(f"EXAMINE {_quoted(utf7(settings.imap_folder))}")
        answer = await connection.ask(f"UID SEARCH HEADER Message-ID {_quoted(message_id)}")
        found = [words[1:] for line in answer if (words := line.split()) and words[0].upper() == "SEARCH"]
        if not found:
            raise FolderUnreadable("it was searched, and nothing was said of what was found")
        await connection.send("z LOGOUT")
        return any(found)
    finally:
        await connection.close()


async def _log_in(connection: _Connection, username: str, password: str) -> None:
    """As PLAIN, which takes any text, or else as LOGIN, which takes ASCII."""
    capabilities = {word.upper() for line in await connection.ask("CAPABILITY") for word in line.split()}
    if "AUTH=PLAIN" in capabilities:
        await connection.ask("AUTHENTICATE PLAIN", then=_plain(username, password))
    elif "LOGINDISABLED" in capabilities or not re.fullmatch(r"[ -~]*", username + password):
        raise FolderUnreadable("it takes no password, or none beyond ASCII")
    else:
        await connection.ask(f"LOGIN {_quoted(username)} {_quoted(password)}")


class _Connection:
    """Commands and what is answered, line by line."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._received = BufferedByteReceiveStream(stream)
        self._asked = 0

    async def encrypt(self, host: str) -> None:
        """From here on, with a server that this machine trusts."""
        if self._received.buffer:
            raise FolderUnreadable("something was said between the plain and the encrypted part of the conversation")
        context = await anyio.to_thread.run_sync(ssl.create_default_context)
        self._stream = await TLSStream.wrap(
            self._stream, server_side=False, hostname=host, ssl_context=context, standard_compatible=False
        )
        self._received = BufferedByteReceiveStream(self._stream)

    async def greeting(self) -> None:
        line = await self._line()
        if not line.upper().startswith("* OK"):
            _refuse(line)

    async def ask(self, command: str, then: str | None = None) -> list[str]:
        """What was said before the OK, without the stars. `then`: what is sent when the server asks for it."""
        self._asked += 1
        tag = f"a{self._asked}"
        await self.send(f"{tag} {command}")
        said: list[str] = []
        while len(said) < LINES_MAX:
            line = await self._line()
            mark, _, rest = line.partition(" ")
            if mark == tag:
                if rest[:2].upper() == "OK":
                    return said
                _refuse(rest)
            elif mark == "*" and rest[:3].upper() != "BYE":
                said.append(rest)
            elif mark == "+" and then is not None:
                await self.send(then)
                then = None
            else:
                _refuse(line)
        raise FolderUnreadable(f"more than {LINES_MAX} lines were said to one command")

    async def send(self, line: str) -> None:
        await self._stream.send(f"{line}\r\n".encode())

    async def close(self) -> None:
        await anyio.aclose_forcefully(self._stream)

    async def _line(self) -> str:
        try:
            return (await self._received.receive_until(b"\r\n", LINE_MAX_BYTES)).decode(errors="replace")
        except (anyio.EndOfStream, anyio.IncompleteRead):
            raise FolderUnreadable("the connection was closed") from None


def _refuse(said: str) -> NoReturn:
    raise FolderUnreadable(f"the server said {said}")


def _plain(username: str, password: str) -> str:
    return b64encode(f"\0{username}\0{password}".encode()).decode()


def _quoted(text: str) -> str:
    escaped = re.sub(r'(["\\])', r"\\\1", text)
    return f'"{escaped}"'


def utf7(name: str) -> str:
    """A folder's name as IMAP spells it (RFC 3501, 5.1.3)."""

    def spelt(found: re.Match[str]) -> str:
        encoded = b64encode(found[0].encode("utf-16-be")).decode().rstrip("=").replace("/", ",")
        return "&-" if found[0] == "&" else f"&{encoded}-"

    return re.sub(r"[^ -~]+|&", spelt, name)
