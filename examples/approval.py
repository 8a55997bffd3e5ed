"""Ask a person for an approval, remind them, and continue with the answer.

    python examples/approval.py laptop 1200

The program prints the question and waits. The waiting task uses no memory. End the program with Ctrl-C or kill -9, and
start it again with the same words. Answer in another terminal, in one of two ways:

    craftcore --db approvals.db inbox answer ID approve                  inbox list shows the ID
    craftcore --db approvals.db emit --source MESSAGE --session laptop --payload '{"text": "approve"}'

Or answer in this process, as a web page would: python examples/approval.py laptop 1200 approve

The first answer counts. A later one is refused.
"""

from __future__ import annotations

import sys
from datetime import timedelta

import anyio

from craftcore import App, CraftcoreError, TaskContext

app = App("approvals")


@app.workflow("purchase")
async def purchase(ctx: TaskContext, what: str, price: int) -> str:
    """Buy an item after an approval. Without an answer within three days it is not bought."""
    reminder = await ctx.start_child("remind", {"text": f"{what} for {price} € waits for your approval"})
    answer = await ctx.ask(
        f"Buy {what} for {price} €?",
        ["approve", "refuse"],
        timeout=timedelta(days=3),
        default="refuse",
        by_message=True,  # a message to this session whose text is an option also answers
    )
    await ctx.step("stop-reminding", tell, reminder.id, "answered", answer)
    if answer == "refuse":
        return f"{what} is not bought"
    return await ctx.step("order", order, what, ctx.task_id)


@app.workflow("remind")
async def remind(ctx: TaskContext, text: str) -> str:
    """Remind the person every eight hours, until a signal says that the question is answered."""
    for time in range(9):
        answer = await ctx.wait_for("answered", timeout=timedelta(hours=8))
        if answer is not None:
            return f"reminded {time} times, until somebody said {answer}"
        await ctx.step("say", say, text, key=str(time))
    return "nobody was there"


def say(text: str) -> None:
    """Print the text, in place of an email. A crash before the result is on disk repeats it."""
    print(text, flush=True)


def order(what: str, request_id: str) -> str:
    """Order the item, in place of a shop. The request ID lets a real shop ignore a repeated call."""
    print(f"{what} is ordered", flush=True)
    return f"{what} is ordered as {request_id}"


async def tell(task_id: str, event: str, payload: str | None) -> None:
    """Signal a task. A repeated call finds that the task has ended, which is harmless."""
    try:
        await app.signal(task_id, event, payload)
    except CraftcoreError as error:
        print(error, flush=True)


async def main(what: str, price: int, answer: str | None) -> None:
    async with app.running("approvals.db"):
        payload = {"what": what, "price": price}
        key = f"purchase:{what}"  # a restart finds the same purchase
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
