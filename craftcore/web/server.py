"""The process of `craftcore web`: its socket, its login link, and its server."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import FrameType

import uvicorn

from craftcore.audit.caller import actor
from craftcore.config import Config
from craftcore.config.references import ENDPOINT_SAID, Endpoint, endpoint
from craftcore.config.web_people import find_length_mistake
from craftcore.config.web_settings import WebSettings, relation_mistakes
from craftcore.daemon.sd_notify import Notifier
from craftcore.daemon.secrets import get_process_secret
from craftcore.daemon.unix_socket import bind, require_free
from craftcore.errors import CannotCreate, ConfigInvalid, InvalidInput
from craftcore.log import get_logger
from craftcore.outcome_exceptions import NoEffect
from craftcore.services import Services
from craftcore.storage.repeated_reads import RepeatedReads
from craftcore.web.asgi_app import make_app
from craftcore.web.connections import server_options
from craftcore.web.people import People
from craftcore.web.request_gate import Door
from craftcore.web.site import Site

log = get_logger(__name__)

BY_DEFAULT, UNDER_SYSTEMD = "127.0.0.1:8722", "unix:web.sock"
BACKLOG = 128

WRITE_SECONDS = 5.0
"""How long a form waits for the write lock, unless storage.busy_timeout is shorter."""


class QuietServer(uvicorn.Server):
    """A server that sleeps until a signal ends it. uvicorn's own wakes ten times a second, and dies by the signal."""

    async def main_loop(self) -> None:
        self._loop, self._ending = asyncio.get_running_loop(), asyncio.Event()
        if not self.should_exit:
            await self._ending.wait()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.force_exit, self.should_exit = self.should_exit, True  # a second signal waits for no connection
        if (loop := getattr(self, "_loop", None)) is not None:
            loop.call_soon_threadsafe(self._ending.set)


def open_services(database: Path, config: Config, *, read_only: bool) -> Services:
    """Return the database and its services, as the page reads and writes them. Nothing is opened yet."""
    patience = min(config.storage.busy_timeout, WRITE_SECONDS)
    config = replace(config, storage=replace(config.storage, busy_timeout=patience))
    return Services(database, config, read_only=read_only, database=RepeatedReads)


def serve(
    services: Services,
    listen: str | None,
    notifier: Notifier,
    *,
    read_only: bool,
    announce: Callable[[str, str | None], object],
) -> None:
    """Serve the page until SIGTERM or Ctrl-C. `listen` None: as the settings say. `announce` is called with the address
    and the link that logs in the user of the terminal, None without a terminal.

    Raises ConfigInvalid when no one could log in or a secret is missing, CannotCreate when the address is taken.
    """
    settings = services.config.web
    where = choose_address(settings, listen, is_supervised=notifier.is_supervised)
    trusted_secret = read_trusted_secret(settings, where)
    people = People(settings, get_process_secret, time.monotonic, read_only=read_only)
    people.require_tokens()
    has_terminal = sys.stdout.isatty()
    if not (has_terminal or people.has_tokens or settings.has_proxy_users):
        raise ConfigInvalid(
            "no one can log in: give [[web.person]] a token, or name the trusted_header of a proxy and its people. "
            "In a terminal, craftcore web prints a link"
        )
    listening, path = open_socket(where, services.database.path)
    door = Door(on_port=not path, cookie=make_cookie_name(services.database.path), trusted_secret=trusted_secret)
    site = Site(services, people, door)
    server = QuietServer(uvicorn.Config(make_app(site), **server_options()))
    site.is_stopping = lambda: server.should_exit
    place = path or f"http://{where.authority}"
    log.info("web.listening", where=place, read_only=read_only)
    link = None
    if has_terminal:
        base = place if not path else "http://localhost:8722"
        link = f"{base}/login?link={people.make_link(actor().name or 'operator')}"
    announce(place, link)
    notifier.notify_ready("serving the page")
    gc.collect()
    gc.freeze()  # the modules: otherwise each full collection walks over all of them, while a page waits
    try:
        server.run(sockets=[listening])
    finally:
        notifier.notify_stopping()
        listening.close()
        if path:
            with suppress(FileNotFoundError):
                os.unlink(path)
    log.info("web.stopped")


def choose_address(settings: WebSettings, listen: str | None, *, is_supervised: bool) -> Endpoint:
    """Return where to listen: as the command says, else the settings, else the default. Raises InvalidInput."""
    text = listen or settings.listen or (UNDER_SYSTEMD if is_supervised else BY_DEFAULT)
    where = endpoint(text)
    if where is None:
        raise InvalidInput(f"--listen is {text!r:.80}; allowed: {ENDPOINT_SAID}")
    return where


def read_trusted_secret(settings: WebSettings, where: Endpoint) -> str | None:
    """Return the secret of the proxy; None: none is set. Raises ConfigInvalid."""
    listen = f"unix:{where.path}" if where.path else f"{where.host}:{where.port}"
    if mistakes := list(relation_mistakes(settings, listen)):
        raise ConfigInvalid("\n".join(mistakes))
    if not settings.trusted_secret:
        return None
    try:
        secret = get_process_secret(settings.trusted_secret)
    except NoEffect as error:
        raise ConfigInvalid(f"web.trusted_secret: {error}") from error
    if (mistake := find_length_mistake("secret", secret)) is not None:
        raise ConfigInvalid(f"web.trusted_secret: {mistake}")
    return secret


def open_socket(where: Endpoint, beside: Path) -> tuple[socket.socket, str]:
    """Return the socket that listens, and its file, '' for a port. Raises CannotCreate."""
    path = where.path_beside(beside)
    listening = socket.socket(where.family, socket.SOCK_STREAM)
    try:
        if path:
            require_free(path, "web.listen")
            bind(listening, path)
        else:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((where.host, where.port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        place = path or f"{where.host}:{where.port}"
        why = f"web.listen: cannot listen at {place}: {error.strerror or error}; name another place with --listen"
        raise CannotCreate(why, path=place) from error
    except BaseException:
        listening.close()
        raise
    return listening, path


def make_cookie_name(database: Path) -> str:
    """Return a name of its own for each database: cookies do not tell ports of one machine apart."""
    return f"craftcore-{sha256(os.fsencode(os.path.realpath(database))).hexdigest()[:8]}"
