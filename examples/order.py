"""Take a payment, and confirm it with a message: each of them once, whatever is killed meanwhile.

    python examples/order.py lamp 40             pays, and confirms
    python examples/order.py lamp 40 10          the world outside takes ten seconds to answer: time for a kill -9
    python examples/order.py yacht 90000         is declined: nothing is charged, and nothing is confirmed

`charges.txt` and `messages.txt` are that world. Kill this when a line has come into one of them and no answer yet, and
start it again with the same words. That it was about to pay is on disk, and not what came of it: nobody here can know.

- The bank knows a key again. So it is called again, with the same key (RESEND), and charges once.
- Who takes the messages takes each as a new one. So nothing is sent, and you are asked (ASK). Look into messages.txt,
  and say in another terminal, or tomorrow:

    craftcore --db orders.db inbox answer ID happened            it is there; or resend, if it is not; or 'give up'
    craftcore --db orders.db activity list                       what is known of each

A bank that drops no second call, and can be asked about the first, is one to RECONCILE with.
"""

from __future__ import annotations

import sys
from pathlib import Path

import anyio

from craftcore import App, Call, Fail, OnUnknown, TaskContext

CHARGES, MESSAGES = Path("charges.txt"), Path("messages.txt")
ANSWER_SECONDS = float(sys.argv[3]) if len(sys.argv) > 3 else 0.0

app = App("orders")


@app.workflow("order")
async def order(ctx: TaskContext, what: str, price: int) -> str:
    """Entered again after a crash: what is done is on record, and is not called again."""
    charge = await ctx.act(pay, what=what, price=price)
    await ctx.act(confirm, text=f"{what} is paid: {charge}")
    return f"{what} is paid and confirmed"


@app.action("pay", irreversible=True, on_unknown=OnUnknown.RESEND, idempotent_provider=True, timeout=60)
async def pay(call: Call, *, what: str, price: int) -> str:
    """Where a bank would be asked, over HTTP with `headers=call.headers`. What is returned is on disk before the next
    line of the workflow runs."""
    if price > 1000:
        raise Fail("DECLINED", f"{price} € for {what} are declined")  # a no of the bank: nothing happened, for certain
    return await the_bank(call.key, f"{price} € for {what}")


@app.action("confirm", irreversible=True, timeout=60)  # ASK, unless it says otherwise
async def confirm(call: Call, *, text: str) -> None:
    """Where a message would be sent. In doubt it is not sent again unasked."""
    await the_post(text)


async def the_bank(key: str, charge: str) -> str:
    """The other side: it charges once for each key, and answers a second call like the first."""
    keys = [line.split()[0] for line in lines_of(CHARGES)]
    if key not in keys:
        keys.append(key)
        add_line(CHARGES, f"{key} {charge}")
    await anyio.sleep(ANSWER_SECONDS)
    return f"charge {keys.index(key) + 1}"


async def the_post(text: str) -> None:
    """The other side: it knows no keys."""
    add_line(MESSAGES, text)
    await anyio.sleep(ANSWER_SECONDS)


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def add_line(path: Path, line: str) -> None:
    print(f"{path}: {line}", flush=True)
    with path.open("a") as file:
        file.write(f"{line}\n")


async def main(what: str, price: int) -> None:
    async with app.running("orders.db"):
        payload = {"what": what, "price": price}
        # Started again, it is the same order.
        emitted = await app.emit("order", payload, dedup_key=f"order:{what}", dedup_scope="ever")
        told = set()
        while (task := await app.task(emitted.id)) is None or task.status.is_live:
            for asked in await app.questions():
                if asked.task_id == emitted.id and asked.id not in told:
                    told.add(asked.id)
                    print(f"{asked.question}\nTo answer: craftcore --db orders.db inbox answer {asked.id} happened")
                    print("or resend, or 'give up'", flush=True)
            await anyio.sleep(0.1)
    print(f"{task.status}: {task.error_message or task.result_json}")


if __name__ == "__main__":
    what, price = sys.argv[1:3] or ("lamp", "40")
    anyio.run(main, what, int(price))
