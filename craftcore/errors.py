"""Everything that can go wrong, once.

The tree:

    CraftcoreError            code (craftcore/error_codes.py), message, details, retry_after
    ├── InvalidInput          refused before anything was written           exit 64
    │   ├── PayloadTooLarge   the payload is over its limit
    │   ├── UnknownWorkflow   no workflow of that name is declared
    │   ├── ScheduleInvalid   an expression, zone or option of a schedule cannot be used
    │   ├── FilterInvalid     a list cannot be narrowed by that value     exit 12
    │   ├── TransactionTimeout a transaction of user code held the file too long
    │   └── DuplicateTrigger  the dedup key is taken, and the caller asked for an error
    ├── ConfigInvalid         the configuration or the app cannot be used   exit 78
    ├── NotFound              no row of that id                             exit 10
    ├── StateRefused          the row is not in a state that allows it      exit 1
    ├── StillWaiting          the time to wait for it is over; it goes on   exit 75
    ├── WorkFailed            awaited work ended without a result           exit 4
    ├── LeaseLost             the claim belongs to a later attempt; nothing was written
    ├── StepConflict          a step's name was used before in this turn, or its arguments changed
    ├── KeyRequired           without a key, several activities cannot be distinguished
    ├── ChildFailed           a child task did not end well
    ├── IdempotencyConflict   a key of an irreversible action was used for something else
    ├── ActivityUnknown       the outcome of an irreversible action is unknown
    ├── WorkerDied            a worker process ended during a call
    ├── EngineCrashed         the engine ended without a request  exit 70
    ├── ClusterUnavailable    the Temporal cluster, or its workers, do not answer  exit 75
    ├── NotReplayable         a record has no response that can be given back  exit 11
    ├── ReplayHashMismatch    a record is of another envelope than the one given  exit 11
    └── StorageError          the database said no                          exit 74
        ├── StorageFull       the disk is full; nothing was written         exit 74
        ├── StorageBusy       another process held the file too long        exit 75
        ├── DaemonRunning     another daemon holds this database            exit 75
        ├── OutcomeUnknown    the commit failed half way: the write may or may not be on disk
        ├── DatabaseInvalid   corrupt, foreign, or newer than this program  exit 65
        ├── RowInvalid        a constraint of the schema refused the write  exit 65
        ├── WriterDied        an internal error ended the thread that writes  exit 70
        ├── CannotCreate      the directory or file cannot be made          exit 73
        └── PermissionRefused this user may not open it, or make it there  exit 77
"""

from __future__ import annotations

import re
from typing import Any

from craftcore.error_codes import ErrorCode as ErrorCode


class CraftcoreError(Exception):
    """Base of every error of craftcore. `str()` is one sentence for a person: what, where, and what to do.

    Raised by user code, it fails the attempt with its `code`, which decides about a retry: an `ErrorCode`, or a text of
    user code. `retry_after`: the least wait in seconds; None: none was asked for.
    """

    code: str = ErrorCode.VALIDATION_ERROR
    exit_code: int = 70
    retry_after: float | None = None

    def __init__(self, message: str, /, **details: Any) -> None:  # a detail may be called message, too
        super().__init__(message)
        self.message = message
        self.details = details

    @property
    def name(self) -> str:
        """The name of the error for programs: for NotFound it is NOT_FOUND."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", type(self).__name__).upper()


class InvalidInput(CraftcoreError):
    """The input is refused. Nothing was written."""

    exit_code = 64


class PayloadTooLarge(InvalidInput):
    """The payload is over its limit. Nothing was written."""

    code = ErrorCode.PAYLOAD_TOO_LARGE


class UnknownWorkflow(InvalidInput):
    """No workflow of that name is declared. Nothing was written."""

    code = ErrorCode.CAPABILITY_NOT_FOUND


class DuplicateTrigger(InvalidInput):
    """The id or dedup key is held by `details["id"]`, and the spec said `on_duplicate="error"`."""


class ScheduleInvalid(InvalidInput):
    """A schedule's expression, time zone or option cannot be used; the message names what can. Nothing was written."""

    code = ErrorCode.SCHEDULE_INVALID


class FilterInvalid(InvalidInput):
    """A list cannot be narrowed by that value; the message names those it can."""

    exit_code = 12


class TransactionTimeout(InvalidInput):
    """The function of a transaction held the file for longer than it may. Nothing was written; the same may do on a
    machine that is less busy."""

    code = ErrorCode.AGENT_TIMEOUT


class ConfigInvalid(CraftcoreError):
    """The configuration or the app cannot be used. The message lists every mistake, one a line."""

    exit_code = 78


class NotFound(CraftcoreError):
    """No row of that id."""

    exit_code = 10


class StateRefused(CraftcoreError):
    """The row is in a state that does not allow the move. Nothing was written."""

    exit_code = 1


class StillWaiting(CraftcoreError):
    """The time to wait for a trigger is over. The trigger goes on."""

    code, exit_code = ErrorCode.AGENT_TIMEOUT, 75


