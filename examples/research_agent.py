"""A research agent: in each turn a model decides which tool to call, until it has the answer.

    python examples/stub_model.py                 in one terminal: a model without a network
    python examples/research_agent.py             in another terminal

With your own model: MODEL_URL=http://127.0.0.1:11434/v1 MODEL=qwen3 python examples/research_agent.py

Kill the program anywhere (kill -9) and start it again: it continues in the same turn. Recorded model calls are not
repeated, as the other terminal shows. A call is repeated if the process died during it, or before its result was on
disk. This costs money but does no other harm. A purchase must not be repeated: its request ID is the same in every run
of the step. (After three crashes in one turn the task is put aside as poison. To continue it, run
`craftcore --db research.db task retry ID`.)
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
    """The state from turn to turn."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    spent: int = 0


@app.workflow("research")
async def research(ctx: TaskContext[Research], question: str, budget: int = 100) -> Continue[Research] | str:
    """Run one turn: ask the model and make its calls. `budget`, in cents, is spent without a question."""
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
    """Ask the model. A plain function runs in a thread as a step, and may block."""
    body = {"model": MODEL, "messages": messages, "tools": TOOLS}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {os.environ.get('MODEL_KEY', 'none')}"}
    request = urllib.request.Request(f"{URL}/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=120) as response:
        reply: dict[str, Any] = json.load(response)["choices"][0]["message"]
    print(f"  the model was asked, with {len(messages)} messages", flush=True)
    return reply


def use_tool(name: str, arguments: str, request_id: str) -> str:
    """Call a tool. The request ID lets a real shop ignore a repeated call.

    A wrong call of the model is recorded and stays wrong. The error is returned to the model, which may correct it.
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
    key = f"research:{hashlib.sha256(question.encode()).hexdigest()}"  # a restart finds the same task
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
