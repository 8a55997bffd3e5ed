"""The agent: a chat that answers each message, with tools that send mail and set reminders."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Iterator
from typing import Any

from craftcore import App, Continue, InvalidInput, NotFound, RetryPolicy, TaskContext, TriggerSource, current

MODEL_URL = os.environ.get("MODEL_URL", "http://127.0.0.1:8757/v1")
MODEL = os.environ.get("MODEL", "stub")
ROUNDS_MAX = 6
"""How often the model is asked for one message."""
KEPT = 50
"""Messages that a chat remembers."""

app = App("assistant")


@app.workflow("chat", concurrency=4)
async def chat(ctx: TaskContext[list[Any], Any], user: str, text: str, role: str = "user") -> Continue[list[Any]]:
    """Answer a message in each turn. The chat of a user is one task, and its state is the conversation."""
    said = {"text": text, "role": role} if ctx.turn == 1 else {"role": "user", **ctx.received}
    known = [*(ctx.state or []), {"role": said["role"], "content": said["text"]}]
    if said["role"] != "user":  # a reminder or a brief
        return Continue(known[-KEPT:], on="message")
    messages = list(known)
    for number in range(ROUNDS_MAX):
        await ctx.progress({"round": number + 1, "doing": "thinking"})
        reply = await ctx.step("model", ask_model, messages, key=str(number), retry=RetryPolicy(base=1, cap=30))
        messages.append(reply)
        if not reply.get("tool_calls"):
            break
        for place, call in enumerate(reply["tool_calls"]):
            name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
            await ctx.progress({"round": number + 1, "doing": name})
            result = await use_tool(ctx, user, f"{ctx.turn}.{number}.{place}", name, arguments)
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
    answer = str(messages[-1].get("content") or "I did not come to an end.")
    await ctx.reply(answer)
    return Continue([*known, {"role": "assistant", "content": answer}][-KEPT:], on="message")


@app.workflow("remind")
async def remind(ctx: TaskContext, user: str, text: str) -> None:
    """Tell a user something at its time. A schedule runs this."""
    await tell(ctx, user, text)


@app.workflow("brief")
async def brief(ctx: TaskContext, user: str) -> None:
    """Tell a user what is planned. A schedule runs this every day."""
    planned = [schedule.id for schedule in await ctx.schedules.list() if schedule.id.startswith(f"{user}.")]
    await tell(ctx, user, f"Your brief. Planned: {', '.join(planned)}")


async def tell(ctx: TaskContext, user: str, text: str) -> None:
    """Put something into the conversation of a user."""
    message = {"user": user, "text": text, "role": "assistant"}
    await ctx.emit("chat", message, source=TriggerSource.MESSAGE, session_id=user)


async def use_tool(ctx: TaskContext, user: str, place: str, name: str, given: dict[str, Any]) -> str:
    """Call a tool, and return its result for the model. A call that the model got wrong is explained to it."""
    try:
        match name:
            case "remind":
                id = f"{user}.{ctx.task_id[-8:]}.{place}"
                payload = {"user": user, "text": given["text"]}
                schedule = await ctx.schedules.add(id, given["when"], workflow="remind", payload=payload)
                return f"set as {schedule.id}"
            case "daily_brief":
                when = f"every day at {given['at']}"
                await ctx.schedules.add(f"{user}.brief", when, workflow="brief", payload={"user": user})
                return f"{user}.brief: {when}"
            case "list_reminders":
                mine = [
                    f"{one.id}: {one.expression}" for one in await ctx.schedules.list() if one.id.startswith(f"{user}.")
                ]
                return "; ".join(mine) or "none"
            case "cancel_reminder":
                await ctx.schedules.remove(given["id"])
                return "removed"
            case "send_email":
                return await send_email(ctx, place, **given)
    except (KeyError, TypeError, InvalidInput, NotFound) as error:
        return f"that did not work: {error}"
    return f"there is no tool {name}"


async def send_email(ctx: TaskContext, place: str, to: str, subject: str, body: str) -> str:
    """Send a mail after a person has approved it. After a crash during the call a person is asked about it again."""
    question = f"Send to {to}: {subject}\n{body}"
    if await ctx.ask(question, ["send", "discard"], timeout="1d", default="discard", key=place) != "send":
        return "the user did not approve it"
    await ctx.act("email.send", to=to, subject=subject, body=body, key=f"mail.{place}")
    return "sent"


def ask_model(messages: list[Any]) -> dict[str, Any]:
    """Ask a model with an OpenAI-compatible address. The words of its reply go into the stream as they come."""
    ctx = current()
    assert ctx is not None, "a step of the chat"
    stream = ctx.stream("answer")
    text, calls = "", list[dict[str, Any]]()
    for delta in receive(messages):
        if words := delta.get("content"):
            stream.write_blocking(words)
            text += words
        for part in delta.get("tool_calls") or ():
            if part["index"] == len(calls):
                calls.append({"id": part["id"], "type": "function", "function": {"arguments": "", **part["function"]}})
            else:
                calls[part["index"]]["function"]["arguments"] += part["function"]["arguments"]
    reply = {"role": "assistant", "content": text or None}
    return {**reply, "tool_calls": calls} if calls else reply


def receive(messages: list[Any]) -> Iterator[dict[str, Any]]:
    """Yield the reply of the model piece by piece."""
    body = {"model": MODEL, "messages": messages, "tools": TOOLS, "stream": True}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {os.environ.get('MODEL_KEY', 'none')}"}
    request = urllib.request.Request(f"{MODEL_URL}/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=120) as response:
        for line in response:
            if line.startswith(b"data: {"):
                yield json.loads(line[6:])["choices"][0]["delta"]


def tool(name: str, description: str, *arguments: str) -> dict[str, Any]:
    properties = {argument: {"type": "string"} for argument in arguments}
    parameters = {"type": "object", "properties": properties, "required": list(arguments)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


TOOLS = [
    tool("remind", "Tell the user something later. when: in 10m, every monday at 9am.", "when", "text"),
    tool("daily_brief", "Tell the user every day what is planned. at: 7am.", "at"),
    tool("list_reminders", "List what is planned for the user."),
    tool("cancel_reminder", "Remove a reminder by its id.", "id"),
    tool("send_email", "Send a mail, after the user has approved it.", "to", "subject", "body"),
]
