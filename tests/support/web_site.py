"""The page of a database, in this process or as a real `craftcore web`, and clients with cookies and forms.

A page in this process has the gate of the real one, which checks hosts, origins, logins and forms. Tests of a socket, a
connection or a process need `serving`.
"""

from __future__ import annotations

import html
import re
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import DEVNULL

import httpx2
from anyio.from_thread import BlockingPortal, start_blocking_portal
from jinja2 import BytecodeCache
from jinja2.bccache import Bucket
from starlette.testclient import TestClient
from starlette.types import ASGIApp

from craftcore.config import Config
from craftcore.daemon.secrets import Secrets
from craftcore.services import Services
from craftcore.web.asgi_app import make_app
from craftcore.web.people import People
from craftcore.web.request_gate import Door
from craftcore.web.server import make_cookie_name, open_services
from craftcore.web.site import Site as WholeSite
from tests.support.processes import PATIENCE, environment, until
from tests.support.warm_parent import WarmProcess, start

TOKENS = {name: f"{name}-has-a-long-token" for name in ("ada", "bob", "cal", "dan")}
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
[[web.person]]
name = "dan"
token = "env:WEB_DAN"
may = "answer"
groups = ["finance"]
"""
"""The people of the page: ada may do everything, bob may look, cal may not decide about actions in doubt, and dan may
answer for finance."""

SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}
_FORM = re.compile(r'<form method="post" action="([^"]*)"[^>]*>(.*?)</form>', re.DOTALL)
_HIDDEN = re.compile(r'<input type="hidden" name="([^"]*)" value="([^"]*)">')


@dataclass(frozen=True, slots=True)
class Form:
    """One form of a page: its address, its hidden fields, and the text between its tags."""

    action: str
    hidden: Mapping[str, str]
    body: str


def forms(text: str) -> list[Form]:
    """Return the forms of a page that send data, in its order."""
    return [
        Form(html.unescape(action), {name: html.unescape(value) for name, value in _HIDDEN.findall(body)}, body)
        for action, body in _FORM.findall(text)
    ]


@dataclass(slots=True, kw_only=True)
class Site(ABC):
    """A page, with a client for each person, who is logged in at the first request.

    `services`: the services of the test, with their own connections.
    """

    database: Path
    services: Services
    _clients: dict[str, httpx2.Client] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """Return the beginning of the addresses of this page."""
        return "http://localhost"

    @abstractmethod
    def make_client(self) -> httpx2.Client:
        """Return a client that is not logged in. It follows no redirect."""

    def client(self, person: str = "") -> httpx2.Client:
        """Return the client of a person, or for '' a client that is not logged in."""
        if person not in self._clients:
            client = self.make_client()
            if person:
                sent = {"name": person, "token": TOKENS[person]}
                assert client.post("/login", data=sent, headers=SAME_ORIGIN).status_code == 303
            self._clients[person] = client
        return self._clients[person]

    def get(self, address: str, person: str = "ada", **options: object) -> httpx2.Response:
        """Request a page."""
        return self.client(person).get(address, **options)  # type: ignore[arg-type]

    def post(self, address: str, fields: Mapping[str, str], person: str = "ada", **headers: str) -> httpx2.Response:
        """Send a form as a browser on the page would."""
        return self.client(person).post(address, data=dict(fields), headers={**SAME_ORIGIN, **headers})

    def send(self, page: str, action: str, person: str = "ada", **fields: str) -> httpx2.Response:
        """Load a page, and send its form with this address and the given fields."""
        [form] = [form for form in forms(self.get(page, person).text) if form.action == action]
        return self.post(action, {**form.hidden, **fields}, person)

    def leave(self, person: str) -> None:
        """Close the connections of a person, who is logged in again at the next request."""
        self._clients.pop(person).close()

    def close(self) -> None:
        """Close the clients."""
        for client in self._clients.values():
            client.close()
        self.services.close()


@dataclass(slots=True, kw_only=True)
class SiteInProcess(Site):
    """The application in this process. Its requests run on the event loop of `portal`, in a thread."""

    app: ASGIApp
    portal: BlockingPortal

    def make_client(self) -> httpx2.Client:
        client = TestClient(self.app, base_url=self.address, follow_redirects=False)
        client.portal = self.portal  # without it, each request would have its own event loop
        return client


@dataclass(slots=True, kw_only=True)
class ServedSite(Site):
    """A real process that listens at `socket`, or at a port."""

    socket: Path
    port: int | None
    process: WarmProcess

    @property
    def address(self) -> str:
        return "http://localhost" if self.port is None else f"http://127.0.0.1:{self.port}"

    @property
    def is_listening(self) -> bool:
        with socket.socket(socket.AF_UNIX if self.port is None else socket.AF_INET) as caller:
            where = str(self.socket) if self.port is None else ("127.0.0.1", self.port)
            return caller.connect_ex(where) == 0

    def make_client(self) -> httpx2.Client:
        transport = httpx2.HTTPTransport(uds=None if self.port else str(self.socket))
        return httpx2.Client(transport=transport, base_url=self.address, timeout=PATIENCE)

    def close(self) -> None:
        """Close the clients, and end the process."""
        Site.close(self)
        self.process.terminate()
        self.process.wait(PATIENCE)


class _CompiledTemplates(BytecodeCache):
    """The bytecode of the templates, shared by all sites of this process: compiling them takes longer than a test."""

    def __init__(self) -> None:
        self._known: dict[str, bytes] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        if bucket.key in self._known:
            bucket.bytecode_from_string(self._known[bucket.key])

    def dump_bytecode(self, bucket: Bucket) -> None:
        self._known[bucket.key] = bucket.bytecode_to_string()


_compiled = _CompiledTemplates()


@contextmanager
def in_process(
    database: Path, *, settings: str = SETTINGS, read_only: bool = False, **more: str
) -> Iterator[SiteInProcess]:
    """Run the page of a database in this process until the block ends, like `craftcore web` at a socket file.

    `more`: variables of its environment.
    """
    config = database.parent / "web.toml"
    config.write_text(settings)
    secrets = Secrets({**_tokens(), **more})
    services = open_services(database, Config.load(config), read_only=read_only)
    people = People(services.config.web, secrets.get, time.monotonic, read_only=read_only)
    people.require_tokens()
    door = Door(on_port=False, cookie=make_cookie_name(database), trusted_secret=None)
    whole = WholeSite(services, people, door)
    whole.templates.bytecode_cache = _compiled
    with start_blocking_portal() as portal:
        site = SiteInProcess(
            database=database, services=Services(database, Config()), app=make_app(whole), portal=portal
        )
        try:
            yield site
        finally:
            site.close()
    services.close()


def _tokens() -> dict[str, str]:
    return {f"WEB_{name.upper()}": token for name, token in TOKENS.items()}


@contextmanager
def serving(
    database: Path, *arguments: str, settings: str = SETTINGS, port: int | None = None, **more: str
) -> Iterator[ServedSite]:
    """Run `craftcore web` on a database until the block ends. Without `port`, it listens at a socket file."""
    config = database.parent / "web.toml"
    config.write_text(settings)
    command = ["-m", "craftcore", "--db", str(database), "--config", str(config)]
    listen = "unix:web.sock" if port is None else f"127.0.0.1:{port}"
    process = start(
        [*command, "web", "--listen", listen, *arguments],
        env=environment(**{**_tokens(), **more}),
        cwd=database.parent,
        stdin=DEVNULL,
        stdout=DEVNULL,
    )
    site = ServedSite(
        database=database,
        services=Services(database, Config()),
        socket=database.parent / "web.sock",
        port=port,
        process=process,
    )
    try:
        until(lambda: site.is_listening or process.poll() is not None, "craftcore web")
        assert process.poll() is None, "craftcore web has ended"
        yield site
    finally:
        site.close()
