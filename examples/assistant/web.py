"""A personal assistant over HTTP: the agent, and a web server in one process.

    python examples/assistant/model_stub.py       in one terminal: a model without a network
    python examples/assistant/web.py              in another terminal; needs starlette and uvicorn

    curl -d '{"text": "remind me to water the plants in 10m"}' localhost:8758/chat/ada
    curl localhost:8758/messages/ID/events        what happens, as it happens
    curl localhost:8758/messages/ID/stream        the answer, word by word
    curl -X DELETE localhost:8758/messages/ID     stop the answer
    curl localhost:8758/chat/ada                  the conversation
    curl localhost:8758/questions                 what waits for an answer
    curl -d '{"choice": "send"}' localhost:8758/questions/ID

Kill the server anywhere (kill -9) and start it again: accepted messages are answered, reminders stay, and no mail is
sent twice.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator
from pathlib import Path

import uvicorn
from agent import app  # type: ignore[import-not-found] # beside this file
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from craftcore import CraftcoreError, TriggerSource

DATABASE = Path(os.environ.get("ASSISTANT_DB", "assistant.db"))
SETTINGS = os.environ.get("ASSISTANT_CONFIG")
MESSAGES_A_MINUTE = 20

_sent: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=MESSAGES_A_MINUTE))


async def say(request: Request) -> Response:
    """Accept a message. With an `Idempotency-Key` it may be sent again: it is accepted once."""
    user, text = request.path_params["user"], (await request.json())["text"]
    times = _sent[user]
    if len(times) == MESSAGES_A_MINUTE and times[0] > time.monotonic() - 60:
        return JSONResponse({"error": f"more than {MESSAGES_A_MINUTE} messages a minute"}, status_code=429)
    times.append(time.monotonic())
    key = request.headers.get("idempotency-key")
    work = await app.emit(
        "chat",
        {"user": user, "text": text},
        source=TriggerSource.MESSAGE,
        session_id=user,
        dedup_key=None if key is None else f"{user}:{key}",
    )
    return JSONResponse({"id": work.id, "created": work.created}, status_code=202)


async def follow(request: Request) -> Response:
    """Stream what happens to a message, as server-sent events, until it is answered."""

    async def events() -> AsyncIterator[str]:
        work = app.handle(request.path_params["id"])
        async for update in work.events():
            yield f"data: {json.dumps({'status': update.status, 'progress': update.progress})}\n\n"
        try:
            yield f"event: answer\ndata: {json.dumps(await work.result(str))}\n\n"
        except CraftcoreError as error:
            yield f"event: failed\ndata: {json.dumps(str(error))}\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")


async def stream(request: Request) -> Response:
    """Stream the answer to a message as it is written. A browser that comes back sends `Last-Event-ID`, and goes on
    behind it. `cut`: the numbers, first and last, of earlier pieces that no longer count."""
    work = app.handle(request.path_params["id"])
    pieces = work.stream("answer", after=int(request.headers.get("last-event-id", 0)))

    async def events() -> AsyncIterator[str]:
        async for piece in pieces:
            cut = [(numbers.start, numbers.stop - 1) for numbers in piece.cut]
            yield f"id: {piece.number}\ndata: {json.dumps({'text': piece.text, 'cut': cut})}\n\n"
        yield "event: end\ndata:\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")


async def stop(request: Request) -> Response:
    """Stop the answer to a message; the conversation goes on with the next one."""
    id = request.path_params["id"]
    await app.handle(id).cancel()
    return JSONResponse({"stopped": id})


async def conversation(request: Request) -> Response:
    """Return the newest messages of a user, oldest first: the state of the chat."""
    chats = await app.tasks(workflow="chat", session_id=request.path_params["user"], limit=1)
    return JSONResponse((json.loads(chats[0].state_json) or []) if chats else [])


async def questions(_request: Request) -> Response:
    """Return what waits for an answer."""
    return JSONResponse([{"id": one.id, "question": one.question} for one in await app.questions()])


async def decide(request: Request) -> Response:
    """Answer a question."""
    choice = (await request.json())["choice"]
    await app.answer(request.path_params["id"], choice, answered_by="the web page")
    return JSONResponse({"answered": choice})


async def refuse(_request: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, status_code=400)


server = Starlette(
    routes=[
        Route("/chat/{user}", say, methods=["POST"]),
        Route("/chat/{user}", conversation),
        Route("/messages/{id}/events", follow),
        Route("/messages/{id}/stream", stream),
        Route("/messages/{id}", stop, methods=["DELETE"]),
        Route("/questions", questions),
        Route("/questions/{id}", decide, methods=["POST"]),
    ],
    exception_handlers={CraftcoreError: refuse, KeyError: refuse, ValueError: refuse},
    lifespan=app.lifespan(DATABASE, config=SETTINGS),
)

if __name__ == "__main__":
    uvicorn.run(server, port=int(sys.argv[1]) if len(sys.argv) > 1 else 8758, log_level="warning")
