"""The tables of docs/explanation/irreversible-actions.md on a cluster: effects, second calls and questions of each
cell.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import anyio
import pytest
from temporalio.client import Client, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.service import RPCError

from craftcore.activities.model import Decision
from craftcore.errors import CraftcoreError
from craftcore.temporal.settings import TemporalSettings
from tests.support.processes import PATIENCE
from tests.temporal.doubt_app import WHERE, DoubtCell
from tests.temporal.task_client import TaskClient
from tests.temporal.worker_processes import ROOT, Workers, lines

pytestmark = pytest.mark.anyio
DOCUMENT = ROOT / "docs" / "explanation" / "irreversible-actions.md"
HEADINGS = {
    "crash": "### The process is killed",
    "timeout": "### The call, or around it",
    "cancel": "### A person cancels",
    "reset": "### The connection is reset",
}
ROWS = (
    ("ask", "does not"),
    ("resend", "dedupes"),
    ("resend", "beyond its window"),
    ("reconcile", "reconcilable"),
    ("reconcile", "reconcilable that cannot tell"),
    ("assume_done", "does not"),
)
PLACES = {
    "crash": WHERE,
    "timeout": ("called", "half", "effect"),
    "cancel": ("before", "called", "half", "effect", "after"),
    "reset": WHERE,
}
"""The places of faults in real time. A timeout between an answer and its record cannot be placed."""


class Cell(NamedTuple):
    """A cell of the tables."""

    policy: str
    provider: str
    how: str
    where: str

    @property
    def expected(self) -> str:
        """Return the text of the page."""
        _, _, rest = DOCUMENT.read_text().partition(HEADINGS[self.how])
        rows = [line.strip("| \n").split(" | ") for line in rest.partition("\n### ")[0].splitlines() if "|" in line]
        policy = f"`{self.policy.upper().replace(' ', '_')}`"
        (row,) = [row for row in rows if row[0] == policy and self.provider in row[1].split(", ")]
        return row[2 + WHERE.index(self.where)]


CELLS = [
    Cell(*row, how, where)
    for how, places in PLACES.items()
    for where in places
    for row in ROWS
    if "beyond" not in row[1] or how in ("crash", "cancel")  # other faults do not wait for the end of the window
]
SAMPLE = [
    Cell("ask", "does not", "crash", "reply"),
    Cell("resend", "dedupes", "crash", "effect"),
    Cell("ask", "does not", "cancel", "effect"),
]


async def outcome_of(cell: Cell, cluster: TemporalSettings, folder: Path) -> str:
    """Run a cell to its end, with true answers of a person. Return the outcome in the words of the page."""
    folder.mkdir()
    settings = replace(cluster, task_queue=folder.name, heartbeat_timeout=1.0, sticky_timeout=1.0)
    client = TaskClient(await Client.connect(cluster.address), DoubtCell(folder, *cell).app, settings)
    workers = Workers("tests.temporal.doubt_app", [cluster.address, *cell], folder, count=1)
    answers: list[str] = []
    try:
        task = await client.emit("single")
        async with anyio.create_task_group() as group:
            group.start_soon(answer_all, client, task, folder, workers, answers)
            await client.result(task)
            group.cancel_scope.cancel()
        acts = (await client.view(task)).activities
    finally:
        workers.close()
    calls = acts[0].calls if acts else 0
    again = ", sent again" if calls > 1 else ""
    if answers:
        what = f": asked, {answers[0]}{again}"
    elif looks := lines(folder / "looks"):
        what = f": the provider says {looks[-1]}{again}"
    elif again:
        what = ": sent again"
    else:
        what = ": taken as done" if acts and acts[0].decision == "happened" else ""
    return f"{len(lines(folder / 'effects'))}{what}"


async def answer_all(client: TaskClient, task: str, folder: Path, workers: Workers, answers: list[str]) -> None:
    """Replace killed workers, and decide doubts: by their question, or after the end of the task."""
    while True:
        workers.replace_dead()
        refusals = suppress(CraftcoreError, RPCError, WorkflowUpdateRPCTimeoutOrCancelledError)
        with refusals, anyio.move_on_after(2, shield=True):  # a decision is recorded also if the task then ends
            view = await client.view(task)
            happened = bool(lines(folder / "effects"))
            decision, reference = ("happened", "seen") if happened else ("resend", None)
            if view.questions:
                await client.answer(task, view.questions[0].id, decision, by="ada", reference=reference)
                answers.append("yes" if happened else "no")
            elif view.status == "CANCELLED" and any(one.status == "UNKNOWN" and one.is_open for one in view.activities):
                await client.decide(task, view.activities[0].key, Decision(decision), by="ada", reference=reference)
                answers.append("yes" if happened else "no")
        await anyio.sleep(0.1)


async def compare(cells: list[Cell], cluster: TemporalSettings, folder: Path, *, at_once: int) -> dict[Cell, str]:
    """Return the outcomes that differ from the page."""
    outcome: dict[Cell, str] = {}
    limit = anyio.Semaphore(at_once)

    async def run(cell: Cell) -> None:
        async with limit:
            with anyio.fail_after(PATIENCE):
                name = re.sub(r"\W+", "-", "-".join(cell))
                outcome[cell] = await outcome_of(cell, cluster, folder / name)

    async with anyio.create_task_group() as group:
        for cell in cells:
            group.start_soon(run, cell)
    assert len(outcome) == len(cells)
    return {cell: outcome for cell, outcome in outcome.items() if outcome != cell.expected}


@pytest.mark.cluster
async def test_sample_of_the_table_holds_on_a_cluster(cluster, tmp_path):
    assert await compare(SAMPLE, cluster, tmp_path, at_once=4) == {}


@pytest.mark.campaign
async def test_tables_hold_on_a_cluster(cluster, tmp_path):
    assert await compare(CELLS, cluster, tmp_path, at_once=4) == {}
