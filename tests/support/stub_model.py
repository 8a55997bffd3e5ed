"""A fake model endpoint over HTTP on loopback with programmed answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.processes import PATIENCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A received request."""

    path: str
    headers: dict[str, str]
    body: Any

    @property
    def question(self) -> str:
        content: str = self.body["messages"][-1]["content"]
        return content


class Handler(BaseHTTPRequestHandler):
    """The handler of one request. It records a client that disconnects during the answer, without an error."""

    server: StubModel
    timeout = PATIENCE

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = Asked(path=self.path, headers=headers, body=body)
        self.server.asked.append(asked)
        try:
            self.server.answer(self, asked)
        except ConnectionError:
            self.server.left.set()

    def begin(self, status: int, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        pass


Answer = Callable[[Handler, Asked], None]


class StubModel(ThreadingHTTPServer):
    """A stub: `asked` are the received requests, `answer` sets the answer, and `released` ends a hanging answer."""

    daemon_threads = False  # close() waits for the end of each request
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[Asked] = []
        self.answer: Answer = says("new")
        self.began = threading.Event()
        self.left = threading.Event()
        self.released = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


@contextmanager
def a_stub() -> Iterator[StubModel]:
    """Run a stub until the block ends, even during an answer."""
    with StubModel() as stub:
        serving = threading.Thread(target=stub.serve_forever, args=(0.01,))
        serving.start()
        try:
            yield stub
        finally:
            stub.released.set()
            stub.shutdown()
            serving.join()


def completion(content: object) -> dict[str, object]:
    return {
        "object": "chat.completion",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": content}}],
    }


def replies(status: int, body: object = b"", **headers: str) -> Answer:
    """Reply with bytes unchanged, or with any other body as JSON."""
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()

    def answer(handler: Handler, asked: Asked) -> None:
        handler.begin(status, **headers)
        handler.wfile.write(sent)

    return answer


def says(content: object) -> Answer:
    return replies(200, completion(content))


def hangs(then: Answer) -> Answer:
    """Send no answer until the stub is released."""

    def answer(handler: Handler, asked: Asked) -> None:
        handler.server.began.set()
        handler.server.released.wait(PATIENCE)
        then(handler, asked)

    return answer


def drips(handler: Handler, asked: Asked) -> None:
    """Send a beginning, and nothing more until the stub is released."""
    handler.begin(200)
    handler.wfile.write(b'{"choices": ')
    handler.wfile.flush()
    handler.server.began.set()
    handler.server.released.wait(PATIENCE)


def never_ends(handler: Handler, asked: Asked) -> None:
    """Send an endless body until the client disconnects."""
    handler.begin(200)
    while not handler.server.released.is_set():
        handler.wfile.write(b" " * 65536)
