"""The pictures of tasks whose daemons were killed: each event, wait and crash is drawn once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

from craftcore.config import Config
from craftcore.diagnostics.tasks.task_history import TaskHistory, read_task_history
from craftcore.services import Services
from craftcore.tasks.store import TaskStore
from craftcore.web.picture import Picture, make_picture
from craftcore.web.pictures.mark import MarkKind
from tests.support.processes import a_daemon, craftcore, until

APP = """
import asyncio
from craftcore import App, Ask, RetryPolicy

app = App("test")

async def read(number: int) -> int:
    await asyncio.sleep(0.05)
    return number

@app.action("publish", irreversible=True)
async def publish(call, text: str) -> str:
    await asyncio.sleep(0.4)
    return "p-1"

@app.workflow("report")
async def report(ctx) -> str:
    for number in range(12):
        await ctx.step("read", read, number, key=str(number))
    answer = await ctx.ask("Publish it?", options=["publish", "hold"])
    if answer == "publish":
        await ctx.act(publish, text="Tides")
    return answer
"""


def history_of(folder: Path, task_id: str, *, limit: int = 2_000) -> TaskHistory:
    with Services(folder / "agent.db", Config()).reading() as reader:
        task = TaskStore().get(reader, task_id)
        assert task is not None
        return read_task_history(reader, task, 2e9, daemon_runs=False, limit=limit)


def has_row(folder: Path, sql: str) -> bool:
    with Services(folder / "agent.db", Config()).reading() as reader:
        return bool(reader.fetch_value(sql))


def check_picture(history: TaskHistory, picture: Picture) -> None:
    drawn = Counter(mark.row for mark in picture.marks if mark.row.startswith("event"))
    assert drawn == {f"event {event.execution_id} {event.seq}": 1 for event in history.events}
    order = [mark.row for mark in picture.marks if mark.row.startswith("event")]
    assert order == [f"event {event.execution_id} {event.seq}" for event in history.events]
    assert not picture.was_clock_set_back


def test_kills_of_a_daemon_are_drawn_where_its_task_was_interrupted(tmp_path):
    (tmp_path / "report.py").write_text(APP)
    random = Random(14)
    with a_daemon(tmp_path, "report:app") as daemon:
        daemon.ready()
        task_id = craftcore(tmp_path, "emit", "report", "--json").json["id"]
        done = random.randint(2, 5)
        steps = f"SELECT count(*) >= {done} FROM event_rows WHERE type = 'STEP_COMPLETED'"
        until(lambda: has_row(tmp_path, steps))
        daemon.kill()
    with a_daemon(tmp_path, "report:app") as daemon:
        daemon.ready()
        until(lambda: has_row(tmp_path, "SELECT 1 FROM questions WHERE status = 'OPEN'"))
        daemon.kill()
    [question] = craftcore(tmp_path, "inbox", "list", "--json").json
    assert craftcore(tmp_path, "inbox", "answer", question["id"], "publish").code == 0
    with a_daemon(tmp_path, "report:app") as daemon:
        daemon.ready()
        until(lambda: has_row(tmp_path, "SELECT 1 FROM activity_log WHERE status = 'INTENT'"))
        daemon.kill()
    with a_daemon(tmp_path, "report:app") as daemon:
        daemon.ready()
        until(lambda: has_row(tmp_path, "SELECT 1 FROM questions WHERE status = 'OPEN' AND kind = 'activity'"))
        daemon.kill()

    history = history_of(tmp_path, task_id)
    picture = make_picture(history)

    check_picture(history, picture)
    crashes = [mark for mark in picture.marks if mark.kind is MarkKind.CRASH]
    assert [(mark.row, mark.attempt is not None) for mark in crashes] == [
        ("epoch 1", True),  # killed in its steps
        ("epoch 2", False),  # killed while a question was open
        ("epoch 3", True),  # killed while it published
        ("epoch 4", False),  # the last one; no daemon has started since
    ]
    starts = {start.epoch: start.started_at for start in history.starts}
    assert [mark.until for mark in crashes[:3]] == [starts[2], starts[3], starts[4]]
    unknown = next(mark for mark in picture.marks if mark.label == "publish UNKNOWN")
    assert unknown.moment >= crashes[2].until, "the next start records the crash"
    [answer] = [mark for mark in picture.marks if mark.kind is MarkKind.ANSWER]
    assert answer.label.endswith(": publish")
    waits = [mark for mark in picture.marks if mark.kind is MarkKind.WAIT]
    assert [mark.is_open for mark in waits] == [False, True]
    assert [row.title for row in picture.rows if row.title.startswith(("turn", "attempt"))][:2] == [
        "turn 1",
        "attempt 1",  # a crash after completed steps uses no attempt
    ]


def test_history_with_a_limit_has_the_newest_events_and_a_mark_for_more(tmp_path):
    (tmp_path / "report.py").write_text(APP)
    with a_daemon(tmp_path, "report:app") as daemon:
        daemon.ready()
        task_id = craftcore(tmp_path, "emit", "report", "--json").json["id"]
        until(lambda: has_row(tmp_path, "SELECT 1 FROM questions WHERE status = 'OPEN'"))

    whole, part = history_of(tmp_path, task_id), history_of(tmp_path, task_id, limit=5)

    assert (whole.has_more, part.has_more) == (False, True)
    assert part.events == whole.events[-5:]
    picture = make_picture(part)
    check_picture(part, picture)
    assert picture.has_more
    assert not any(mark.kind is MarkKind.TASK for mark in picture.marks), "the start of the task is not included"
