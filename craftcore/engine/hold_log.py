"""The log lines of holds that begin and end."""

from __future__ import annotations

import structlog

from craftcore.triggers.start_holds import StartHolds

log = structlog.get_logger(__name__)


def log_changes(before: StartHolds, after: StartHolds) -> None:
    """Log which holds stand that did not before, and which were released."""
    if after.everything is not None and after.everything != before.everything:
        log.warning("engine.held", reason=after.everything)
    elif before.everything is not None and after.everything is None:
        log.warning("engine.released")
    if after.safe_mode != before.safe_mode:
        log.warning("engine.safe_mode", reason=after.safe_mode or "released")
    for target in before.targets.keys() ^ after.targets.keys():
        log.warning("engine.hold", target=str(target), reason=after.targets.get(target, "released"))
