"""Waits for the state of a task: each query asks its worker, so there is one query for each change of its history."""

from __future__ import annotations

from collections.abc import Callable

from craftcore.temporal.ids import workflow_id_of_task
from craftcore.temporal.workflow.messages import OpenQuestion, TaskView
from tests.temporal.task_client import TaskClient


async def see(client: TaskClient, task: str, condition: Callable[[TaskView], object]) -> TaskView:
    """Return the task once the condition is true."""
    handle = client.connection.get_workflow_handle(workflow_id_of_task(task))
    while True:
        pages = handle.fetch_history_events(wait_new_event=True)
        is_first = True
        while is_first or pages.next_page_token:
            is_first = False
            await pages.fetch_next_page()
            view: TaskView = await client.view(task)
            if condition(view):
                return view


async def see_waiting(client: TaskClient, task: str) -> None:
    """Return once a task waits."""
    await see(client, task, lambda view: view.status == "WAITING")


async def see_question(client: TaskClient, task: str) -> OpenQuestion:
    """Return the question of a task once it is open."""
    return (await see(client, task, lambda view: view.questions)).questions[0]
