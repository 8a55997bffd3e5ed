"""`craftcore task stream`: the text that a task writes while it runs."""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from craftcore.cli.base import Command
from craftcore.cli.exit_codes import NO_SUCH
from craftcore.cli.lookup import find_task
from craftcore.cli.output import document_text
from craftcore.cli.session import Session
from craftcore.daemon.lock import read_note
from craftcore.log_format import escape_control
from craftcore.tasks.stream_chunks import StreamChunk
from craftcore.tasks.stream_store import StreamStore
from craftcore.triggers.validation import require_name

LOOK_SECONDS = 0.1
STREAMS_SHOWN = 20


@click.command(
    "stream",
    cls=Command,
    exits={NO_SUCH: None},
    examples=("craftcore task stream 01a1fdfa", "craftcore task stream 01a1fdfa answer --follow --after 12"),
    see=("craftcore task show", "craftcore task events", "docs/how-to/write-handlers.md#streams"),
)
@click.argument("task_id", metavar="ID")
@click.argument("name", metavar="[NAME]", default="answer")
@click.option("--after", type=click.IntRange(0, 1_000_000_000), default=0, help="Only chunks after this number.")
@click.option("--follow", is_flag=True, help="Go on until the task has ended.")
@click.pass_obj
def stream(session: Session, /, task_id: str, name: str, after: int, follow: bool) -> None:
    """Print what a task writes to a stream, "answer" unless given.

    Chunks that were withdrawn, because their step runs again, are not printed. With --follow a note says which chunks
    that were printed do not count any more, and with --json each chunk is a line.
    """
    core = session.core()
    require_name("stream name", name)
    with core.reading() as reader:
        id = find_task(reader, task_id).id
        others = [one.name for one in StreamStore().list_of_task(reader, id, STREAMS_SHOWN)]
    if not follow and name not in others:
        known = f"; it has {', '.join(dict.fromkeys(others))}" if others else ""
        session.out.print_note(f"task {id} has no stream {name}{known}")
    printer = Printer(session)
    is_noted = False
    while True:
        with core.reading() as reader:
            view = core.streams.look_at_task(reader, core.tasks.get(reader, id), name, after)
        for chunk in view.chunks:
            printer.add(chunk, is_followed=follow)
            after = chunk.number
        if view.is_over or (not follow and not view.chunks):
            break
        if not is_noted and not read_note(session.path)[1]:
            session.out.print_note(f"no daemon runs on {session.path}; waiting for one to be started")
        is_noted = True
        if not view.chunks:
            time.sleep(LOOK_SECONDS)
    printer.end(id, name, after, is_over=view.is_over, is_followed=follow)


class Printer:
    """Prints chunks: as text for people, or as documents."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._kept: list[dict[str, Any]] = []
        self._last, self._turn = "\n", 0

    def add(self, chunk: StreamChunk, *, is_followed: bool) -> None:
        """Print a chunk, or keep it for the document of all."""
        if self._session.json:
            document = make_document(chunk)
            if is_followed:
                print(document_text(document, indent=None), flush=True)
            else:
                self._kept.append(document)
        elif not chunk.cut:
            if chunk.turn != self._turn and self._last != "\n":
                print()  # each turn begins a line
            self._turn = chunk.turn
            sys.stdout.write("\n".join(map(escape_control, chunk.text.split("\n"))))
            sys.stdout.flush()
            self._last = chunk.text[-1]
        elif is_followed:
            self._session.out.print_note(f"these chunks do not count any more: {describe_numbers(chunk.cut)}")

    def end(self, id: str, name: str, last: int, *, is_over: bool, is_followed: bool) -> None:
        """Print what is left."""
        if self._session.json and not is_followed:
            self._session.out.document({"id": id, "name": name, "last": last, "is_over": is_over, "chunks": self._kept})
        elif self._last != "\n":
            print(flush=True)


def make_document(chunk: StreamChunk) -> dict[str, Any]:
    """Return the JSON document of a chunk."""
    cut = [[numbers.start, numbers.stop - 1] for numbers in chunk.cut]
    return {"number": chunk.number, "turn": chunk.turn, "text": chunk.text, "cut": cut}


def describe_numbers(cut: tuple[range, ...]) -> str:
    """Return `2 to 4, 7`."""
    spans = [f"{one.start}" if len(one) == 1 else f"{one.start} to {one.stop - 1}" for one in cut]
    return ", ".join(spans)
