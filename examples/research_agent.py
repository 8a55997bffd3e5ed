"""A research agent: a model decides, turn by turn, which tool to call, until it knows the answer.

    python examples/stub_model.py                 in one terminal: a model that needs no network
    python examples/research_agent.py             in another

Or with a model of your own: MODEL_URL=http://127.0.0.1:11434/v1 MODEL=qwen3 python examples/research_agent.py

Kill it wherever you like (kill -9) and start it again: it goes on in the turn where it was. Model calls that are on
record are not made again, as the other terminal shows. One that was under way when the process died is; so is one that
had just returned and was not on disk yet. That costs money, and nothing else. What must not be bought twice is told
apart by a request id, the same however often the step runs. (A turn in which the process died three times is put aside
as poison, until somebody says `craftcore --db research.db task retry ID`.)
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import urllib.request
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import anyio

from craftcore import App, Continue, RetryPolicy, TaskContext

URL = os.environ.get("MODEL_URL", "http://127.0.0.1:8756/v1")
MODEL = os.environ.get("MODEL", "stub")
PRICES = {"search": 1, "buy": 250}
"""Cents."""

app = App("research")


@dataclass
class Research:
    """What one turn leaves to the next."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    spent: int = 0


@app.workflow("research")
async def research(ctx: TaskContext[Research], question: str, budget: int = 100) -> Continue[Research] | str:
    """One turn: ask the model, do what it wants done. `budget`, in cents, is spent without asking."""
    print(f"turn {ctx.turn} ({ctx.resume})", flush=True)
    state = ctx.state or Research(messages=[{"role": "user", "content": question}])
    reply = await ctx.step("model", ask_model, state.messages, retry=RetryPolicy(max_attempts=5, base=1, cap=30))
    calls = reply.get("tool_calls")
    if not calls:
        return str(reply["content"])
    state.messages.append(reply)
    for number, call in enumerate(calls):
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        price = PRICES.get(name, 0)
        allowed: str | None = "yes"
        if state.spent + price > budget:
            allowed = await ctx.ask(
                f"{name} {arguments} costs {price} ct, and {state.spent} of {budget} are spent. Do it?",
                ["yes", "no"],
                timeout=timedelta(days=1),
                default="no",
            )
        if allowed == "yes":
            request_id = f"{ctx.task_id}.{ctx.turn}.{number}"
            result = await ctx.step("tool", use_tool, name, arguments, request_id, key=str(number))
            state.spent += price
        else:
            result = "refused: too expensive. Do without."
        state.messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
    return Continue(state)


def ask_model(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """A plain function: as a step it runs in a thread, and may block."""
    body = {"model": MODEL, "messages": messages, "tools": TOOLS}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {os.environ.get('MODEL_KEY', 'none')}"}
    request = urllib.request.Request(f"{URL}/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=120) as response:
        reply: dict[str, Any] = json.load(response)["choices"][0]["message"]
    print(f"  the model was asked, with {len(messages)} messages", flush=True)
    return reply


def use_tool(name: str, arguments: str, request_id: str) -> str:
    """The world outside. A real shop is given the request id, so that it sells once what is asked for twice.

    What a model asks for is on record, and stays wrong however often it is tried: so it is told, and may do better.
    """
    print(f"  {name} {arguments}", flush=True)
    try:
        match name, json.loads(arguments):
            case "search", {"query": query}:
                return f"three pages about {query}"
            case "buy", {"report": report}:
                return f"{report}, bought as {request_id}: a commit is on disk when it is flushed"
    except ValueError as error:
        return f"the arguments are not JSON: {error}"
    return f"there is no tool {name} with these arguments"


def tool(name: str, description: str, argument: str) -> dict[str, Any]:
    properties = {argument: {"type": "string"}}
    parameters = {"type": "object", "properties": properties, "required": [argument]}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


TOOLS = [tool("search", "Search the web.", "query"), tool("buy", "Buy a report by its name.", "report")]


async def main(question: str) -> None:
    key = f"research:{hashlib.sha256(question.encode()).hexdigest()}"  # started again, it is the same task
    async with app.running("research.db"):
        emitted = await app.emit("research", {"question": question}, dedup_key=key, dedup_scope="ever")
        while (task := await app.task(emitted.id)) is None or task.status.is_live:
            for asked in await app.questions():
                print(f"{asked.question} (yes or no)", flush=True)
                await anyio.wait_readable(sys.stdin)
                said = "yes" if sys.stdin.readline().startswith("y") else "no"
                await app.answer(asked.id, said, answered_by="whoever sits at the terminal")
            await anyio.sleep(0.1)
    print(f"{task.status} after {task.turn} turns: {task.result_json or task.error_message}")


if __name__ == "__main__":
    anyio.run(main, " ".join(sys.argv[1:]) or "When is a commit on disk?")
