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
    from craftcore.engine.turn.task_events import TaskEvent
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
    from craftcore.schedules.calls import BlockingSchedules, Schedules
    from craftcore.schedules.firing import FiringResult
    from craftcore.schedules.model import CatchUp, Occurrence, Overlap, Schedule
    from craftcore.tasks.alternatives import Ask, Event, First, Timer
    from craftcore.tasks.model import Question, Resume, Task
    from craftcore.tasks.outcomes import Continue, Done
    from craftcore.tasks.work_store import WorkUpdate
    from craftcore.temporal.temporal_producer import TemporalProducer
    from craftcore.triggers.backoff import RetryPolicy
    from craftcore.triggers.model import DedupScope, Emitted, Trigger, TriggerSource, TriggerSpec
    from craftcore.triggers.sources import living_ui_key, memory_key, onboarding_key, proactive_key

_HOMES = {
    "Action": "craftcore.registry.action",
    "ActivityUnknown": "craftcore.errors",
    "App": "craftcore.app",
    "Ask": "craftcore.tasks.alternatives",
    "AsyncProducer": "craftcore.async_producer",
    "BlockingHandle": "craftcore.results.handle",
    "BlockingSchedules": "craftcore.schedules.calls",
    "Call": "craftcore.registry.call",
    "CannotCreate": "craftcore.errors",
    "CatchUp": "craftcore.schedules.model",
    "Child": "craftcore.engine.turn.emit",
    "ChildFailed": "craftcore.errors",
    "ClusterUnavailable": "craftcore.errors",
    "Config": "craftcore.config",
    "ConfigInvalid": "craftcore.errors",
    "Continue": "craftcore.tasks.outcomes",
    "CraftcoreError": "craftcore.errors",
    "DaemonRunning": "craftcore.errors",
    "DatabaseInvalid": "craftcore.errors",
    "DedupScope": "craftcore.triggers.model",
    "Done": "craftcore.tasks.outcomes",
    "DuplicateTrigger": "craftcore.errors",
    "Emitted": "craftcore.triggers.model",
    "EngineCrashed": "craftcore.errors",
    "ErrorCode": "craftcore.error_codes",
    "Event": "craftcore.tasks.alternatives",
    "Fail": "craftcore.outcome_exceptions",
    "FilterInvalid": "craftcore.errors",
    "FiringResult": "craftcore.schedules.firing",
    "First": "craftcore.tasks.alternatives",
    "Handle": "craftcore.results.handle",
    "IdempotencyConflict": "craftcore.errors",
    "InvalidInput": "craftcore.errors",
    "KeyRequired": "craftcore.errors",
    "LLMRouter": "craftcore.actions.llm.model_router",
    "LeaseLost": "craftcore.errors",
    "LiveSession": "craftcore.registry.router",
    "NoEffect": "craftcore.outcome_exceptions",
    "NotFound": "craftcore.errors",
    "NotReplayable": "craftcore.errors",
    "Notification": "craftcore.notifications.model",
    "Occurrence": "craftcore.schedules.model",
    "OnUnknown": "craftcore.activities.model",
    "OutcomeUnknown": "craftcore.errors",
    "Overlap": "craftcore.schedules.model",
    "PayloadTooLarge": "craftcore.errors",
    "PermissionRefused": "craftcore.errors",
    "Producer": "craftcore.producer",
    "Question": "craftcore.tasks.model",
    "Rate": "craftcore.registry.workflow",
    "ReplayEngine": "craftcore.replay_engine",
    "ReplayEntry": "craftcore.executions.replay",
    "ReplayHashMismatch": "craftcore.errors",
    "ReplayResult": "craftcore.executions.replay",
    "Resume": "craftcore.tasks.model",
    "Retry": "craftcore.outcome_exceptions",
    "RetryPolicy": "craftcore.triggers.backoff",
    "Route": "craftcore.registry.router",
    "RoutedTrigger": "craftcore.registry.router",
    "Router": "craftcore.registry.router",
    "RoutingContext": "craftcore.registry.router",
    "RowInvalid": "craftcore.errors",
    "Schedule": "craftcore.schedules.model",
    "ScheduleInvalid": "craftcore.errors",
    "Schedules": "craftcore.schedules.calls",
    "Snooze": "craftcore.outcome_exceptions",
    "StateRefused": "craftcore.errors",
    "StepConflict": "craftcore.errors",
    "StillWaiting": "craftcore.errors",
    "StorageBusy": "craftcore.errors",
    "StorageError": "craftcore.errors",
    "StorageFull": "craftcore.errors",
    "Strategy": "craftcore.executions.model",
    "Task": "craftcore.tasks.model",
    "TaskContext": "craftcore.engine.turn.context",
    "TaskEvent": "craftcore.engine.turn.task_events",
    "TemporalProducer": "craftcore.temporal.temporal_producer",
    "Timer": "craftcore.tasks.alternatives",
    "TransactionTimeout": "craftcore.errors",
    "Trigger": "craftcore.triggers.model",
    "TriggerSource": "craftcore.triggers.model",
    "TriggerSpec": "craftcore.triggers.model",
    "TriggerView": "craftcore.executions.trigger_view",
    "UnknownWorkflow": "craftcore.errors",
    "WorkFailed": "craftcore.errors",
    "WorkUpdate": "craftcore.tasks.work_store",
    "WorkerDied": "craftcore.errors",
    "WriterDied": "craftcore.errors",
    "current": "craftcore.engine.turn.context",
    "living_ui_key": "craftcore.triggers.sources",
    "memory_key": "craftcore.triggers.sources",
    "onboarding_key": "craftcore.triggers.sources",
    "proactive_key": "craftcore.triggers.sources",
}

