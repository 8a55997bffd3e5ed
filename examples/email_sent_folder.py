"""Find out by IMAP whether `email.send` sent a message: a reconcile function of your own.

    IMAP_HOST=imap.example.org IMAP_USERNAME=house IMAP_PASSWORD=… CRAFTCORE_CONFIG=craftcore.toml \\
        craftcore run email_sent_folder:app                      in the folder examples/
    python examples/email_sent_folder.py '<activity.1@example.org>'    asks the folder for one message

SMTP has no idempotency key, so nothing in doubt is sent again unasked. Many SMTP servers put what they sent into a
folder. This app declares `email.send` itself, with a function that searches that folder for the Message-ID:

- The message is there: it was sent.
- It is missing, and IMAP_IS_COMPLETE=1 says that the folder has every sent message by then: it was not sent.
- It is missing otherwise: a person is asked.

Set IMAP_IS_COMPLETE only if the server stores every accepted message within IMAP_SETTLE seconds, keeps its Message-ID,
and keeps messages for longer. Otherwise a message may be sent twice. Some services, such as Amazon SES, replace the
Message-ID: do not search for it there. IMAP_SECURITY is tls, starttls or none; IMAP_FOLDER is Sent.

The client speaks five commands of IMAP4rev1 (RFC 3501) and changes nothing. The client of the standard library blocks,
and cannot be cancelled. An answer that is not plain is no answer: only the server says that a message is missing.
"""

from __future__ import annotations

import os
import re
import ssl
import sys
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn, cast

import anyio
import anyio.to_thread
from anyio.abc import ByteStream
from anyio.streams.buffered import BufferedByteReceiveStream
from anyio.streams.tls import TLSStream

from craftcore import App, Call, CraftcoreError, Done, ErrorCode, NoEffect
from craftcore.actions.email.email_action import email_action
from craftcore.actions.redaction import Scrubber
from craftcore.config import Config
from craftcore.config.references import is_loopback, mailbox
from craftcore.daemon.secrets import Secrets
from craftcore.registry.call import message_id

PORTS = {"tls": 993, "starttls": 143, "none": 143}
LINE_MAX_BYTES = 64 << 10
LINES_MAX = 1000
SAID_CHARACTERS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """The folder where the SMTP server stores sent messages. Port 0: the usual one. `timeout` in seconds.

    Raises ValueError when the password would travel in clear text to another machine.
    """

    host: str
    username: str
    password: str
    port: int = 0
    security: Literal["tls", "starttls", "none"] = "tls"
    name: str = "Sent"
    is_complete: bool = False
    timeout: float = 60.0

    def __post_init__(self) -> None:
        if self.security == "none" and not is_loopback(self.host):
            raise ValueError(f"the password would travel to {self.host} in clear text: use tls or starttls")


def reconcile_by(folder: Folder, domain: str) -> Callable[..., Awaitable[Done[str] | NoEffect | None]]:
    """Return the reconcile function of `email.send`. `domain`: the one of the configured sender."""

    async def look_up(call: Call, **arguments: Any) -> Done[str] | NoEffect | None:
        own_id = message_id(call.key, domain)
        ours, at, _ = own_id.partition("@")  # a part of it is searched for: the domain may have been another one then
        if await is_in_folder(folder, ours + at):
            return Done(own_id)
        if folder.is_complete:
            return NoEffect(f"{own_id} is not in {folder.name}, which holds everything that was sent")
        return None

    return look_up


class FolderUnreadable(CraftcoreError):
    """The folder could not be searched: it may hold the message, or not."""

    code = ErrorCode.AGENT_UNAVAILABLE


async def is_in_folder(folder: Folder, message_id: str) -> bool:
    """Tell whether the folder has a message of that id; a part of the id will do.

    Raises FolderUnreadable, in no text of which the password is.
    """
    port = folder.port or PORTS[folder.security]
    try:
        with anyio.fail_after(folder.timeout):
            return await _is_found(folder, port, message_id)
    except TimeoutError:
        why = f"no answer within {folder.timeout:g} seconds"
    except Exception as error:
        why = str(error) or type(error).__name__
    password = folder.password
    why = Scrubber((password, _quoted(password)[1:-1], _plain(folder.username, password))).text(why)
    where = f"folder {folder.name} at {folder.host}:{port}"
    raise FolderUnreadable(f"{where} cannot be searched: {' '.join(why.split()):.{SAID_CHARACTERS}}")


