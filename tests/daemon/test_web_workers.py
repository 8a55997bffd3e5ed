"""A web server with several worker processes: one runs the engine, the others are its clients, and take over."""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import anyio
import httpx2
import pytest
from starlette.applications import Starlette

from craftcore import App, Producer
from craftcore.errors import ConfigInvalid, DaemonRunning, InvalidInput
from tests.support.code_blocks import PAGES
from tests.support.engine_harness import lab
from tests.support.processes import PATIENCE, environment

PAGE = PAGES["docs/how-to/embed-in-a-program.md"]
"""Its program `# served.py` has the lifespan of the program below."""

PROGRAM = """
import os, socket, sys
from dataclasses import dataclass

import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from craftcore import App, InvalidInput, TaskContext

app = App("served")


@dataclass
class Greeting:
    text: str
    pid: int


@app.workflow("greet")
async def greet(ctx: TaskContext, name: str) -> Greeting:
    await ctx.step("slow", lambda: None)
    return Greeting(f"Hello {name}", os.getpid())


@app.workflow("wait")
async def wait(ctx: TaskContext) -> int:
    return await ctx.wait_for("go")


async def answer(request):
    work = await app.emit("greet", {"name": request.path_params["name"]})
    greeting = await work.result()
    return JSONResponse({"text": greeting.text, "engine": greeting.pid, "pid": os.getpid()})


async def begin(request):
    return JSONResponse({"id": (await app.emit("wait")).id})


async def end(request):
    await app.signal(request.path_params["id"], "go", 7)
    return JSONResponse({"result": await app.handle(request.path_params["id"]).result()})


async def refuse(request):
    try:
        await app.emit("greet", {"name": 7})
    except InvalidInput as error:
        return JSONResponse({"error": error.message})


web = Starlette(
    routes=[
        Route("/greet/{name}", answer), Route("/begin", begin), Route("/end/{id}", end), Route("/refuse", refuse),
    ],
    lifespan=app.lifespan("agent.db", client="auto"),
)

if __name__ == "__main__":
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    server = uvicorn.Server(uvicorn.Config(web, log_config=None))
    server.run(sockets=[listener])
"""


class Worker:
    """One process of the server."""

    def __init__(self, process: Popen[bytes], port: int) -> None:
        self.process = process
        self.url = f"http://127.0.0.1:{port}"

    @property
    def pid(self) -> int:
        return self.process.pid

    def get(self, path: str) -> Any:
        """Return the answer to a request. It waits until the worker listens, and for the result."""
        return httpx2.get(self.url + path, timeout=PATIENCE).json()


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[list[Worker]]:
    """Start three processes of one server at once."""
    (tmp_path / "served.py").write_text(PROGRAM)
    with ExitStack() as stack:
        started = [
            stack.enter_context(
                Popen([sys.executable, "served.py"], cwd=tmp_path, env=environment(), stdout=PIPE, stderr=PIPE)
            )
            for _ in range(3)
        ]
        for process in started:
            stack.callback(process.kill)
        yield [Worker(process, int(process.stdout.readline())) for process in started if process.stdout is not None]


def test_worker_takes_over_after_the_death_of_the_engine(workers):
    answers = [worker.get("/greet/Ada") for worker in workers]
    assert [answer["text"] for answer in answers] == ["Hello Ada"] * 3
    assert [answer["pid"] for answer in answers] == [worker.pid for worker in workers]
    [engine] = {answer["engine"] for answer in answers}
    assert [worker.get("/refuse")["error"].startswith("the payload does not fit greet") for worker in workers] == [
        True
    ] * 3

    [first] = [worker for worker in workers if worker.pid == engine]
    others = [worker for worker in workers if worker.pid != engine]
    waiting = others[0].get("/begin")["id"]
    os.kill(first.pid, signal.SIGKILL)
    first.process.wait(PATIENCE)

    again = [worker.get("/greet/Grace") for worker in others]
    assert [answer["text"] for answer in again] == ["Hello Grace"] * 2
    [second] = {answer["engine"] for answer in again}
    assert second in {worker.pid for worker in others}
    assert [worker.get(f"/end/{waiting}")["result"] for worker in others[:1]] == [7]


