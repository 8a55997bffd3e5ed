"""Book a flight, a hotel and a car. If one of them is not available, cancel the others in reverse order.

    python examples/saga.py Lisbon            books all three
    python examples/saga.py Reykjavik         has no cars: the hotel and the flight are cancelled

The file `bookings.txt` stands for the provider and lists its bookings and cancellations. Kill the program (kill -9) and
start it again: recorded work is not repeated, and a decision stays.

A step runs again if the process dies after its function and before its result is on disk. Each booking therefore has an
ID that is the same in every run, so that the provider recognizes it. Most providers accept such an ID.
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
    """The bookings to cancel, the last one first, and the reason."""

    bookings: list[str]
    reason: str


@app.workflow("trip", retry=PATIENT)
async def trip(ctx: TaskContext[Undo], city: str) -> list[str] | Continue[Undo]:
    """Book a trip in the first turn. If a booking fails, a second turn cancels the others.

    A failure is not recorded as a result. A second entry of the turn would ask again, and might receive another answer
    after half of the trip was cancelled. `Continue` therefore commits the decision before anything is cancelled.
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
        except Exception as error:  # no tries left, and the outcome of this booking is unknown
            return Continue(Undo(asked, f"{what}: {error}"))
    return asked


class SoldOut(Fail):
    """A refusal by the provider. A step that raises Fail is not retried."""


def book(city: str, booking: str) -> None:
    """Book one part. A plain function runs in a thread as a step, and may block."""
    if city == "Reykjavik" and booking.startswith("car"):
        raise SoldOut("SOLD_OUT", f"no car is left in {city}")
    the_other_side(f"booked {booking}")


def cancel(booking: str) -> None:
    the_other_side(f"cancelled {booking}")


def the_other_side(does: str) -> None:
    """Write a line to the provider's file, once."""
    done = BOOKINGS.read_text(encoding="utf-8").splitlines() if BOOKINGS.exists() else []
    if does not in done:
        print(does, flush=True)
        with BOOKINGS.open("a", encoding="utf-8") as file:
            file.write(f"{does}\n")


async def main(city: str) -> None:
    async with app.running("trips.db"):
        # A restart finds the same trip.
        emitted = await app.emit("trip", {"city": city}, dedup_key=f"trip:{city}", dedup_scope="ever")
        while (task := await app.task(emitted.id)) is None or task.status.is_live:
            await anyio.sleep(0.1)
    print(f"{task.status}: {task.error_message or task.result_json}")


if __name__ == "__main__":
    anyio.run(main, sys.argv[1] if len(sys.argv) > 1 else "Reykjavik")
