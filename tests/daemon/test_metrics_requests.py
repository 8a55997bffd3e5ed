"""Requests to the metrics port, valid, malformed and hostile: none blocks another client."""

from __future__ import annotations

import os
import random
import resource
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from craftcore.config.references import Endpoint
from craftcore.daemon.metrics import http_server
from craftcore.daemon.metrics.http_server import MetricsServer
from craftcore.errors import CannotCreate
from tests.support.log_capture import capture_logs
from tests.support.metrics_client import REQUEST, answer, ask, call, free_port, in_thread
from tests.support.processes import PATIENCE

pytestmark = pytest.mark.anyio

BODY = b"numbers 1\n"


def open_server(address: Endpoint | str, database: Path, answer: Callable[[], bytes] = lambda: BODY) -> MetricsServer:
    endpoint = Endpoint(address, "", 0) if isinstance(address, str) else address
    return MetricsServer(endpoint, database, lambda: ("text/plain", answer()))


@contextmanager
def serve(address: Endpoint | Path, answer: Callable[[], bytes] = lambda: BODY) -> Iterator[MetricsServer]:
    """Serve the answer at a socket file or port until the end of the block."""
    endpoint = Endpoint(str(address), "", 0) if isinstance(address, Path) else address
    server = open_server(endpoint, Path("agent.db"), answer)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join(PATIENCE)
        assert not thread.is_alive()


async def is_answered(path: Path) -> bool:
    return (await in_thread(ask, path)).endswith(b"\r\n\r\n" + BODY)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.sock"


async def test_scrape_is_answered_and_the_connection_closed(path):
    with serve(path):
        head, _, body = (await in_thread(ask, path)).partition(b"\r\n\r\n")

    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert {b"Content-Type: text/plain", b"Content-Length: 10", b"Connection: close"} <= set(head.split(b"\r\n"))
    assert body == b"numbers 1\n"


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /metrics HTTP/1.0\r\n\r\n", "200"),
        (b"GET /metrics?name=x HTTP/1.1\r\n\r\n", "200"),
        (b"GET / HTTP/1.1\r\n\r\n", "404"),
        (b"GET /metrics/../etc/passwd HTTP/1.1\r\n\r\n", "404"),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", "501"),
        (b"HEAD /metrics HTTP/1.1\r\n\r\n", "501"),
        (b"GET /metrics HTTP/2.0\r\n\r\n", "505"),
        (b"GET\r\n\r\n", "400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", "400"),
        (random.Random(1).randbytes(64).replace(b"\r", b"").replace(b"\n", b"") + b"\r\n\r\n", "400"),
        (b"GET /" + b"x" * (65 << 10) + b" HTTP/1.1\r\n\r\n", "414"),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * (65 << 10) + b"\r\n\r\n", "431"),
        (b"GET /metrics HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n", "431"),
    ],
)
async def test_request_other_than_a_scrape_gets_an_error(path, request_, status):
    with serve(path):
        response = await in_thread(ask, path, request_)

        assert response.startswith(f"HTTP/1.1 {status} ".encode())
        assert (BODY in response) == (status == "200")
        assert await is_answered(path)


async def test_empty_request_is_closed(path):
    with serve(path):
        assert await in_thread(ask, path, b"\r\n\r\n") == b""
        assert await is_answered(path)


async def test_request_in_pieces_is_answered(path):
    def send_in_pieces() -> bytes:
        with closing(call(path)) as caller:
            for byte in REQUEST:
                caller.sendall(bytes([byte]))
            return answer(caller)

    with serve(path):
        assert (await in_thread(send_in_pieces)).endswith(BODY)


async def test_silent_client_is_closed_after_a_while(path, monkeypatch):
    monkeypatch.setattr(http_server.Handler, "timeout", 0.2)
    with serve(path):
        with ExitStack() as hanging:
            callers = [hanging.enter_context(closing(call(path))) for _ in range(8)]
            for caller in callers[::2]:
                caller.sendall(b"GET /metr")

            assert await is_answered(path)

            ended = [await in_thread(answer, caller) for caller in callers]
    assert ended == [b""] * len(callers)


async def test_silent_clients_do_not_block_a_scrape(path, monkeypatch):
    """A new client replaces the oldest one before the timeout of the oldest one ends."""
    monkeypatch.setattr(http_server.Handler, "timeout", PATIENCE)
    with serve(path):
        with ExitStack() as hanging:
            callers = []
            for _ in range(45):
                caller = await anyio.to_thread.run_sync(call, path)
                callers.append(hanging.enter_context(closing(caller)))
                caller.sendall(b"GET /metr")

            began = anyio.current_time()
            assert await is_answered(path)

            assert [await in_thread(answer, caller) for caller in callers[:13]] == [b""] * 13
            assert anyio.current_time() - began < PATIENCE
            for caller in callers[-5:]:
                caller.sendall(REQUEST.removeprefix(b"GET /metr"))
                assert (await in_thread(answer, caller)).endswith(BODY)


async def test_silent_clients_do_not_delay_the_end(path, monkeypatch):
    monkeypatch.setattr(http_server.Handler, "timeout", PATIENCE)
    began = anyio.current_time()
    with ExitStack() as hanging:
        with serve(path):
            callers = [hanging.enter_context(closing(call(path))) for _ in range(8)]
            for caller in callers:
                caller.sendall(b"GET /metr")
            assert await is_answered(path)
        ended = [await in_thread(answer, caller) for caller in callers]

    assert anyio.current_time() - began < PATIENCE
    assert ended == [b""] * len(callers)


