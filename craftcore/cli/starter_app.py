"""A craftcore app. Run it with: craftcore --db craftcore.db run app:app"""

from __future__ import annotations

import asyncio

from craftcore import App, Call, RetryPolicy, TaskContext

app = App("starter")


# A workflow is a function with a name. The keys of the payload are its arguments, converted to their annotations:
#   craftcore --db craftcore.db emit greet --payload '{"name": "Ada"}' --wait
@app.workflow("greet")
async def greet(name: str) -> str:
    return f"Hello, {name}!"


# With a first parameter `ctx` it learns who it is. `ctx.task_id` stays the same however often it is entered: give it to
# other services as the request id. Kill the daemon while this runs (kill -9), start it again, and it is run again.
#   craftcore --db craftcore.db emit work.long --payload '{"seconds": 20}'
@app.workflow("work.long", timeout=3600)
async def work_long(ctx: TaskContext, seconds: float = 5.0) -> str:
    await asyncio.sleep(seconds)
    return f"done in attempt {ctx.attempt}"


# What must not happen twice is an action, called with ctx.act. Kill the daemon while this runs, start it again, and you
# are asked whether it happened, for nobody can know: craftcore --db craftcore.db inbox list
#   craftcore --db craftcore.db emit buy --payload '{"amount": 7}'
@app.action("pay", irreversible=True, timeout=30)
async def pay(call: Call, amount: int) -> str:
    await asyncio.sleep(10)  # where a bank would be asked, with headers=call.headers: it knows a second call by its key
    return f"{amount} paid as {call.key}"


@app.workflow("buy")
async def buy(ctx: TaskContext, amount: int) -> str:
    paid: str = await ctx.act(pay, amount=amount)
    return paid


# What raises is tried again after a backoff; when its attempts are spent it is a dead letter: craftcore dead list
#   craftcore --db craftcore.db emit fragile
@app.workflow("fragile", retry=RetryPolicy(max_attempts=3, base=1, cap=10))
async def fragile() -> None:
    raise RuntimeError("the other side does not answer")


# A plain function runs in a thread. It may block, and it cannot be cancelled.
@app.workflow("count.words")
def count_words(text: str) -> int:
    return len(text.split())
