"""The calls of a journal, which an entry sends to the workflow of its task, and the answers."""

from __future__ import annotations

from dataclasses import dataclass

from craftcore.activities.model import Activity
from craftcore.temporal.workflow.messages import TaskStart

LEASE_LOST, NOT_FOUND, STATE_REFUSED = "LEASE_LOST", "NOT_FOUND", "STATE_REFUSED"
"""The names of errors that a workflow answers with."""


@dataclass(frozen=True, kw_only=True)
class Intent:
    """An intent, as `NewIntent`. `again_calls`: the calls of what is in doubt, when its policy has it called again."""

    key: str
    action: str
    policy: str
    args_hash: str
    request_json: str | None
    ends_at: float
    again_calls: int | None = None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The outcome of a call, as `CallOutcome`."""

    status: str
    reason: str
    result_json: str | None = None
    result_unstored: str | None = None
    provider_ref: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    may_retry: bool = False


@dataclass(frozen=True, kw_only=True)
class JournalCall:
    """One call of a journal. `kind` is its name; which fields it has, depends on that."""

    kind: str
    event_type: str = ""
    text: str = ""
    memo: str | None = None
    key: str = ""
    calls: int = 0
    intent: Intent | None = None
    outcome: Outcome | None = None
    decision: str = ""
    by: str = ""
    reference: str | None = None
    workflow_id: str = ""
    is_keyed_forever: bool = False
    start: TaskStart | None = None
    event: str = ""
    payload_json: str = ""
    agents: list[str] | None = None


@dataclass(frozen=True, kw_only=True)
class JournalAnswer:
    """The answer to a call. `error`: the code of what is raised. `is_begun`: the activity is to be called now."""

    error: str | None = None
    message: str = ""
    activity: Activity | None = None
    is_begun: bool = False
    task_id: str = ""
    created: bool = False
    is_late: bool = False
    """The call was done, and that was decided otherwise meanwhile, or it was called again."""
    rolls_over: bool = False
    """The run is at its limit: the turn is to be suspended, and is entered again in the next run."""


@dataclass(frozen=True, kw_only=True)
class JournalBatch:
    """The calls of one entry that are recorded at once."""

    token: int
    calls: list[JournalCall]