HOSTS = {
    "200": [
        *("Host: localhost", "host:LOCALHOST:9464", "Host: 127.0.0.1:1", "Host: 127.1.2.3", "Host: [::1]:9464"),
        "Host:   localhost  ",
    ],
    "421": [
        *("Host: evil.example", "Host: evil.example:9464", "Host: localhost.evil.example", "Host: 10.0.0.1", "Host:"),
        *("Host: localhost\r\nHost: evil.example", "Host: [::ffff:8.8.8.8]", "Host: localhost@evil.example", "X: y"),
        *("Host: 127.0.0.1.evil.example", "Host: 2130706433", "Host: localhost, evil.example", "Host : evil.example"),
    ],
}


@pytest.mark.parametrize(("status", "host"), [(status, host) for status, hosts in HOSTS.items() for host in hosts])
async def test_port_answers_only_requests_to_names_of_this_machine(status, host):
    """A browser can treat a hostile page whose name resolves to 127.0.0.1 as local. Only the Host header differs."""
    address = ("127.0.0.1", free_port())
    with serve(Endpoint("", *address)):
        got = await in_thread(ask, address, f"GET /metrics HTTP/1.1\r\n{host}\r\n\r\n".encode())
        old = await in_thread(ask, address, b"GET /metrics HTTP/1.0\r\n\r\n")

    assert got.startswith(f"HTTP/1.1 {status} ".encode()), got
    assert (BODY in got) == (status == "200")
    assert old.startswith(b"HTTP/1.1 200 ")


async def test_socket_file_answers_any_host(path):
    """A browser cannot reach a socket file, and the file mode limits its clients."""
    with serve(path):
        assert (await in_thread(ask, path, b"GET /metrics HTTP/1.1\r\nHost: any\r\n\r\n")).endswith(BODY)


async def test_clients_that_never_read_do_not_block_a_scrape(path):
    huge = b"x" * (64 << 20)
    with serve(path, lambda: huge):
        with ExitStack() as hanging:
            for _ in range(8):
                hanging.enter_context(closing(call(path))).sendall(REQUEST)

            assert (await in_thread(ask, path)).endswith(huge)


async def test_clients_that_leave_at_once_are_no_error(path):
    with capture_logs() as logs:
        with serve(path):
            for number in range(http_server.CONNECTIONS):
                with closing(call(path)) as caller:
                    if number % 2:
                        caller.sendall(REQUEST)
            assert await is_answered(path)

    assert logs == []


async def test_failed_answer_is_logged_and_the_next_scrape_succeeds(path):
    failures = [LookupError("a bug")]

    def fail_once() -> bytes:
        if failures:
            raise failures.pop()
        return BODY

    with serve(path, fail_once), capture_logs() as logs:
        assert await in_thread(ask, path) == b""
        assert await is_answered(path)

    assert [line["event"] for line in logs] == ["metrics.failed"]


async def test_metrics_server_without_a_descriptor_waits_and_continues(path, monkeypatch):
    monkeypatch.setattr(http_server, "FULL_SECONDS", 0.01)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with capture_logs() as logs:
        with serve(path):
            assert await is_answered(path)
            callers = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(8)]
            filled = [os.open(os.devnull, os.O_RDONLY)]
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(filled) + 1, limits[1]))
            try:
                for caller in callers:
                    with suppress(OSError):  # the end of a connection frees a descriptor
                        while True:
                            filled.append(os.open(os.devnull, os.O_RDONLY))
                    caller.connect(str(path))
                    await anyio.sleep(0.1)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
                for descriptor in filled:
                    os.close(descriptor)
            for caller in callers:
                with closing(caller):
                    caller.sendall(REQUEST)
                    assert (await in_thread(answer, caller)).endswith(BODY)

    assert logs[0]["event"] == "metrics.refused"


# Listening addresses


async def test_relative_socket_path_is_beside_the_real_database(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "agent.db").touch()
    (tmp_path / "link.db").symlink_to(tmp_path / "real" / "agent.db")

    with closing(open_server("m.sock", tmp_path / "link.db")):
        assert (tmp_path / "real" / "m.sock").is_socket()


async def test_metrics_socket_is_private_with_any_umask(path):
    umask = os.umask(0)
    try:
        listener = open_server(str(path), path)
    finally:
        os.umask(umask)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    listener.close()
    assert list(path.parent.iterdir()) == []


async def test_metrics_socket_path_longer_than_an_address_works(tmp_path):
    folder = tmp_path / ("d" * 200)
    folder.mkdir()
    with closing(open_server("m" * 200, folder / "agent.db")):
        pass

    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
async def test_file_in_place_of_the_metrics_socket_is_left_alone(path, kind):
    {"file": path.touch, "folder": path.mkdir, "link": lambda: path.symlink_to("nowhere")}[kind]()
    before = path.lstat()

    with pytest.raises(CannotCreate, match=r"metrics\.sock exists and is not a socket"):
        open_server(str(path), path)

    assert path.lstat().st_ino == before.st_ino


async def test_stale_metrics_socket_is_replaced_and_a_used_socket_is_not(path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(path))
    with closing(open_server(str(path), path)):
        with pytest.raises(CannotCreate, match="another process listens at"):
            open_server(str(path), path)

        assert path.is_socket()


async def test_metrics_socket_replaced_by_another_process_stays(path):
    listener = open_server(str(path), path)
    path.unlink()
    path.touch()

    listener.close()

    assert path.is_file()


async def test_port_in_use_and_missing_folder_are_reported(tmp_path):
    port = free_port()
    with closing(open_server(Endpoint("", "127.0.0.1", port), tmp_path)):
        with pytest.raises(CannotCreate, match=rf"cannot listen at 127\.0\.0\.1:{port}: Address already in use"):
            open_server(Endpoint("", "127.0.0.1", port), tmp_path)
    with pytest.raises(CannotCreate, match=r"cannot listen at .*/missing/m\.sock: No such file"):
        open_server("missing/m.sock", tmp_path / "agent.db")
