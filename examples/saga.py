"""Book a flight, a hotel and a car; when one of them cannot be had, cancel what was booked, in reverse order.

    python examples/saga.py Lisbon            books all three
    python examples/saga.py Reykjavik         has no cars: the hotel and the flight are cancelled again

`bookings.txt` is the world outside: what the other side has booked and cancelled. Kill this (kill -9) and start it
again: what is on record is not done again, and what was decided stays decided.

A step whose function ran and whose result was not on disk yet when the process died runs again. So each booking has an
id of ours, the same however often the step runs, and the other side knows it again. Most that sell anything take one.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import anyio

from craftcore import App, Continue, Fail, RetryPolicy, TaskContext

BOOKINGS = Path("bookings.txt")
PATIENT = RetryPolicy(max_attempts=5, base=1, cap=60)

app = App("trips")


@dataclass
class Undo:
    """What is to be cancelled, the last first, and why."""

    bookings: list[str]
    reason: str


@app.workflow("trip", retry=PATIENT)
async def trip(ctx: TaskContext[Undo], city: str) -> list[str] | Continue[Undo]:
    """The first turn books. Only when something cannot be booked is there a second, which undoes the first.

    A failure is not on record as a result is: entered again, this turn would ask again, and might hear another answer
    when half of the trip is cancelled already. So the decision is made by `Continue`, in one commit, before anything is
    undone.
    """
    if ctx.state is not None:
        for booking in ctx.state.bookings:
            await ctx.step("cancel", cancel, booking, key=booking, retry=PATIENT)
        raise Fail("NOT_BOOKED", ctx.state.reason)
    asked: list[str] = []
    for what in ("flight", "hotel", "car"):
        asked.insert(0, f"{what}:{ctx.task_id}")
        try:
            await ctx.step("book", book, city, asked[0], key=what, retry=PATIENT)
        except SoldOut as error:
            return Continue(Undo(asked[1:], str(error)))
        except Exception as error:  # tried often enough; and nobody knows whether this one was booked
            return Continue(Undo(asked, f"{what}: {error}"))
    return asked


class SoldOut(Fail):
    """The other side said no: a step that raises Fail is not tried again."""


def book(city: str, booking: str) -> None:
    """A plain function: as a step it runs in a thread, and may block."""
    if city == "Reykjavik" and booking.startswith("car"):
        raise SoldOut("SOLD_OUT", f"no car is left in {city}")
    the_other_side(f"booked {booking}")


def cancel(booking: str) -> None:
    the_other_side(f"cancelled {booking}")


def the_other_side(does: str) -> None:
    """It does once what it is asked for twice."""
    done = BOOKINGS.read_text().splitlines() if BOOKINGS.exists() else []
    if does not in done:
        print(does, flush=True)
        with BOOKINGS.open("a") as file:
            file.write(f"{does}\n")


async def main(city: str) -> None:
    async with app.running("trips.db"):
        # Started again, it is the same trip.
        emitted = await app.emit("trip", {"city": city}, dedup_key=f"trip:{city}", dedup_scope="ever")
        while (task := await app.task(emitted.id)) is None or task.status.is_live:
            await anyio.sleep(0.1)
    print(f"{task.status}: {task.error_message or task.result_json}")


if __name__ == "__main__":
    anyio.run(main, sys.argv[1] if len(sys.argv) > 1 else "Reykjavik")
