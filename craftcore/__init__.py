"""craftcore: durable triggers and tasks for agents and background services, on one SQLite file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from craftcore.actions.llm.model_router import LLMRouter
    from craftcore.activities.model import OnUnknown
    from craftcore.app import App
    from craftcore.async_producer import AsyncProducer
    from craftcore.config import Config
    from craftcore.engine.turn.context import TaskContext, current
    from craftcore.engine.turn.emit import Child
    from craftcore.engine.turn.stopped_turn import StoppedTurn
    from craftcore.engine.turn.stream import Stream
    from craftcore.engine.turn.task_events import TaskEvent
    from craftcore.engine.turn.turn_history import History
    from craftcore.error_codes import ErrorCode
    from craftcore.errors import (
        ActivityUnknown,
        CannotCreate,
        ChildFailed,
        ClusterUnavailable,
        ConfigInvalid,
        CraftcoreError,
        DaemonRunning,
        DatabaseInvalid,
        DuplicateTrigger,
        EngineCrashed,
        FilterInvalid,
        IdempotencyConflict,
        InvalidInput,
        KeyRequired,
        LeaseLost,
        NotFound,
        NotReplayable,
        OutcomeUnknown,
        PayloadTooLarge,
        PermissionRefused,
        ReplayHashMismatch,
        RowInvalid,
        ScheduleInvalid,
        StateRefused,
        StepConflict,
        StillWaiting,
        StorageBusy,
        StorageError,
        StorageFull,
        TransactionTimeout,
        UnknownWorkflow,
        WorkerDied,
        WorkFailed,
        WriterDied,
    )
    from craftcore.executions.model import Strategy
    from craftcore.executions.replay import ReplayEntry, ReplayResult
    from craftcore.executions.trigger_view import TriggerView
    from craftcore.notifications.model import Notification
    from craftcore.outcome_exceptions import Fail, NoEffect, Retry, Snooze
    from craftcore.producer import Producer
    from craftcore.registry.action import Action
    from craftcore.registry.call import Call
    from craftcore.registry.router import LiveSession, Route, RoutedTrigger, Router, RoutingContext
    from craftcore.registry.workflow import Rate
    from craftcore.replay_engine import ReplayEngine
    from craftcore.results.handle import BlockingHandle, Handle
    from craftcore.retention.model import Removed
    from craftcore.schedules.calls import BlockingSchedules, Schedules
    from craftcore.schedules.firing import FiringResult
    from craftcore.schedules.model import CatchUp, Occurrence, Overlap, Schedule
    from craftcore.tasks.alternatives import Ask, Event, First, Timer
    from craftcore.tasks.model import Question, Resume, Task
    from craftcore.tasks.outcomes import Continue, Done
    from craftcore.tasks.session_message import SessionMessage
    from craftcore.tasks.stream_chunks import StreamChunk
    from craftcore.tasks.work_store import WorkUpdate
    from craftcore.temporal.temporal_producer import TemporalProducer
    from craftcore.triggers.backoff import RetryPolicy
    from craftcore.triggers.model import DedupScope, Emitted, Trigger, TriggerSource, TriggerSpec
    from craftcore.triggers.sources import living_ui_key, memory_key, onboarding_key, proactive_key

_NAMES = (
    ("craftcore.actions.llm.model_router", "LLMRouter"),
    ("craftcore.activities.model", "OnUnknown"),
    ("craftcore.app", "App"),
    ("craftcore.async_producer", "AsyncProducer"),
    ("craftcore.config", "Config"),
    ("craftcore.engine.turn.context", "TaskContext current"),
    ("craftcore.engine.turn.emit", "Child"),
    ("craftcore.engine.turn.stream", "Stream"),
    ("craftcore.engine.turn.task_events", "TaskEvent"),
    ("craftcore.engine.turn.stopped_turn", "StoppedTurn"),
    ("craftcore.engine.turn.turn_history", "History"),
    ("craftcore.error_codes", "ErrorCode"),
    ("craftcore.errors", "ActivityUnknown CannotCreate ChildFailed ClusterUnavailable ConfigInvalid CraftcoreError"),
    ("craftcore.errors", "DaemonRunning DatabaseInvalid DuplicateTrigger EngineCrashed FilterInvalid"),
    ("craftcore.errors", "IdempotencyConflict InvalidInput KeyRequired LeaseLost NotFound NotReplayable"),
    ("craftcore.errors", "OutcomeUnknown PayloadTooLarge PermissionRefused ReplayHashMismatch RowInvalid"),
    ("craftcore.errors", "ScheduleInvalid StateRefused StepConflict StillWaiting StorageBusy StorageError"),
    ("craftcore.errors", "StorageFull TransactionTimeout UnknownWorkflow WorkFailed WorkerDied WriterDied"),
    ("craftcore.executions.model", "Strategy"),
    ("craftcore.executions.replay", "ReplayEntry ReplayResult"),
    ("craftcore.executions.trigger_view", "TriggerView"),
    ("craftcore.notifications.model", "Notification"),
    ("craftcore.outcome_exceptions", "Fail NoEffect Retry Snooze"),
    ("craftcore.producer", "Producer"),
    ("craftcore.registry.action", "Action"),
    ("craftcore.registry.call", "Call"),
    ("craftcore.registry.router", "LiveSession Route RoutedTrigger Router RoutingContext"),
    ("craftcore.registry.workflow", "Rate"),
    ("craftcore.replay_engine", "ReplayEngine"),
    ("craftcore.results.handle", "BlockingHandle Handle"),
    ("craftcore.retention.model", "Removed"),
    ("craftcore.schedules.calls", "BlockingSchedules Schedules"),
    ("craftcore.schedules.firing", "FiringResult"),
    ("craftcore.schedules.model", "CatchUp Occurrence Overlap Schedule"),
    ("craftcore.tasks.alternatives", "Ask Event First Timer"),
    ("craftcore.tasks.model", "Question Resume Task"),
    ("craftcore.tasks.outcomes", "Continue Done"),
    ("craftcore.tasks.session_message", "SessionMessage"),
    ("craftcore.tasks.stream_chunks", "StreamChunk"),
    ("craftcore.tasks.work_store", "WorkUpdate"),
    ("craftcore.temporal.temporal_producer", "TemporalProducer"),
    ("craftcore.triggers.backoff", "RetryPolicy"),
    ("craftcore.triggers.model", "DedupScope Emitted Trigger TriggerSource TriggerSpec"),
    ("craftcore.triggers.sources", "living_ui_key memory_key onboarding_key proactive_key"),
)
"""Modules and their public names."""

_HOMES = {name: module for module, names in _NAMES for name in names.split()}

__all__ = [
    "Action", "ActivityUnknown", "App", "Ask", "AsyncProducer", "BlockingHandle", "BlockingSchedules", "Call",
    "CannotCreate", "CatchUp", "Child", "ChildFailed", "ClusterUnavailable", "Config", "ConfigInvalid", "Continue",
    "CraftcoreError", "DaemonRunning", "DatabaseInvalid", "DedupScope", "Done", "DuplicateTrigger", "Emitted",
    "EngineCrashed", "ErrorCode", "Event", "Fail", "FilterInvalid", "FiringResult", "First", "Handle", "History",
    "IdempotencyConflict", "InvalidInput", "KeyRequired", "LLMRouter", "LeaseLost", "LiveSession", "NoEffect",
    "NotFound", "NotReplayable", "Notification", "Occurrence", "OnUnknown", "OutcomeUnknown", "Overlap",
    "PayloadTooLarge", "PermissionRefused", "Producer", "Question", "Rate", "Removed", "ReplayEngine", "ReplayEntry",
    "ReplayHashMismatch", "ReplayResult", "Resume", "Retry", "RetryPolicy", "Route", "RoutedTrigger", "Router",
    "RoutingContext", "RowInvalid", "Schedule", "ScheduleInvalid", "Schedules", "SessionMessage", "Snooze",
    "StateRefused", "StepConflict", "StillWaiting", "StoppedTurn", "StorageBusy", "StorageError", "StorageFull",
    "Strategy", "Stream", "StreamChunk", "Task", "TaskContext", "TaskEvent", "TemporalProducer", "Timer",
    "TransactionTimeout", "Trigger", "TriggerSource", "TriggerSpec", "TriggerView", "UnknownWorkflow", "WorkFailed",
    "WorkUpdate", "WorkerDied", "WriterDied", "current", "living_ui_key", "memory_key", "onboarding_key",
    "proactive_key",
]  # fmt: skip


def __dir__() -> list[str]:
    return [*globals(), *__all__]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: a reading command must not pay for the engine."""
    if name not in _HOMES:
        raise AttributeError(f"module 'craftcore' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
