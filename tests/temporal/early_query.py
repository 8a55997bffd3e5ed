"""A workflow that asks a question after an activity, and a worker that is killed before the question.

python -m tests.temporal.early_query ADDRESS TOKEN_FILE [CACHED_WORKFLOWS]
"""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from pathlib import Path

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker, WorkflowRunner

QUEUE = "early"
STICKY = timedelta(seconds=7)
"""The wait of a workflow task for the former worker of its workflow. A query goes to another worker after 5 s."""


@workflow.defn(name="asking")
class AskingWorkflow:
    """A workflow that asks after its activity, and continues after the answer."""

    def __init__(self) -> None:
        self._is_open = self._is_answered = False

    @workflow.run
    async def run(self) -> None:
        """Run the activity, ask, and end with the answer."""
        await workflow.execute_activity("work", start_to_close_timeout=timedelta(hours=1))
        self._is_open = True
        workflow.upsert_memo({"open": True})
        await workflow.wait_condition(lambda: self._is_answered)

    @workflow.query(name="is_open")
    def read_open(self) -> bool:
        """Return whether the question is open."""
        return self._is_open

    @workflow.update
    def answer(self) -> None:
        """Answer the question."""
        self._is_answered = True

    @answer.validator
    def _refuse_early(self) -> None:
        if not self._is_open:
            raise ValueError("the question is not open")


def make_worker(client: Client, runner: WorkflowRunner, token_file: Path, cached: int = 1000) -> Worker:
    """Return a worker of the workflow. It writes the token of the activity to the file; the test ends the activity."""

    @activity.defn(name="work")
    async def work() -> None:
        token_file.write_bytes(activity.info().task_token)
        activity.raise_complete_async()

    return Worker(
        client,
        task_queue=QUEUE,
        workflows=[AskingWorkflow],
        activities=[work],
        workflow_runner=runner,
        sticky_queue_schedule_to_start_timeout=STICKY,
        max_cached_workflows=cached,
    )


async def main(address: str, token_file: str, cached: str = "1000") -> None:
    """Work until the process is killed."""
    client = await Client.connect(address)
    async with make_worker(client, UnsandboxedWorkflowRunner(), Path(token_file), int(cached)):
        await asyncio.sleep(600)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
