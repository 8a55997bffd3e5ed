"""Take a payment and confirm it with a message, each once, wherever the program is killed.

    python examples/order.py lamp 40             pays and confirms
    python examples/order.py lamp 40 10          the providers take ten seconds to answer: time for a kill -9
    python examples/order.py yacht 90000         is declined: no charge and no message

The files `charges.txt` and `messages.txt` stand for the providers. Kill the program after a new line in one of them and
before the answer, and start it again with the same words. The intent is on disk, but the outcome is unknown.

- The bank recognizes a repeated key. The payment is called again with the same key (RESEND), and is charged once.
- The message service accepts every message as a new one. Nothing is sent, and you are asked (ASK). Look into
  messages.txt, and answer in another terminal, also tomorrow:

    craftcore --db orders.db inbox answer ID happened            it is there; otherwise resend, or 'give up'
    craftcore --db orders.db activity list                       the state of each action

For a bank that accepts repeated calls but can be asked about the first one, use RECONCILE.
"""

from __future__ import annotations

import sys
from pathlib import Path

import anyio

from craftcore import App, Call, Fail, OnUnknown, TaskContext

CHARGES, MESSAGES = Path("charges.txt"), Path("messages.txt")
ANSWER_SECONDS = 0.0

app = App("orders")


@app.workflow("order")
async def order(ctx: TaskContext, what: str, price: int) -> str:
    """Pay and confirm. After a crash the recorded calls are not repeated."""
    charge = await ctx.act(pay, what=what, price=price)
    await ctx.act(confirm, text=f"{what} is paid: {charge}")
    return f"{what} is paid and confirmed"


@app.action("pay", irreversible=True, on_unknown=OnUnknown.RESEND, idempotent_provider=True, timeout=60)
async def pay(call: Call, *, what: str, price: int) -> str:
    """Charge the price, in place of a bank that is called over HTTP with `headers=call.headers`.

    The result is on disk before the next line of the workflow runs.
    """
    if price > 1000:
        raise Fail("DECLINED", f"{price} € for {what} are declined")  # the bank refuses: certainly no charge
    return await the_bank(call.key, f"{price} € for {what}")


@app.action("confirm", irreversible=True, timeout=60)  # the default policy is ASK
async def confirm(call: Call, *, text: str) -> None:
    """Send the message. If the outcome is unknown, it is not sent again without a decision."""
    await the_post(text)


async def the_bank(key: str, charge: str) -> str:
    """Charge once for each key, as the bank does, and answer a second call like the first."""
    keys = [line.split()[0] for line in lines_of(CHARGES)]
    if key not in keys:
        keys.append(key)
        add_line(CHARGES, f"{key} {charge}")
    await anyio.sleep(ANSWER_SECONDS)
    return f"charge {keys.index(key) + 1}"


async def the_post(text: str) -> None:
    """Deliver every message, as a provider without keys does."""
    add_line(MESSAGES, text)
    await anyio.sleep(ANSWER_SECONDS)


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def add_line(path: Path, line: str) -> None:
    print(f"{path}: {line}", flush=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")


async def main(what: str, price: int) -> None:
    async with app.running("orders.db"):
        payload = {"what": what, "price": price}
        # A restart finds the same order.
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
    ANSWER_SECONDS = float(sys.argv[3]) if len(sys.argv) > 3 else 0.0
    anyio.run(main, what, int(price))
