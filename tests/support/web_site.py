"""A real `craftcore web` process on a database, and the browser-like clients of its people."""

from __future__ import annotations

import html
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import DEVNULL

import httpx2

from craftcore.config import Config
from craftcore.services import Services
from tests.support.processes import PATIENCE, environment, until
from tests.support.warm_parent import WarmProcess, start

TOKENS = {name: f"{name}-has-a-long-token" for name in ("ada", "bob", "cal")}
SETTINGS = """
[web]
hosts = ["page.example"]
[[web.person]]
name = "ada"
token = "env:WEB_ADA"
may = "act"
[[web.person]]
name = "bob"
token = "env:WEB_BOB"
[[web.person]]
name = "cal"
token = "env:WEB_CAL"
may = "act"
in_doubt = false
"""
"""ada may do everything, bob may look, cal may not decide about actions in doubt."""

SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}
_FORM = re.compile(r'<form method="post" action="([^"]*)"[^>]*>(.*?)</form>', re.DOTALL)
_HIDDEN = re.compile(r'<input type="hidden" name="([^"]*)" value="([^"]*)">')


@dataclass(frozen=True, slots=True)
class Form:
    """One form of a page: its address, and its hidden fields."""

    action: str
    hidden: Mapping[str, str]


def forms(text: str) -> list[Form]:
    """Return the forms of a page that send something, in its order."""
    return [
        Form(html.unescape(action), {name: html.unescape(value) for name, value in _HIDDEN.findall(body)})
        for action, body in _FORM.findall(text)
    ]


@dataclass(slots=True)
class Site:
    """The process, and a client for each person, who is logged in when first asked for."""

    database: Path
    socket: Path
    port: int | None
    process: WarmProcess
    services: Services
    _clients: dict[str, httpx2.Client] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """The beginning of its addresses."""
        return "http://localhost" if self.port is None else f"http://127.0.0.1:{self.port}"

    @property
    def is_listening(self) -> bool:
        with socket.socket(socket.AF_UNIX if self.port is None else socket.AF_INET) as caller:
            where = str(self.socket) if self.port is None else ("127.0.0.1", self.port)
            return caller.connect_ex(where) == 0

    def client(self, person: str = "") -> httpx2.Client:
        """Return the client of a person, '' for one that is not logged in. It follows no redirect."""
        if person not in self._clients:
            transport = httpx2.HTTPTransport(uds=None if self.port else str(self.socket))
            client = httpx2.Client(transport=transport, base_url=self.address, timeout=PATIENCE)
            if person:
                sent = {"name": person, "token": TOKENS[person]}
                assert client.post("/login", data=sent, headers=SAME_ORIGIN).status_code == 303
            self._clients[person] = client
        return self._clients[person]

    def get(self, address: str, person: str = "ada", **options: object) -> httpx2.Response:
        """Ask for a page."""
        return self.client(person).get(address, **options)  # type: ignore[arg-type]

    def post(self, address: str, fields: Mapping[str, str], person: str = "ada", **headers: str) -> httpx2.Response:
        """Send a form as a browser on the page would."""
        return self.client(person).post(address, data=dict(fields), headers={**SAME_ORIGIN, **headers})

    def send(self, page: str, action: str, person: str = "ada", **fields: str) -> httpx2.Response:
        """Load a page, and send its form with this address, with the fields a person fills in."""
        [form] = [form for form in forms(self.get(page, person).text) if form.action == action]
        return self.post(action, {**form.hidden, **fields}, person)

    def close(self) -> None:
        """End the clients and the process."""
        for client in self._clients.values():
            client.close()
        self.process.terminate()
        self.process.wait(PATIENCE)
        self.services.close()


@contextmanager
def serving(
    database: Path, *arguments: str, settings: str = SETTINGS, port: int | None = None, **more: str
) -> Iterator[Site]:
    """Run `craftcore web` on a database until the block is left. `port` None: it listens at a socket file."""
    config = database.parent / "web.toml"
    config.write_text(settings)
    secrets = {f"WEB_{name.upper()}": token for name, token in TOKENS.items()}
    command = ["-m", "craftcore", "--db", str(database), "--config", str(config)]
    listen = "unix:web.sock" if port is None else f"127.0.0.1:{port}"
    process = start(
        [*command, "web", "--listen", listen, *arguments],
        env=environment(**{**secrets, **more}),
        cwd=database.parent,
        stdin=DEVNULL,
        stdout=DEVNULL,
    )
    site = Site(database, database.parent / "web.sock", port, process, Services(database, Config()))
    try:
        until(lambda: site.is_listening or process.poll() is not None, "craftcore web")
        assert process.poll() is None, "craftcore web has ended"
        yield site
    finally:
        site.close()
