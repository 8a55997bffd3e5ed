"""The calls of an App in a process where another process runs its engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from craftcore.client.async_producer_backend import AsyncProducerBackend
from craftcore.config import Config
from craftcore.tasks.work_store import WorkResult
from craftcore.triggers.model import NewTrigger, TriggerSpec


class AppClientBackend(AsyncProducerBackend):
    """The calls of an AsyncProducer, with what an App knows of its workflows.

    check        raises InvalidInput for a payload that does not fit the workflow, if the app declares it
    result_type  returns the type of the result of a workflow; None: plain JSON values
    """

    holder = "the app"

    def __init__(
        self, path: Path, config: Config, check: Callable[[NewTrigger], None], result_type: Callable[[str | None], Any]
    ) -> None:
        super().__init__(path, config)
        self._check = check
        self._result_type = result_type

    def accept(self, spec: TriggerSpec) -> NewTrigger:
        row = super().accept(spec)
        self._check(row)
        return row

    def choose_type(self, end: WorkResult, type: Any) -> Any:
        return self._result_type(end.workflow) if type is None else type