def test_worker_takes_over_from_a_stopped_engine(workers):
    engine = workers[0].get("/greet/Ada")["engine"]
    [first] = [worker for worker in workers if worker.pid == engine]
    others = [worker for worker in workers if worker.pid != engine]

    os.kill(first.pid, signal.SIGTERM)
    assert first.process.wait(PATIENCE) in (0, -signal.SIGTERM)

    assert others[0].get("/greet/Grace")["engine"] in {worker.pid for worker in others}
    for worker in others:
        os.kill(worker.pid, signal.SIGTERM)
        assert worker.process.wait(PATIENCE) in (0, -signal.SIGTERM)


def test_workers_of_uvicorn_share_the_engine(tmp_path):
    (tmp_path / "served.py").write_text(PROGRAM)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        number = listener.fileno()
        command = [sys.executable, "-m", "uvicorn", "served:web", "--workers", "2", "--fd", str(number)]
        with Popen(command, cwd=tmp_path, env=environment(), pass_fds=[number], stdout=PIPE, stderr=PIPE) as server:
            try:
                url = f"http://127.0.0.1:{listener.getsockname()[1]}/greet/Ada"
                pids: set[int] = set()
                limit = time.monotonic() + PATIENCE
                while len(pids) < 2 and time.monotonic() < limit:
                    answer = httpx2.get(url, timeout=PATIENCE).json()
                    assert answer["text"] == "Hello Ada"
                    pids.add(answer["pid"])
            finally:
                server.terminate()
    assert len(pids) == 2


@pytest.mark.anyio
async def test_server_beside_a_daemon_is_its_client(tmp_path):
    daemon, served = App("served"), App("served")
    for app in (daemon, served):

        @app.workflow("greet")
        async def greet(name: str) -> str:
            return f"Hello {name}"

    async with lab(daemon, tmp_path) as harness:
        async with served.lifespan(harness.path, client="auto")(Starlette()):
            assert await (await served.emit("greet", {"name": "Ada"})).result(timeout=PATIENCE) == "Hello Ada"
            assert await served.transaction(lambda tx: tx.value("SELECT count(*) FROM triggers")) == 1
        with pytest.raises(InvalidInput, match="not running"):
            await served.emit("greet", {"name": "Ada"})


@pytest.mark.anyio
async def test_refused_second_engine_names_the_lifespan_for_several_workers(tmp_path):
    async with lab(App("served"), tmp_path) as harness:
        with pytest.raises(DaemonRunning, match=r'client="auto"'):
            async with App("served").lifespan(harness.path)(Starlette()):
                raise AssertionError("it started")


@pytest.mark.anyio
async def test_mistake_of_the_app_is_raised_at_the_first_start(tmp_path):
    app = App("served")
    app.workflow("greet", fallback=["nobody"])(lambda name: name)

    with pytest.raises(ConfigInvalid, match="nobody"):
        async with app.lifespan(tmp_path / "agent.db", client="auto")(Starlette()):
            raise AssertionError("it started")
    with pytest.raises(ConfigInvalid, match="client 'yes'"):
        app.lifespan(tmp_path / "agent.db", client="yes")  # type: ignore[arg-type]


@pytest.mark.anyio
async def test_failed_engine_leaves_the_file_to_others_and_goes_on_as_a_client(tmp_path):
    app = App("served")

    @app.workflow("greet")
    async def greet(name: str) -> str:
        return f"Hello {name}"

    async with app.lifespan(tmp_path / "agent.db", client="auto")(Starlette()):
        await (await app.emit("greet", {"name": "Ada"})).result(timeout=PATIENCE)
        assert app._engine is not None
        app._engine.crash("broken on purpose")
        with anyio.fail_after(PATIENCE):
            while app._client is None:  # noqa: ASYNC110 - the takeover has no event
                await anyio.sleep(0.01)
        work = await app.emit("greet", {"name": "Grace"})
        with Producer(tmp_path / "agent.db") as producer:
            assert producer.handle(work.id).state().status == "PENDING"


def test_program_of_the_page_has_the_lifespan_of_several_workers(tmp_path, monkeypatch):
    [program] = re.findall(r"```python\n# served\.py\n(.*?)```", PAGE, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}

    exec(program, names)

    assert isinstance(names["web"], Starlette)
    assert 'client="auto"' in program
