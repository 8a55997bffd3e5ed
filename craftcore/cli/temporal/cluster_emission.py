"""The calls of `craftcore temporal emit`: start a task on a cluster, and wait for its end."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any

import click

from craftcore.cli.exit_codes import TRY_LATER, WORK_FAILED
from craftcore.cli.session import Session
from craftcore.cli.temporal.cluster_calls import call_cluster
from craftcore.cli.temporal.cluster_options import read_cluster_settings
from craftcore.clock import Clock, SystemClock
from craftcore.errors import InvalidInput
from craftcore.temporal.cluster_connection import Client
from craftcore.temporal.temporal_client import TemporalClient
from craftcore.temporal.workflow.messages import TaskEnd
from craftcore.triggers.model import Emitted, TriggerSpec


class ClusterEmission:
    """The calls to a cluster."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._settings = read_cluster_settings(session)
        self.clock: Clock = SystemClock()
        if not self._settings.task_queue:
            raise InvalidInput("nothing says which app the task is for: give --task-queue, the name of the app")

    def emit(self, spec: TriggerSpec) -> Emitted:
        return call_cluster(self._session, lambda client: self._tasks(client).emit_spec(spec))

    def wait(self, document: dict[str, Any], patience: float) -> int:
        async def look(client: Client) -> TaskEnd | None:
            try:
                result = self._tasks(client).result(document["id"])
                return await asyncio.wait_for(result, None if patience == math.inf else patience)
            except TimeoutError:
                return None

        end, out = call_cluster(self._session, look), self._session.out
        if end is not None:
            document |= {"status": end.status, "result": json.loads(end.result_json or "null"), "reason": end.reason}
        if self._session.json:
            out.document(document)
        elif end is not None and end.status == "DONE":
            click.echo(end.result_json or "null")
        if end is None:
            out.print_problem(f"task {document['id']} has not ended in time; it goes on")
            return TRY_LATER
        if end.status != "DONE":
            out.print_problem(f"task {document['id']} is {end.status}: {end.error_message or end.reason}")
            return WORK_FAILED
        return 0

    def _tasks(self, client: Client) -> TemporalClient:
        return TemporalClient(client, None, self._settings)
