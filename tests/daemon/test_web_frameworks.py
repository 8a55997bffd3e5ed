"""An engine inside a web server: it runs as long as the server."""

from __future__ import annotations

import anyio
import httpx2
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from craftcore import App, InvalidInput, Producer
from tests.support.processes import PATIENCE

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]


def build_app() -> App:
    app = App("served")

    @app.workflow("greet")
    async def greet(name: str) -> str:
        return f"Hello {name}"

    return app


async def test_request_awaits_the_result_of_a_workflow(tmp_path):
    app = build_app()

    async def greet(request: Request) -> JSONResponse:
        work = await app.emit("greet", {"name": request.path_params["name"]})
        return JSONResponse({"id": work.id, "text": await work.result(timeout=PATIENCE)})

    served = Starlette(routes=[Route("/greet/{name}", greet)], lifespan=app.lifespan(tmp_path / "agent.db"))
    server = uvicorn.Server(uvicorn.Config(served, port=0, log_config=None))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.serve)
        with anyio.fail_after(PATIENCE):
            while not server.started:  # noqa: ASYNC110 - the server has no event for that
                await anyio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            answer = (await client.get("/greet/Ada", timeout=PATIENCE)).json()
        server.should_exit = True

    assert answer["text"] == "Hello Ada"
    with pytest.raises(InvalidInput, match="the app is not running"):
        app.handle("x")
    with Producer(tmp_path / "agent.db") as producer:
        assert producer.handle(answer["id"]).result(str, timeout=0) == "Hello Ada"


async def test_server_does_not_start_beside_a_daemon_of_the_same_database(tmp_path):
    first, second = build_app(), build_app()
    async with first.running(tmp_path / "agent.db"):
        served = Starlette(lifespan=second.lifespan(tmp_path / "agent.db"))
        server = uvicorn.Server(uvicorn.Config(served, port=0, log_config=None))
        with anyio.fail_after(PATIENCE), pytest.raises(SystemExit):
            await server.serve()
    assert server.lifespan.should_exit
