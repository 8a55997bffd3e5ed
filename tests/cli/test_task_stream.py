"""`craftcore task stream`: chunks as text, as a document, and while they are written."""

from __future__ import annotations

import json

import pytest

from craftcore.tasks.stream_chunks import Cut, Written
from craftcore.tasks.stream_store import StreamStore
from tests.support.fakes import VirtualCore
from tests.support.idle_database import a_task


@pytest.fixture
def task(database, clock) -> str:
    """Return a task with chunks in its first turn: three of its own, and one that was withdrawn."""
    id = a_task(database, "wait", clock)
    core = VirtualCore(database, clock)
    with core.transaction() as tx:
        seq = tx.fetch_value("SELECT seq FROM tasks WHERE id = :id", id=id)
        opened = StreamStore().open(tx, seq, 1, "answer")
        written = [("", ["Hello", ",\n\x1b[31mAda"]), ("step:a", ["torn"]), ("", ["!"])]
        first = 1
        for part, texts in written:
            StreamStore().add_all(tx, [Written(opened.seq, first, part, texts)])
            first += len(texts)
        StreamStore().cut(tx, Cut(opened.seq, 5, "step:a", 0))
    core.close()
    return id


def test_stream_is_printed_as_text_without_control_characters(cli, task):
    shown = cli("task", "stream", task)

    assert shown.out == "Hello,\n\\x1b[31mAda!\n"


def test_stream_is_a_document_with_json(cli, task):
    shown = cli("--json", "task", "stream", task, "--after", "1").json

    assert (shown["id"], shown["name"], shown["last"], shown["is_over"]) == (task, "answer", 5, False)
    assert [(one["number"], one["turn"], one["cut"]) for one in shown["chunks"]] == [
        (2, 1, []),
        (4, 1, []),
        (5, 1, [[3, 3]]),
    ]


def test_followed_stream_is_a_line_for_each_chunk_until_the_end(cli, task):
    cli("task", "cancel", task)
    shown = cli("--json", "task", "stream", task, "--follow")
    people = cli("task", "stream", task, "--follow")

    assert [json.loads(line)["number"] for line in shown.out.splitlines()] == [1, 2, 4, 5]
    assert "these chunks do not count any more: 3" in people.err


def test_unknown_stream_names_those_of_the_task(cli, task):
    shown = cli("task", "stream", task, "thoughts")

    assert (shown.code, shown.out) == (0, "")
    assert "has no stream thoughts; it has answer" in shown.err


def test_task_card_lists_the_streams(cli, task):
    assert cli("--json", "task", "show", task).json["streams"] == [
        {"name": "answer", "turn": 1, "chunks": 3, "last": 5}
    ]
    assert "answer  1     3       5" in cli("task", "show", task).out


def test_stream_begins_a_line_for_every_turn(cli, database, clock, task):
    core = VirtualCore(database, clock)
    with core.transaction() as tx:
        seq = tx.fetch_value("SELECT seq FROM tasks WHERE id = :id", id=task)
        opened = StreamStore().open(tx, seq, 2, "answer")
        StreamStore().add_all(tx, [Written(opened.seq, opened.next_number, "", ["Bye", "."])])
    core.close()

    assert cli("task", "stream", task).out == "Hello,\n\\x1b[31mAda!\nBye.\n"
