"""Clients that send too much, too slowly or nothing: each is answered or disconnected, and others are served."""

from __future__ import annotations

import asyncio
import random
import selectors
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from urllib.parse import urlencode

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from craftcore.config import Config
from craftcore.config.web_people import WebPerson
from craftcore.config.web_settings import WebSettings
from craftcore.services import Services
from craftcore.web.body import BODY_MAX_BYTES, FIELDS_MAX
from craftcore.web.connections import CONNECTIONS_MAX
from craftcore.web.page import Page
from craftcore.web.people import People
from craftcore.web.request_gate import Door
from craftcore.web.request_rules import HEAD_MAX_BYTES
from craftcore.web.site import Site as WebSite
from craftcore.web.visit import Visit
from tests.support.populated_database import World
from tests.support.raw_http import connect, read_answer, receive_all, request
from tests.support.web_site import ServedSite, serving


@pytest.fixture(scope="module")
def page(made: tuple[World, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedSite]:
    """Serve one page for all tests. They change no row, and each test closes its connections."""
    path = tmp_path_factory.mktemp("flooded") / "agent.db"
    shutil.copy(made[1], path)
    with serving(path) as site:
        yield site


SAME = "Sec-Fetch-Site: same-origin"
GROWTH_MAX = 30 << 20
"""The allowed growth of memory by a flood in bytes, for threads and caches."""


def cookie_of(site: ServedSite) -> str:
    [(name, value)] = site.client("ada").cookies.items()
    return f"Cookie: {name}={value}"


def memory_of(site: ServedSite) -> int:
    """Return the resident memory of the process in bytes."""
    fields = Path(f"/proc/{site.process.pid}/statm").read_text().split()
    return int(fields[1]) * 4096


def head(target: str, *lines: str, method: str = "GET", length: int | None = None) -> bytes:
    sized = [] if length is None else [f"Content-Length: {length}", "Content-Type: application/x-www-form-urlencoded"]
    return "\r\n".join([f"{method} {target} HTTP/1.1", "Host: localhost", *lines, *sized, "", ""]).encode("latin-1")


def test_head_is_limited_to_8_kilobytes(page):
    cookie = cookie_of(page)
    base = len("host") + len("localhost") + len("connection") + len("close") + len("x") + 3 * 4 + len("/login")

    assert request(page.socket, "/login", "X: " + "x" * (HEAD_MAX_BYTES - base)).status == 200
    for lines in (
        ["X: " + "x" * (HEAD_MAX_BYTES - base + 1)],
        ["X: " + "x" * 200_000],
        [f"X{number}: y" for number in range(2_000)],
    ):
        assert request(page.socket, "/login", *lines).status in (400, 431)
    assert request(page.socket, "/?q=" + "x" * HEAD_MAX_BYTES, cookie).status == 431
    assert request(page.socket, "/" + "x" * HEAD_MAX_BYTES, cookie).status == 431


def test_form_is_limited_to_64_kilobytes_and_50_fields(page):
    cookie = cookie_of(page)

    def send(body: bytes, *lines: str) -> int:
        return request(page.socket, "/q/nothing/answer", cookie, SAME, *lines, method="POST", body=body).status

    assert send(b"once=" + b"x" * (BODY_MAX_BYTES - 5)) == 400  # too long for the name of a form
    assert send(b"once=" + b"x" * (BODY_MAX_BYTES - 4)) == 413
    assert send(b"x" * (8 << 20)) == 413
    assert send(urlencode({f"f{n}": "" for n in range(FIELDS_MAX - 1)} | {"once": "x"}).encode()) == 404
    assert send(urlencode({f"f{n}": "" for n in range(FIELDS_MAX + 1)}).encode()) == 400
    assert send(b"&" * BODY_MAX_BYTES) == 400
    assert send(b"once=%00") == send(b"once=%ff") == send(b"once=%ed%a0%80") == send(b"\xff=x") == 400
    assert send(b"{}", "Content-Type: application/json") == 415
    assert send(b"x", "Content-Type: multipart/form-data; boundary=x") == 415


def test_form_in_chunks_has_the_same_limit(page):
    parts = b"".join(b"1000\r\n%b\r\n" % (b"x" * 0x1000) for _ in range(17))
    lines = (cookie_of(page), SAME, "Transfer-Encoding: chunked", "Content-Type: application/x-www-form-urlencoded")
    with closing(connect(page.socket)) as connection:
        connection.sendall(head("/q/x/answer", *lines, "Connection: close", method="POST") + parts)
        assert read_answer(receive_all(connection)).status == 413


def slow_clients(site: ServedSite) -> dict[str, tuple[bytes, bytes]]:
    """Return the text that each client sends at once, and the text that it then repeats byte by byte."""
    cookie = cookie_of(site)
    half = b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "
    page = head("/login")
    form = head("/q/nothing/answer", cookie, SAME, method="POST", length=60_000)
    return {
        "sends nothing": (b"", b""),
        "sends no more": (half, b""),
        "head without an end": (half, b"x"),
        "second head without an end": (page + half, b"x"),
        "second head that stops": (page + half, b""),
        "form without an end": (form, b"x"),
        "form that stops": (form + b"once=", b""),
        "form of a terabyte": (head("/q/x/answer", cookie, SAME, method="POST", length=1 << 40), b"x"),
        "refused form without an end": (head("/q/x/answer", method="POST", length=60_000), b"x"),
        "form of a missing page": (head("/nothing", cookie, SAME, method="POST", length=60_000), b"x"),
        "page with a body": (head("/login", length=60_000), b"x"),
        "waits for 100": (head("/login", SAME, "Expect: 100-continue", method="POST", length=100), b""),
    }


def test_slow_clients_are_disconnected_while_others_are_served(page):
    """The limits apply to the first and to the second request of a connection."""
    clients = slow_clients(page)
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        for name, (first, _) in clients.items():
            connection = stack.enter_context(closing(connect(page.socket)))
            connection.sendall(first)
            selector.register(connection, selectors.EVENT_READ, name)
        received = dict.fromkeys(clients, b"")
        while selector.get_map():
            assert page.get("/static/page.css").status_code == 200
            for key, _ in selector.select(0.5):
                with suppress(ConnectionError):
                    part = key.fileobj.recv(65_536)  # type: ignore[union-attr]
                    received[key.data] += part
                    if part:
                        continue
                selector.unregister(key.fileobj)
            for key in list(selector.get_map().values()):
                with suppress(ConnectionError):
                    key.fileobj.send(clients[key.data][1])  # type: ignore[union-attr]

    statuses = {name: read_answer(answer).status for name, answer in received.items()}
    assert statuses == {
        "sends nothing": 0,
        "sends no more": 0,
        "head without an end": 0,
        "second head without an end": 200,
        "second head that stops": 200,
        "form without an end": 408,
        "form that stops": 408,
        "form of a terabyte": 408,
        "refused form without an end": 403,
        "form of a missing page": 404,
        "page with a body": 200,
        "waits for 100": 100,
    }


def test_silent_connections_are_closed_for_new_ones(page):
    """More silent connections than the limit do not keep a new request from its answer."""
    with ExitStack() as stack:
        silent = [stack.enter_context(closing(connect(page.socket))) for _ in range(3 * CONNECTIONS_MAX)]
        assert request(page.socket, "/login").status == 200  # a new connection closes an idle one
        ended = 0
        for connection in silent:
            connection.setblocking(False)
            with suppress(BlockingIOError):
                ended += connection.recv(1) == b""
        assert ended >= 2 * CONNECTIONS_MAX


def test_connection_is_refused_while_all_others_are_busy(page):
    cookie = cookie_of(page)
    busy = head("/q/nothing/answer", cookie, SAME, "Expect: 100-continue", method="POST", length=10)
    page.leave("ada")
    with ExitStack() as stack:
        for _ in range(CONNECTIONS_MAX):
            connection = stack.enter_context(closing(connect(page.socket)))
            connection.sendall(busy)
            assert connection.recv(100).startswith(b"HTTP/1.1 100")
        assert request(page.socket, "/login").status == 0
    assert request(page.socket, "/login").status == 200


TEMPLATES = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\n%C\r\n",
    b"GET /q/a?b=c&done=d HTTP/1.1\r\nHost: localhost\r\n%C\r\n",
    b"GET /activities/activity%3Ax HTTP/1.1\r\nHost: page.example\r\n%C\r\n",
    b"GET /static/page.css HTTP/1.0\r\nHost: localhost\r\n\r\n",
    b"HEAD /doubt HTTP/1.1\r\nHost: localhost\r\n%C\r\n",
    b"POST /q/a/answer HTTP/1.1\r\nHost: localhost\r\n%C%FContent-Length: 27\r\n\r\nonce=a&seen=OPEN&option=123",
    b"POST /login HTTP/1.1\r\nHost: localhost\r\n%FContent-Length: 18\r\n\r\nname=ada&token=abc",
    b"POST /tasks/a/retry HTTP/1.1\r\nHost: localhost\r\n%C%FTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n0\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n%C\r\n",
)
FORM = b"Content-Type: application/x-www-form-urlencoded\r\nSec-Fetch-Site: same-origin\r\n"
PIECES = (
    *(b"\x00", b"\xff", b"\r", b"\n", b"\r\n", b" ", b"\t", b":", b";", b",", b"=", b"&", b"?", b"#", b"%", b"%00"),
    *(b"%ED%A0%80", b"/../", b"//", b"..%2f", b"/", b"[", b"]", b"@", b"http://", b"*", b"\x0b", b"\x1b[2J", b"%ff"),
    *(
        b"HTTP/1.1",
        b"HTTP/9.9",
        b"HTTP/2.0",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"Host: localhost\r\n",
        b"Host: x\r\n",
    ),
    *(
        b"Content-Length: 5\r\n",
        b"Content-Length: -1\r\n",
        b"Content-Length: 9999999999999999999\r\n",
        b"Expect: x\r\n",
    ),
    *(b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: gzip\r\n", b"ffffffffffff\r\n", b"-1\r\n", b"0\r\n\r\n"),
    *(b"Cookie: a=\x80\r\n", b"Sec-Fetch-Site: none\r\n", b"Origin: http://[\r\n", b"x" * 9_000, b"a=" * 200),
    *(b"&" * 200, b" x\r\n", b"\xe2\x80\xae"),
)


def malformed(seed: int, count: int, cookie: bytes) -> Iterator[bytes]:
    """Yield this number of malformed requests; a seed gives the same ones again."""
    rng = random.Random(seed)
    for _ in range(count):
        text = rng.choice(TEMPLATES).replace(b"%F", FORM).replace(b"%C", cookie if rng.random() < 0.6 else b"")
        for _ in range(rng.choice((1, 1, 1, 2, 5))):
            text = _mutate(rng, text)
        yield text


def _mutate(rng: random.Random, text: bytes) -> bytes:
    place, other = sorted((rng.randint(0, len(text)), rng.randint(0, len(text))))
    match rng.randrange(6):
        case 0:
            return text[:place] + text[other:]
        case 1:
            return text[:other] + text[place:other] + text[other:]
        case 2 if text:
            place = min(place, len(text) - 1)
            return text[:place] + bytes([text[place] ^ 1 << rng.randrange(8)]) + text[place + 1 :]
        case 3:
            lines = text.split(b"\r\n")
            rng.shuffle(lines)
            return b"\r\n".join(lines)
        case _:
            return text[:place] + rng.choice(PIECES) + text[place:]


def send_each(where: Path, texts: Iterator[bytes]) -> Counter[int]:
    """Send each text on its own connection, 40 at a time. Return the counts of statuses, with 0 for no answer."""
    statuses: Counter[int] = Counter()
    waiting = list(texts)

    async def send_next() -> None:
        while waiting:
            text = waiting.pop()
            reader, writer = await asyncio.open_unix_connection(str(where))
            received = b""
            with suppress(ConnectionError):
                writer.write(text + b"\r\n\r\n")
                await writer.drain()
                received = await hear(reader, where)
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
            statuses[read_answer(received).status if received.startswith(b"HTTP/1.1 ") else 0] += 1
            assert not received or received.startswith(b"HTTP/1.1 "), received[:100]

    async def send_all() -> None:
        await asyncio.gather(*(send_next() for _ in range((CONNECTIONS_MAX - 4) // 2)))  # each may ask beside it

    asyncio.run(send_all())
    return statuses


async def hear(reader: asyncio.StreamReader, where: Path) -> bytes:
    """Return the head of an answer, nothing when there is none although another request has been answered since."""
    hearing = asyncio.ensure_future(reader.readuntil(b"\r\n\r\n"))
    await asyncio.wait({hearing}, timeout=0.3)
    if not hearing.done():
        later, writer = await asyncio.open_unix_connection(str(where))
        writer.write(head("/login", "Connection: close"))
        assert (await later.read()).startswith(b"HTTP/1.1 200")
        writer.close()
        await asyncio.wait({hearing}, timeout=0.1)
    try:
        return hearing.result() if hearing.done() else b""
    except asyncio.IncompleteReadError as ended:
        return ended.partial
    finally:
        hearing.cancel()


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.campaign)])
def test_malformed_requests_cause_no_error_of_the_server(database, capfd, count):
    with serving(database) as site:
        cookie = cookie_of(site).encode("latin-1") + b"\r\n"
        send_each(site.socket, malformed(1, 200, cookie))
        before = memory_of(site)

        statuses = send_each(site.socket, malformed(2, count, cookie))

        assert site.get("/", "ada").status_code == 200
        assert memory_of(site) - before < GROWTH_MAX
    known = {0, 100, 200, 303, 400, 403, 404, 405, 408, 413, 415, 421, 429, 431, 503}
    assert set(statuses) <= known, statuses
    assert statuses.total() == count
    assert min(statuses[400], 5 * statuses[303], 100 * statuses[200]) > count // 10, statuses
    printed = capfd.readouterr().err
    assert len(printed.splitlines()) < 10, printed[-3_000:]
    assert "Traceback" not in printed


def test_read_over_the_time_limit_has_a_page_with_the_reason(database, monkeypatch):
    """An endless query is added to a site of this process, for no real page has one."""
    monkeypatch.setattr("craftcore.web.visit.READ_SECONDS", 0.1)  # the limit of pages is 2 s
    services = Services(database, Config())
    people = People(WebSettings(), lambda reference: reference, lambda: 0.0, read_only=False)
    site = WebSite(services, people, Door(on_port=False, cookie="x", trusted_secret=None))

    def show_endless(visit: Visit) -> Page:
        with visit.reading() as reader:
            reader.fetch_value("WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n")
        raise AssertionError

    endpoint = site.endpoint(show_endless)

    async def ask() -> httpx2.Response:
        async def app(scope, receive, send):
            await Starlette(routes=[Route("/", endpoint)])({**scope, "person": WebPerson(name="ada")}, receive, send)

        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost") as client:
            return await client.get("/")

    found = asyncio.run(ask())
    services.close()

    assert found.status_code == 503
    assert "reading took longer than 0.1 s, and was ended" in found.text
    assert 'class="verdict' in found.text
