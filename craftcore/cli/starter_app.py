"""A craftcore app. Run it with: craftcore run app:app"""

from __future__ import annotations

import asyncio

from craftcore import App, Call, RetryPolicy, TaskContext

app = App("starter")


# A workflow is a function with a name. The keys of the payload are its arguments, converted to their annotations:
#   craftcore emit greet --payload '{"name": "Ada"}' --wait
@app.workflow("greet")
async def greet(name: str) -> str:
    return f"Hello, {name}!"


# With a first parameter `ctx` it is a task. The result of a step is on disk before the next line runs. Kill the daemon
# while it writes (kill -9) and start it again: the notes are not taken again. A question waits also without a daemon.
#   craftcore emit report --payload '{"topic": "tides"}'
@app.workflow("report", timeout=3600)
async def report(ctx: TaskContext, topic: str) -> str:
    notes = await ctx.step("notes", take_notes, topic)
    text = await ctx.step("text", write, notes)
    answer = await ctx.ask(f"Publish {text!r}?", ["publish", "drop"])
    return f"{answer}: {text}"


async def take_notes(topic: str) -> list[str]:
    print(f"taking notes on {topic}")
    await asyncio.sleep(5)
    return [f"{topic} rise", f"{topic} fall"]


async def write(notes: list[str]) -> str:
    print(f"writing about {len(notes)} notes")
    await asyncio.sleep(20)
    return " and ".join(notes)


# Work that must not happen twice is an action, called with ctx.act. Kill the daemon while this runs and start it again.
# The outcome is then unknown, and you are asked whether it happened: craftcore inbox list
#   craftcore emit buy --payload '{"amount": 7}'
@app.action("pay", irreversible=True, timeout=30)
async def pay(call: Call, amount: int) -> str:
    await asyncio.sleep(10)  # call your bank here, with headers=call.headers: the key marks a repeated call
    return f"{amount} paid as {call.key}"


@app.workflow("buy")
async def buy(ctx: TaskContext, amount: int) -> str:
    paid: str = await ctx.act(pay, amount=amount)
    return paid


# A failure is retried after a backoff. After the last attempt the trigger is a dead letter: craftcore dead list
#   craftcore emit fragile
@app.workflow("fragile", retry=RetryPolicy(max_attempts=3, base=1, cap=10))
async def call_provider() -> None:
    raise RuntimeError("the provider does not answer")


# A plain function runs in a thread. It may block, and it cannot be cancelled.
@app.workflow("count.words")
def count_words(text: str) -> int:
    return len(text.split())