class WorkFailed(CraftcoreError):
    """Awaited work ended without a result: it FAILED, is DEAD, or was cancelled, superseded or stale.

    `code` is that of its failure: an `ErrorCode`, the text that the work gave to `Fail` or `Retry`, or AGENT_ERROR
    where none is on record. `details` has its `id`, `status` and `reason`, and the `code` as it is on record.
    """

    code: str = ErrorCode.AGENT_ERROR
    exit_code = 4


class LeaseLost(CraftcoreError):
    """The lease ran out and the trigger belongs to a later attempt. Nothing was written."""

    code = ErrorCode.LEASE_LOST


class StepConflict(CraftcoreError):
    """A step's name was used before in this turn, or it is completed with other arguments. Nothing was run."""

    code = ErrorCode.STEP_CONFLICT


class KeyRequired(CraftcoreError):
    """Several tasks of a turn do this, in no order: each needs a key. Nothing was run."""

    code = ErrorCode.KEY_REQUIRED


class ChildFailed(CraftcoreError):
    """A child task FAILED, was CANCELLED, or had not ended in time; `details` has its id, status, code and message.

    The outcome is on record: another try gets the same answer.
    """

    code = ErrorCode.CHILD_FAILED


class IdempotencyConflict(CraftcoreError):
    """The key of an irreversible action was used before, for another action or with other arguments. Nothing was sent.

    Arguments that differ at each entry of a turn (a moment, a random number, what a model wrote) do that: make them in
    a `ctx.step`.
    """

    code = ErrorCode.IDEMPOTENCY_CONFLICT


class ActivityUnknown(CraftcoreError):
    """An irreversible action was called, and its outcome is unknown; `details` has its `key`.

    Raised by `ctx.act` once a person gave it up. Before that the turn is suspended or tried again instead.
    """

    code = ErrorCode.ACTIVITY_UNKNOWN


class WorkerDied(CraftcoreError):
    """The worker process that ran a function ended, or could not be started. The function may have had effects."""

    code = ErrorCode.WORKER_DIED


class EngineCrashed(CraftcoreError):
    """The engine ended without being asked to: by an error of its own, or by code that ended its event loop.

    `details["running"]` has the ids of the triggers that ran. The next start counts a crash for each of them.
    """

    code = ErrorCode.INTERNAL_AGENT_ERROR


class NotReplayable(CraftcoreError):
    """A record has no response that can be given back; `details` has its `execution_id` and the `reason`, a word of
    `craftcore.executions.model.Reason`. Nothing was run."""

    code, exit_code = ErrorCode.NOT_REPLAYABLE, 11


class ReplayHashMismatch(CraftcoreError):
    """A record is of another envelope than the one given; `details` has its `execution_id`, and the hashes of both,
    `recorded` and `provided`. Nothing was run."""

    code, exit_code = ErrorCode.REPLAY_HASH_MISMATCH, 11


class StorageError(CraftcoreError):
    """The database or its disk refused."""

    exit_code = 74


class StorageFull(StorageError):
    """The disk, a quota or a file size is at its limit. Nothing was written. With space, the call works again."""

    code = ErrorCode.STORAGE_FULL


class StorageBusy(StorageError):
    """Another process held the write lock for longer than this door waits. Nothing was written."""

    code, exit_code = ErrorCode.AGENT_UNAVAILABLE, 75


class ClusterUnavailable(CraftcoreError):
    """The Temporal cluster, or a worker there, does not answer. The same call may work later."""

    code, exit_code = ErrorCode.AGENT_UNAVAILABLE, 75


class DaemonRunning(StorageError):
    """Another daemon holds this database; the message names its pid, host and start."""

    exit_code = 75


class OutcomeUnknown(StorageError):
    """The flush failed after the write began: it may or may not be on disk.

    `spec` is what was to be emitted, with its id; emitting it again ends as one row. None for other writes. `exit_code`
    says what failed: the disk, or a database that is corrupt.
    """

    def __init__(self, message: str, spec: Any = None, *, exit_code: int = 74, **details: Any) -> None:
        super().__init__(message, **details)
        self.spec = spec
        self.exit_code = exit_code

    def from_timeout(self, spec: Any) -> OutcomeUnknown:
        """Return the same, of what was to be emitted."""
        return OutcomeUnknown(self.message, spec, exit_code=self.exit_code, **self.details)


class DatabaseInvalid(StorageError):
    """Corrupt, not ours, or migrated by a newer program."""

    exit_code = 65


class RowInvalid(StorageError):
    """The written row, or one that it touches, contradicts the schema. Nothing was written."""

    exit_code = 65


class WriterDied(StorageError):
    """The thread that writes was ended by an error of craftcore itself. Nothing more is written before a restart."""

    exit_code = 70


class CannotCreate(StorageError):
    """The database or a file beside it cannot be created."""

    exit_code = 73


class PermissionRefused(StorageError):
    """This user may not open the file, or make it where it should be."""

    exit_code = 77


class UnreadableRow(ValueError):
    """A row that can be read and is not valid. A command reports it, the engine quarantines it."""