__all__ = [
    "Action",
    "ActivityUnknown",
    "App",
    "Ask",
    "AsyncProducer",
    "BlockingHandle",
    "BlockingSchedules",
    "Call",
    "CannotCreate",
    "CatchUp",
    "Child",
    "ChildFailed",
    "ClusterUnavailable",
    "Config",
    "ConfigInvalid",
    "Continue",
    "CraftcoreError",
    "DaemonRunning",
    "DatabaseInvalid",
    "DedupScope",
    "Done",
    "DuplicateTrigger",
    "Emitted",
    "EngineCrashed",
    "ErrorCode",
    "Event",
    "Fail",
    "FilterInvalid",
    "FiringResult",
    "First",
    "Handle",
    "IdempotencyConflict",
    "InvalidInput",
    "KeyRequired",
    "LLMRouter",
    "LeaseLost",
    "LiveSession",
    "NoEffect",
    "NotFound",
    "NotReplayable",
    "Notification",
    "Occurrence",
    "OnUnknown",
    "OutcomeUnknown",
    "Overlap",
    "PayloadTooLarge",
    "PermissionRefused",
    "Producer",
    "Question",
    "Rate",
    "ReplayEngine",
    "ReplayEntry",
    "ReplayHashMismatch",
    "ReplayResult",
    "Resume",
    "Retry",
    "RetryPolicy",
    "Route",
    "RoutedTrigger",
    "Router",
    "RoutingContext",
    "RowInvalid",
    "Schedule",
    "ScheduleInvalid",
    "Schedules",
    "Snooze",
    "StateRefused",
    "StepConflict",
    "StillWaiting",
    "StorageBusy",
    "StorageError",
    "StorageFull",
    "Strategy",
    "Task",
    "TaskContext",
    "TaskEvent",
    "TemporalProducer",
    "Timer",
    "TransactionTimeout",
    "Trigger",
    "TriggerSource",
    "TriggerSpec",
    "TriggerView",
    "UnknownWorkflow",
    "WorkFailed",
    "WorkUpdate",
    "WorkerDied",
    "WriterDied",
    "current",
    "living_ui_key",
    "memory_key",
    "onboarding_key",
    "proactive_key",
]


def __dir__() -> list[str]:
    return [*globals(), *__all__]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: a reading command must not pay for the engine."""
    if name not in _HOMES:
        raise AttributeError(f"module 'craftcore' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
