"""Checks of `craftcore check` and `craftcore doctor` on `[web]`: the library, the tokens, and the address of the page.

No finding has a token in it. A secret that only the unit of the page can see is not looked up.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

from craftcore.config.references import Endpoint, endpoint, secret_reference
from craftcore.config.web_people import find_length_mistake
from craftcore.config.web_settings import WebSettings
from craftcore.daemon.secrets import DIRECTORY, Secrets
from craftcore.daemon.unix_socket import require_free
from craftcore.diagnostics.finding import Finding, fail, make_passed, warn
from craftcore.errors import CannotCreate
from craftcore.outcome_exceptions import NoEffect
from craftcore.serialization.plurals import format_count
from craftcore.storage.doorbell_client import address

LIBRARIES = ("jinja2", "starlette", "uvicorn")
PEOPLE = "people with a token"
ANSWER_SECONDS = 1.0
_ASKED = b"GET /up HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def find_libraries() -> Iterator[Finding]:
    """Check that what `craftcore web` imports is installed."""
    if missing := [name for name in LIBRARIES if find_spec(name) is None]:
        yield fail("web", f"craftcore web needs {', '.join(missing)}: pip install 'craftcore[web]'")


def login_findings(settings: WebSettings, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Check that someone can log in, and each secret that this environment can see."""
    secrets = Secrets(environ)
    named = [(f"web.person {person.name}", person.token, "token") for person in settings.person if person.token]
    if settings.trusted_secret:
        named.append(("web.trusted_secret", settings.trusted_secret, "secret"))
    unseen, wrong = 0, 0
    for what, reference, noun in named:
        found = secret_reference(reference)
        if found is None or not (environ.get(DIRECTORY) if found.scheme == "credential" else found.name in environ):
            unseen += 1
            continue
        mistake = _find_mistake(secrets, reference, noun)
        if mistake is not None:
            wrong += 1
            yield fail("web", f"{what}: {mistake}")
    if not (settings.has_proxy_users or any(person.token for person in settings.person)):
        yield warn("web", "no one can log in but by the link of a terminal: give [[web.person]] a token")
    elif not wrong:
        ways = [format_count(sum(1 for person in settings.person if person.token), "person with a token", PEOPLE)]
        if settings.has_proxy_users:
            ways.append("users of the proxy")
        left = f"; not looked up here: {unseen} of {len(named)} secrets, which the page's unit has" if unseen else ""
        yield make_passed("web", f"login: {' and '.join(ways)}{left}")


def _find_mistake(secrets: Secrets, reference: str, noun: str) -> str | None:
    """Return what is wrong with a secret; None: nothing. `noun`: the word for it."""
    try:
        return find_length_mistake(noun, secrets.get(reference))
    except NoEffect as error:
        return str(error)


def address_findings(settings: WebSettings, database: Path) -> Iterator[Finding]:
    """Check that the address of the settings is free, or that a page answers there."""
    where = endpoint(settings.listen)
    if where is None:
        return
    try:
        path = where.path_beside(database)
        if _is_answered(where, path):
            yield make_passed("web", f"a page answers at {settings.listen}")
            return
        if path:
            _require_folder(where.path)
            require_free(path, "web.listen")
        else:
            _require_port(where)
        yield make_passed("web", f"{settings.listen} is free")
    except CannotCreate as error:
        yield fail("web", error.message)
    except OSError as error:
        yield fail("web", f"web.listen: cannot listen at {settings.listen}: {error.strerror or error}")


def _require_folder(path: str) -> None:
    """Raise CannotCreate for a socket in a directory that is missing. Another check looks at that of the database."""
    folder = os.path.dirname(path)
    if os.path.isabs(folder) and not os.path.isdir(folder):
        raise CannotCreate(f"web.listen: there is no directory {folder}", path=path)


def _require_port(where: Endpoint) -> None:
    """Raise OSError for a port in use, or one that this user may not have."""
    with closing(socket.socket(where.family, socket.SOCK_STREAM)) as unbound:
        unbound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        unbound.bind((where.host, where.port))
        unbound.listen(1)


def _is_answered(where: Endpoint, path: str) -> bool:
    """Return whether a page of craftcore answers."""
    with closing(socket.socket(where.family, socket.SOCK_STREAM)) as asking:
        asking.settimeout(ANSWER_SECONDS)
        try:
            if path:
                with address(path) as name:
                    asking.connect(name)
            else:
                asking.connect((where.host, where.port))
            asking.sendall(_ASKED)
            answer = b""
            while more := asking.recv(4096):
                answer += more
        except OSError:
            return False
    return answer.startswith(b"HTTP/1.1 ") and answer.endswith((b"\r\n\r\nup\n", b"\r\n\r\ndown\n"))
