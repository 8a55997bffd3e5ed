"""craftcore: durable triggers and tasks for agents and background services, on one SQLite file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from craftcore.activities.model import OnUnknown
    from craftcore.app import App
    from craftcore.async_producer import AsyncProducer
    from craftcore.engine.turn.context import TaskContext
    from craftcore.engine.turn.emit import Child
    from craftcore.engine.turn.task_events import TaskEvent
    from craftcore.error_codes import ErrorCode
    from craftcore.errors import (
        ActivityUnknown,
        ChildFailed,
        CraftcoreError,
        IdempotencyConflict,
        InvalidInput,
        NotFound,
        NotReplayable,
        ReplayHashMismatch,
        StateRefused,
        StillWaiting,
        WorkFailed,
    )
    from craftcore.executions.model import Strategy
    from craftcore.executions.replay import ReplayEntry, ReplayResult
    from craftcore.executions.trigger_view import TriggerView
    from craftcore.outcome_exceptions import Fail, NoEffect, Retry, Snooze
    from craftcore.producer import Producer
    from craftcore.registry.action import Action
    from craftcore.registry.call import Call
    from craftcore.registry.router import LiveSession, Route, RoutedTrigger, Router, RoutingContext
    from craftcore.registry.workflow import Rate
    from craftcore.replay_engine import ReplayEngine
    from craftcore.results.handle import BlockingHandle, Handle
    from craftcore.schedules.calls import BlockingSchedules, Schedules
    from craftcore.schedules.model import CatchUp, Overlap, Schedule
    from craftcore.tasks.model import Resume
    from craftcore.tasks.outcomes import Continue, Done
    from craftcore.triggers.backoff import RetryPolicy
    from craftcore.triggers.model import DedupScope, Emitted, TriggerSource, TriggerSpec
    from craftcore.triggers.sources import living_ui_key, proactive_key

_HOMES = {
    "Action": "craftcore.registry.action",
    "ActivityUnknown": "craftcore.errors",
    "App": "craftcore.app",
    "AsyncProducer": "craftcore.async_producer",
    "BlockingHandle": "craftcore.results.handle",
    "BlockingSchedules": "craftcore.schedules.calls",
    "Call": "craftcore.registry.call",
    "CatchUp": "craftcore.schedules.model",
    "Child": "craftcore.engine.turn.emit",
    "ChildFailed": "craftcore.errors",
    "Continue": "craftcore.tasks.outcomes",
    "CraftcoreError": "craftcore.errors",
    "DedupScope": "craftcore.triggers.model",
    "Done": "craftcore.tasks.outcomes",
    "Emitted": "craftcore.triggers.model",
    "ErrorCode": "craftcore.error_codes",
    "Fail": "craftcore.outcome_exceptions",
    "Handle": "craftcore.results.handle",
    "IdempotencyConflict": "craftcore.errors",
    "InvalidInput": "craftcore.errors",
    "LiveSession": "craftcore.registry.router",
    "NoEffect": "craftcore.outcome_exceptions",
    "NotFound": "craftcore.errors",
    "NotReplayable": "craftcore.errors",
    "OnUnknown": "craftcore.activities.model",
    "Overlap": "craftcore.schedules.model",
    "Producer": "craftcore.producer",
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
    "Schedule": "craftcore.schedules.model",
    "Schedules": "craftcore.schedules.calls",
    "Snooze": "craftcore.outcome_exceptions",
    "StateRefused": "craftcore.errors",
    "StillWaiting": "craftcore.errors",
    "Strategy": "craftcore.executions.model",
    "TaskContext": "craftcore.engine.turn.context",
    "TaskEvent": "craftcore.engine.turn.task_events",
    "TriggerSource": "craftcore.triggers.model",
    "TriggerSpec": "craftcore.triggers.model",
    "TriggerView": "craftcore.executions.trigger_view",
    "WorkFailed": "craftcore.errors",
    "living_ui_key": "craftcore.triggers.sources",
    "proactive_key": "craftcore.triggers.sources",
}

__all__ = [
    "Action",
    "ActivityUnknown",
    "App",
    "AsyncProducer",
    "BlockingHandle",
    "BlockingSchedules",
    "Call",
    "CatchUp",
    "Child",
    "ChildFailed",
    "Continue",
    "CraftcoreError",
    "DedupScope",
    "Done",
    "Emitted",
    "ErrorCode",
    "Fail",
    "Handle",
    "IdempotencyConflict",
    "InvalidInput",
    "LiveSession",
    "NoEffect",
    "NotFound",
    "NotReplayable",
    "OnUnknown",
    "Overlap",
    "Producer",
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
    "Schedule",
    "Schedules",
    "Snooze",
    "StateRefused",
    "StillWaiting",
    "Strategy",
    "TaskContext",
    "TaskEvent",
    "TriggerSource",
    "TriggerSpec",
    "TriggerView",
    "WorkFailed",
    "living_ui_key",
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
