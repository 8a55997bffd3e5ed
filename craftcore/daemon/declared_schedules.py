"""The schedules that code and configuration declare, checked against each other and against the app."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from craftcore.actions.process.command_run import COMMAND
from craftcore.config import Config
from craftcore.errors import ConfigInvalid, CraftcoreError
from craftcore.log import get_logger
from craftcore.registry.registry import Registry
from craftcore.schedules.declaration import DeclareResult
from craftcore.schedules.model import Origin, ScheduleSpec
from craftcore.schedules.service import ScheduleService

log = get_logger(__name__)

MARK_IT = "after a crash it may be done again: say irreversible=True, or irreversible=False where that does no harm"
"""The warning about an action whose name sounds irreversible."""


def declarations(app: Registry, config: Config, schedules: ScheduleService) -> dict[Origin, list[ScheduleSpec]]:
    """Return what is declared where. Raises ConfigInvalid with one line per mistake: an invalid expression or option,
    an unknown workflow, a payload that does not fit, or an id that is declared twice."""
    declared = {
        Origin.CODE: list(app.declared_schedules.values()),
        Origin.FILE: [_spec(table) for table in config.schedule],
    }
    mistakes: list[str] = []
    seen: set[str] = set()
    for origin, spec in ((origin, spec) for origin, specs in declared.items() for spec in specs):
        try:
            if spec.id in seen:
                raise ConfigInvalid("is declared twice")
            seen.add(spec.id)
            app.check(schedules.check(spec, origin))
        except CraftcoreError as error:
            mistakes.append(f"schedule {spec.id!s:.80}: {error.message}")
    if mistakes:
        raise ConfigInvalid("\n".join(mistakes))
    return declared


def say_declared(puts: Iterable[DeclareResult]) -> None:
    """Log what was declared and is not as it was."""
    for put in puts:
        if put.change != "unchanged":
            log.info(f"schedule.{put.change}", schedule=put.schedule.id, next_at=put.schedule.next_at)


def _spec(table: dict[str, Any]) -> ScheduleSpec:
    if "command" not in table:
        return ScheduleSpec(**table)
    named = {name: value for name, value in table.items() if name not in ("command", "irreversible")}
    payload = {"argv": table["command"]}
    if table.get("irreversible", False):
        payload["irreversible"] = True
    return ScheduleSpec(**named, workflow=COMMAND, payload=payload)
