"""The declarations of an app on a cluster: each start of a worker brings them up to date, as a daemon's start does."""

from __future__ import annotations

import inspect
import os
from dataclasses import asdict, dataclass, replace

from craftcore.clock import SystemClock
from craftcore.config import Config
from craftcore.daemon.declared_schedules import declarations
from craftcore.errors import ConfigInvalid, CraftcoreError
from craftcore.registry.registry import Registry
from craftcore.schedules.declaration import Declarations
from craftcore.schedules.model import Origin, ScheduleSpec
from craftcore.schedules.recurrence.moment_text import read_moment
from craftcore.schedules.service import ScheduleService
from craftcore.schedules.transitions import spec_of
from craftcore.temporal.schedules.schedule_client import ScheduleClient
from craftcore.temporal.schedules.schedule_rules import refuse_beyond_cluster
from craftcore.temporal.workflow.schedule_messages import ScheduleCall
from craftcore.triggers.service import TriggerService


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncedSchedule:
    """The change by a declaration: added, changed, enabled, disabled, unchanged, older."""

    id: str
    change: str


def read_revision(app: Registry) -> float:
    """Return the revision of an app that was not given one: the newest time of the files of its workflows.

    0.0 for an app without files.
    """
    files = {inspect.getsourcefile(inspect.unwrap(workflow.fn)) for workflow in app.workflows.values()}
    return max((os.stat(file).st_mtime for file in files if file and os.path.exists(file)), default=0.0)


def read_declarations(app: Registry, config: Config, revision: float) -> dict[str, ScheduleCall]:
    """Return what is declared in code and settings, by the id of the schedule. Raises ConfigInvalid with one line per
    mistake."""
    clock = SystemClock()
    triggers = TriggerService(clock, read_moment, payload_max_bytes=config.triggers.payload_max_bytes)
    declared = declarations(app, config, ScheduleService(clock, triggers))
    rules, calls, mistakes = Declarations(clock, triggers), {}, []
    for origin, spec in ((origin, spec) for origin, specs in declared.items() for spec in specs):
        try:
            refuse_beyond_cluster(spec)
        except CraftcoreError as error:
            mistakes.append(f"schedule {spec.id!s:.80}: {error.message}")
            continue
        calls[spec.id] = ScheduleCall(
            kind="declare", spec=_make_plain_spec(rules, spec, origin), origin=origin, revision=revision
        )
    if mistakes:
        raise ConfigInvalid("\n".join(mistakes))
    return calls


async def declare_schedules(
    client: ScheduleClient,
    app: Registry,
    config: Config,
    task_queue: str,
    revision: float | None = None,
    *,
    by: str = "a worker",
    note: str = "its start",
) -> list[SyncedSchedule]:
    """Declare the schedules of an app, and disable those that it declares no longer.

    A declaration counts only when it is not older than what the cluster has. `revision` None: that of the files of the
    app. `by` and `note` are for the history. Raises ConfigInvalid, and StillWaiting where a change needs a worker and
    none answers.
    """
    revision = read_revision(app) if revision is None else revision
    declared = read_declarations(app, config, revision)
    calls = {id: replace(call, by=by, note=note) for id, call in declared.items()}
    known = await client.list_ids(task_queue)
    synced = [SyncedSchedule(id=id, change=await client.declare(id, call, task_queue)) for id, call in calls.items()]
    for id in known:
        if id not in calls:
            answer = await client.apply_call(id, ScheduleCall(kind="undeclare", revision=revision, by=by, note=note))
            if answer.change == "disabled":
                synced.append(SyncedSchedule(id=id, change="disabled"))
    return synced


def _make_plain_spec(rules: Declarations, spec: ScheduleSpec, origin: Origin) -> dict[str, object]:
    """Return the spec with moments and durations as numbers. When it comes is decided on the cluster."""
    now = SystemClock().now()
    return asdict(spec_of(rules.begin(rules.accept(spec), origin, None, now)))
