"""A scripted IMAP server on loopback."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tests.support.processes import PATIENCE

SILENCE = "..."
GOES_WELL = {
    "greeting": "* OK stub",
    "CAPABILITY": "* CAPABILITY IMAP4rev1 AUTH=PLAIN\r\n{tag} OK done",
    "AUTHENTICATE": "+ ",
    "LOGIN": "{tag} OK hello",
    "EXAMINE": "* 0 EXISTS\r\n{tag} OK [READ-ONLY] done",
    "UID": "* SEARCH\r\n{tag} OK done",
    "LOGOUT": "* BYE\r\n{tag} OK bye",
}


class Handler(socketserver.StreamRequestHandler):
    """The handler of one client."""

    server: ScriptedImap
    timeout = PATIENCE

    def handle(self) -> None:
        try:
            self._talk()
        except OSError:
            pass
        finally:
            self.server.left.set()

    def _talk(self) -> None:
        if not self._send("greeting", "*"):
            return
        while line := self.rfile.readline():
            words = line.decode(errors="replace").split()
            self.server.received.append(line.decode(errors="replace").strip())
            tag, command = words[0], words[1].upper()
            if not self._send(command, tag):
                return
            if command == "AUTHENTICATE" and self.server.replies[command] == "+ ":
                self.rfile.readline()  # the credentials
                self.wfile.write(f"{tag} OK hello\r\n".encode())

    def _send(self, step: str, tag: str) -> bool:
        """Send a reply; return whether the conversation continues."""
        reply = self.server.replies[step]
        if reply is None:
            return False
        if reply == SILENCE:
            self.server.silent.set()
            self.rfile.readline()
            return False
        self.wfile.write(reply.format(tag=tag).encode() + b"\r\n")
        return True


class ScriptedImap(socketserver.ThreadingTCPServer):
    """A scripted server with a reply to each command.

    The reply None closes the connection, and SILENCE waits until the client disconnects.
    """

    daemon_threads = False
    allow_reuse_address = True

    def __init__(self, replies: Mapping[str, str | None]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.replies: dict[str, str | None] = {**GOES_WELL, **replies}
        self.received: list[str] = []
        self.silent = threading.Event()
        self.left = threading.Event()

    @property
    def port(self) -> int:
        port: int = self.server_address[1]
        return port


@contextmanager
def an_imap_server(replies: Mapping[str, str | None]) -> Iterator[ScriptedImap]:
    """Run a server until the block ends."""
    with ScriptedImap(replies) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        try:
            yield server
        finally:
            server.shutdown()
            serving.join()
