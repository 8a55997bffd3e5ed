"""The live tasks that the app of this engine does not fit: judged once, at its start. Their turns are not entered.

An app does not fit a task when the workflow of the next turn is not declared, or does not take the payload or state.
The same holds when the workflow is not a task any more. It also holds when the turn has called an irreversible action
that is not declared: entered again, the turn would fail or repeat the action.

The app cannot change while it runs, but for a workflow that is declared late. So a trigger that is to start is judged
again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence

import msgspec

from craftcore.errors import InvalidInput, UnreadableRow
from craftcore.log import get_logger
from craftcore.registry.registry import Registry
from craftcore.registry.workflow import Workflow
from craftcore.serialization.decode import decode
from craftcore.serialization.untrusted import MESSAGE_LIMIT, message_of, truncate_text
from craftcore.storage.transaction import Reader, Transaction
from craftcore.tasks.hold_store import HoldStore, LiveTask
from craftcore.tasks.holds import Holds, task_advanced_by
from craftcore.tasks.store import agents_of
from craftcore.triggers.model import Claim

log = get_logger(__name__)

NAMED_MAX = 20
"""How many held tasks a start names in its log."""


def misfits(reader: Reader, app: Registry) -> dict[str, str]:
    """Return every live task that the app does not fit, and what does not."""
    reasons: dict[str, str] = {}
    for task in HoldStore().list_live(reader):
        if (wrong := misfit(task, app.workflows, app.actions)) is not None:
            reasons[task.id.decode(errors="backslashreplace")] = wrong
    return reasons


class HeldTasks:
    """For one engine. False when nothing is held, as almost always: then a start asks for nothing."""

    def __init__(self, app: Registry, holds: Holds) -> None:
        self._app = app
        self._holds = holds
        self._store = HoldStore()
        self._reasons: dict[str, str] = {}
        self._released: list[str] = []

    def __bool__(self) -> bool:
        return bool(self._reasons)

    def judge(self, tx: Transaction) -> None:
        """Hold what does not fit, release what does; in the commit of the boot, after the resume contract."""
        self._reasons = misfits(tx, self._app)
        self._released = self._holds.hold_misfits(tx, self._reasons)

    def say(self) -> None:
        """Name them in the log."""
        for task_id, reason in list(self._reasons.items())[:NAMED_MAX]:
            log.warning("task.held", task=task_id, reason=reason)
        if self._reasons:
            kinds = Counter(self._reasons.values())
            advice = "start the code that they fit, or decide: craftcore task list --held, task retry, task cancel"
            log.warning("tasks.held", count=len(self._reasons), reasons=dict(kinds.most_common(5)), advice=advice)
        if self._released:
            log.info("tasks.released", count=len(self._released), reason="the code fits again")

    def select_startable(self, tx: Transaction, claims: Sequence[Claim]) -> list[Claim]:
        """Return the claims that may be started; those of a held task are put off."""
        return [claim for claim in claims if not self._put_off(tx, claim)]

    def _put_off(self, tx: Transaction, claim: Claim) -> bool:
        task_id = task_advanced_by(claim)
        if task_id is None or task_id not in self._reasons:
            return False
        if not self._store.is_held(tx, task_id):
            return False  # a person lets it try
        task = self._store.get_live(tx, task_id)
        reason = None if task is None else misfit(task, self._app.workflows, self._app.actions)
        if reason is None:
            self._holds.release(tx, task_id)
            return False
        return self._holds.put_off(tx, claim, task_id, reason)


def misfit(task: LiveTask, workflows: Mapping[str, Workflow], actions: Container[str]) -> str | None:
    """Return what the code does not fit. None when it fits, and for a damaged row, which is found when it runs."""
    try:
        return _payload_misfit(task, workflows, actions)
    except (ValueError, RecursionError, msgspec.DecodeError):  # NoModel and text that is not UTF-8 are ValueErrors, too
        return None


def _payload_misfit(task: LiveTask, workflows: Mapping[str, Workflow], actions: Container[str]) -> str | None:
    name = task.workflow.decode()
    declared = workflows.get(name)
    tried: tuple[str, ...] = (name,)
    if task.agents is not None:
        tried = agents_of(task.agents.decode())
    elif declared is not None:
        tried = declared.agents or tried
    for agent in tried:
        if agent not in workflows:
            return f"workflow {agent} is not declared"
    goes_on = tried[0] if task.agent is None else task.agent.decode()
    if goes_on not in tried:
        raise UnreadableRow(f"agent {goes_on!r:.80} is not one of {', '.join(tried)}")
    workflow = workflows[goes_on]
    if task.payload is not None:
        payload = task.payload.decode()
        if (wrong := _payload_refusal(workflow, payload)) is not None:
            return truncate_text(f"the payload does not fit {workflow.name}: {wrong}", MESSAGE_LIMIT)
        if task.used_ctx and not any(_is_task(workflows[agent], payload) for agent in tried):
            return f"{workflow.name} takes no ctx with this payload, and the task has begun with one"
    state = task.state.decode()
    if workflow.takes_context and state != "null":
        msgspec.json.decode(state)  # raises for a damaged one
        try:
            decode(state, workflow.state_type, "state")
        except InvalidInput as error:
            return truncate_text(f"the state does not fit {workflow.name}: {error.message}", MESSAGE_LIMIT)
    called = [] if task.actions is None else task.actions.decode().split(",")
    gone = sorted(action for action in called if action not in actions)
    return f"its turn has called action {gone[0]}, which is not declared" if gone else None


def _payload_refusal(workflow: Workflow, payload: str) -> str | None:
    """Return why a workflow does not take this payload; None when it does. Raises msgspec.DecodeError for text that is
    not JSON."""
    try:
        workflow.arguments(payload)
    except msgspec.ValidationError as error:
        return str(error)
    except msgspec.DecodeError:
        raise
    except BaseException as error:  # the author's own types convert themselves, and raise what they like
        return message_of(error)
    return None


def _is_task(workflow: Workflow, payload: str) -> bool:
    """Return whether it makes a task of this payload. Also where the rule that says so fails: the turn fails then."""
    try:
        return workflow.is_task(payload)
    except Exception:
        return True
