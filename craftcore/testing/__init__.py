"""Tools for tests of craftcore and of its users: an app under virtual time, and disks that fail on purpose."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from craftcore.testing.crash_report import CrashMatrixFailed, CrashReport
    from craftcore.testing.effect import Effect
    from craftcore.testing.lab import Lab
    from craftcore.testing.matrix import crash_matrix
    from craftcore.testing.promises import ScenarioEnd, happens_once
    from craftcore.testing.provider import Provider
    from craftcore.testing.virtual_clock import VirtualClock
from craftcore.testing.world import record_effect

_HOMES = {
    "CrashMatrixFailed": "craftcore.testing.crash_report",
    "CrashReport": "craftcore.testing.crash_report",
    "Effect": "craftcore.testing.effect",
    "ScenarioEnd": "craftcore.testing.promises",
    "Lab": "craftcore.testing.lab",
    "Provider": "craftcore.testing.provider",
    "VirtualClock": "craftcore.testing.virtual_clock",
    "crash_matrix": "craftcore.testing.matrix",
    "happens_once": "craftcore.testing.promises",
    "record_effect": "craftcore.testing.world",
}

__all__ = [
    "CrashMatrixFailed", "CrashReport", "Effect", "Lab", "Provider", "ScenarioEnd", "VirtualClock", "crash_matrix",
    "happens_once", "record_effect",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: a plugin of pytest must not slow down every run."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
