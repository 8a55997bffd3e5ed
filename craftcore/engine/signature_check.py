"""The check that the running code can continue a live task. Pure.

It cannot when the workflow of the next turn is not declared, does not take the payload or state, or is not a task any
more. It cannot either when the turn has called an irreversible action that is not declared: entered again, it would
fail or repeat the action.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

import msgspec

from craftcore.errors import InvalidInput, UnreadableRow
from craftcore.registry.workflow import Workflow
from craftcore.serialization.decode import decode
from craftcore.serialization.untrusted import MESSAGE_LIMIT, message_of, truncate_text
from craftcore.tasks.hold_store import LiveTask
from craftcore.tasks.store import agents_of


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
    """Return whether it makes a task of this payload. Also where the rule that says so fails: the turn will tell."""
    try:
        return workflow.is_task(payload)
    except Exception:
        return True
