"""Whether a message is in a folder, asked of an IMAP server by its Message-ID. Nothing there is changed.

The library blocks, so it works in a thread: left alone when nobody waits any longer, and then ended by its socket.
"""

from __future__ import annotations

import imaplib
import re
import socket
import ssl
from base64 import b64encode
from collections.abc import Sequence

import anyio
import anyio.to_thread

from craftcore.config import EmailSettings
from craftcore.engine.words import bounded, message_of
from craftcore.errors import CraftcoreError, ErrorCode

PORTS = {"tls": 993, "starttls": 143, "none": 143}
SAID_CHARACTERS = 500


class FolderUnreadable(CraftcoreError):
    """Nobody could look into the folder: it may hold the message, or not."""

    code = ErrorCode.AGENT_UNAVAILABLE


async def is_in_folder(settings: EmailSettings, password: str, message_id: str) -> bool:
    """Whether the folder of the settings has it. Raises FolderUnreadable, in no text of which the password is."""
    search = _Search(settings, password)
    why = ""
    try:
        with anyio.fail_after(settings.timeout):
            try:
                return await anyio.to_thread.run_sync(search.finds, message_id, abandon_on_cancel=True)
            finally:
                search.stop()
    except TimeoutError:
        why = f"no answer within {settings.timeout:g} seconds"
    except Exception as error:
        why = search.without_password(message_of(error))
    where = f"folder {settings.imap_folder} at {settings.imap_host}:{search.port}"
    raise FolderUnreadable(f"{where} cannot be searched: {bounded(' '.join(why.split()), SAID_CHARACTERS)}")


class _Search:
    """One connection for one question."""

    def __init__(self, settings: EmailSettings, password: str) -> None:
        self.port = settings.imap_port or PORTS[settings.imap_security]
        self._settings = settings
        self._password = password
        self._imap: imaplib.IMAP4 | None = None

    def finds(self, message_id: str) -> bool:
        self._imap = imap = self._connected()
        try:
            self._log_in(imap)
            _ok(imap.select(_quoted(_utf7(self._settings.imap_folder)), readonly=True))
            found = _ok(imap.uid("SEARCH", "HEADER", "Message-ID", _quoted(message_id)))
        finally:
            try:
                imap.logout()
            except (OSError, imaplib.IMAP4.error):
                pass  # it has answered, or will not
        return any(line for line in found)

    def stop(self) -> None:
        """Whatever it waits for does not come."""
        if self._imap is not None:
            try:
                self._imap.socket().shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it is closed already

    def without_password(self, text: str) -> str:
        for spelt in (self._password, self._plain().decode(), _quoted(self._password)[1:-1]):
            text = text.replace(spelt, "***").replace(b64encode(spelt.encode()).decode(), "***")
        return text

    def _connected(self) -> imaplib.IMAP4:
        host, timeout = self._settings.imap_host, self._settings.timeout
        if self._settings.imap_security == "none":
            return imaplib.IMAP4(host, self.port, timeout)
        context = ssl.create_default_context()
        if self._settings.imap_security == "tls":
            return imaplib.IMAP4_SSL(host, self.port, ssl_context=context, timeout=timeout)
        imap = imaplib.IMAP4(host, self.port, timeout)
        try:
            imap.starttls(context)
        except BaseException:
            imap.shutdown()
            raise
        return imap

    def _log_in(self, imap: imaplib.IMAP4) -> None:
        """As PLAIN, which takes any text, or else as LOGIN, which takes ASCII."""
        if "AUTH=PLAIN" in imap.capabilities:
            imap.authenticate("PLAIN", lambda challenge: self._plain())
        elif re.fullmatch(r"[ -~]*", self._settings.imap_username + self._password):
            imap.login(_quoted(self._settings.imap_username), self._password)
        else:
            raise FolderUnreadable("the server only takes ASCII for a user and a password")

    def _plain(self) -> bytes:
        return f"\0{self._settings.imap_username}\0{self._password}".encode()


def _ok(answer: tuple[str, Sequence[object]]) -> Sequence[object]:
    status, lines = answer
    if status != "OK":
        said = [line.decode(errors="replace") if isinstance(line, bytes) else str(line) for line in lines]
        raise FolderUnreadable(f"{status} {' '.join(said)}")
    return lines


def _quoted(text: str) -> str:
    escaped = re.sub(r'(["\\])', r"\\\1", text)
    return f'"{escaped}"'


def _utf7(name: str) -> str:
    """A folder's name as IMAP spells it (RFC 3501, 5.1.3)."""

    def spelt(found: re.Match[str]) -> str:
        encoded = b64encode(found[0].encode("utf-16-be")).decode().rstrip("=").replace("/", ",")
        return "&-" if found[0] == "&" else f"&{encoded}-"

    return re.sub(r"[^ -~]+|&", spelt, name)