async def _is_found(folder: Folder, port: int, message_id: str) -> bool:
    connection = _Connection(await anyio.connect_tcp(folder.host, port))
    try:
        if folder.security == "tls":
            await connection.encrypt(folder.host)
        await connection.greeting()
        if folder.security == "starttls":
            await connection.ask("STARTTLS")
            await connection.encrypt(folder.host)
        await _log_in(connection, folder.username, folder.password)
        await connection.ask(f"EXAMINE {_quoted(utf7(folder.name))}")
        answer = await connection.ask(f"UID SEARCH HEADER Message-ID {_quoted(message_id)}")
        found = [words[1:] for line in answer if (words := line.split()) and words[0].upper() == "SEARCH"]
        if not found:
            raise FolderUnreadable("it was searched, and nothing was said of what was found")
        await connection.send("z LOGOUT")
        return any(found)
    finally:
        await connection.close()


async def _log_in(connection: _Connection, username: str, password: str) -> None:
    """Log in as PLAIN, which takes any text, or else as LOGIN, which takes ASCII."""
    capabilities = {word.upper() for line in await connection.ask("CAPABILITY") for word in line.split()}
    if "AUTH=PLAIN" in capabilities:
        await connection.ask("AUTHENTICATE PLAIN", then=_plain(username, password))
    elif "LOGINDISABLED" in capabilities or not re.fullmatch(r"[ -~]*", username + password):
        raise FolderUnreadable("it takes no password, or none beyond ASCII")
    else:
        await connection.ask(f"LOGIN {_quoted(username)} {_quoted(password)}")


class _Connection:
    """A conversation with the server, line by line."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._received = BufferedByteReceiveStream(stream)
        self._asked = 0

    async def encrypt(self, host: str) -> None:
        """Encrypt what follows, with a server that this machine trusts."""
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
        """Return the lines before the OK, without the stars. `then`: what is sent when the server asks for it."""
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
    """Spell the name of a folder as IMAP does (RFC 3501, 5.1.3)."""

    def spelt(found: re.Match[str]) -> str:
        encoded = b64encode(found[0].encode("utf-16-be")).decode().rstrip("=").replace("/", ",")
        return "&-" if found[0] == "&" else f"&{encoded}-"

    return re.sub(r"[^ -~]+|&", spelt, name)


def folder_of(environ: Mapping[str, str]) -> Folder | None:
    """Return the folder that IMAP_HOST and the other variables name. None without IMAP_HOST."""
    host = environ.get("IMAP_HOST")
    if not host:
        return None
    security = environ.get("IMAP_SECURITY", "tls")
    if security not in PORTS:
        raise ValueError(f"IMAP_SECURITY is {security}: use tls, starttls or none")
    return Folder(
        host=host,
        username=environ["IMAP_USERNAME"],
        password=environ["IMAP_PASSWORD"],
        port=int(environ.get("IMAP_PORT", "0")),
        security=cast(Literal["tls", "starttls", "none"], security),
        name=environ.get("IMAP_FOLDER", "Sent"),
        is_complete=environ.get("IMAP_IS_COMPLETE") == "1",
    )


def declare_email(app: App, environ: Mapping[str, str]) -> None:
    """Declare `email.send` with the server of the configuration and, if there is one, the folder of the environment."""
    path = environ.get("CRAFTCORE_CONFIG")
    settings = Config.load(Path(path) if path else None).email
    folder, sender = folder_of(environ), mailbox(settings.sender)
    secret = Secrets(environ).get
    if folder is None or sender is None:
        app.declare_action(email_action(settings, secret))
        return
    settle_after = float(environ.get("IMAP_SETTLE", "600"))  # a server may take ten minutes over one (RFC 5321)
    look_up = reconcile_by(folder, sender.domain)
    app.declare_action(email_action(settings, secret, reconcile=look_up, settle_after=settle_after))


app = App("email")
declare_email(app, os.environ)


async def main(message_id: str) -> None:
    folder = folder_of(os.environ)
    if folder is None:
        sys.exit("set IMAP_HOST, IMAP_USERNAME and IMAP_PASSWORD")
    print("sent" if await is_in_folder(folder, message_id) else "missing")


if __name__ == "__main__":
    anyio.run(main, sys.argv[1])
