"""Ask a person, remind them, and go on with what they say: in a minute, or in three days.

    python examples/approval.py laptop 1200

It prints the question, and waits. Meanwhile nothing of the task is in memory: end this with Ctrl-C or kill -9, and
start it again tomorrow with the same words. Answer in another terminal, one way or the other:

    craftcore --db approvals.db inbox answer ID approve                  inbox list has the ID, too
    craftcore --db approvals.db emit --source MESSAGE --session laptop --payload '{"text": "approve"}'

or as the button of a web page in this process would: python examples/approval.py laptop 1200 approve

The first answer counts. Whoever comes second is told that it is too late.
"""

from __future__ import annotations

import sys
from datetime import timedelta

import anyio

from craftcore import App, CraftcoreError, TaskContext

app = App("approvals")


@app.workflow("purchase")
async def purchase(ctx: TaskContext, what: str, price: int) -> str:
    """Buy it when somebody approves. Nobody there for three days is a no."""
    reminder = await ctx.start_child("remind", {"text": f"{what} for {price} € waits for your approval"})
    answer = await ctx.ask(
        f"Buy {what} for {price} €?",
        ["approve", "refuse"],
        timeout=timedelta(days=3),
        default="refuse",
        by_message=True,  # a message to this session with one of the options as its text answers, too
    )
    await ctx.step("stop-reminding", tell, reminder.id, "answered", answer)
    if answer == "refuse":
        return f"{what} is not bought"
    return await ctx.step("order", order, what, ctx.task_id)


@app.workflow("remind")
async def remind(ctx: TaskContext, text: str) -> str:
    """A child: a task of its own. It speaks every eight hours until it is signalled that there is an answer."""
    for time in range(9):
        answer = await ctx.wait_for("answered", timeout=timedelta(hours=8))
        if answer is not None:
            return f"reminded {time} times, until somebody said {answer}"
        await ctx.step("say", say, text, key=str(time))
    return "nobody was there"


def say(text: str) -> None:
    """Where a mail would be sent. If the process dies before the result is on disk, it is sent twice."""
    print(text, flush=True)


def order(what: str, request_id: str) -> str:
    """Where a shop would be called. It may be called twice; by the request id it knows what it has sold already."""
    print(f"{what} is ordered", flush=True)
    return f"{what} is ordered as {request_id}"


async def tell(task_id: str, event: str, payload: str | None) -> None:
    """Signal a task. When this runs twice, the task has heard it the first time and ended; that is fine."""
    try:
        await app.signal(task_id, event, payload)
    except CraftcoreError as error:
        print(error, flush=True)


async def main(what: str, price: int, answer: str | None) -> None:
    async with app.running("approvals.db"):
        payload = {"what": what, "price": price}
        key = f"purchase:{what}"  # started again, it is the same purchase
        emitted = await app.emit("purchase", payload, session_id=what, dedup_key=key, dedup_scope="ever")
        told = set()
        while (task := await app.task(emitted.id)) is None or task.status.is_live:
            for asked in await app.questions():
                if asked.task_id == emitted.id and asked.id not in told:
                    told.add(asked.id)
                    print(f"{asked.question} To answer: inbox answer {asked.id} approve (or refuse)", flush=True)
                    if answer is not None:
                        await app.answer(asked.id, answer, answered_by="approval.py", note="said on its command line")
            await anyio.sleep(0.1)
    print(f"{task.status}: {task.result_json or task.error_message}")


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None)
