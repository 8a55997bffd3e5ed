"""The limits of a workflow that keep a trigger waiting, as the running daemon declared them."""

from __future__ import annotations

from typing import Any

from craftcore.diagnostics.finding import Finding, show_query
from craftcore.engine.engine_facts import EngineFacts
from craftcore.serialization.plurals import format_count
from craftcore.serialization.time_text import format_span
from craftcore.storage.transaction import Reader
from craftcore.triggers.model import LANE, LIMITED_UNTIL, Trigger

CLAIMED = """SELECT count(*) AS claimed FROM triggers WHERE status = 'CLAIMED'
 AND (workflow = :workflow OR (workflow IS NULL AND instr(:sources, ',' || source || ',') > 0))"""
PUT_OFF = "SELECT workflow, limit_by, key FROM limit_waits WHERE trigger_seq = :seq"
STARTED = """SELECT (SELECT count(*) FROM (SELECT workflow, created_at FROM executions ORDER BY seq DESC LIMIT 20000)
  WHERE workflow = :workflow AND created_at > :since) AS started,
 (SELECT count(*) FROM triggers WHERE status = 'CLAIMED' AND started_at IS NULL
  AND (workflow = :workflow OR (workflow IS NULL AND instr(:sources, ',' || source || ',') > 0))) AS claimed"""


def limit_findings(reader: Reader, trigger: Trigger, standing: EngineFacts | None, now: float) -> list[Finding]:
    """Return the limits that are reached now; none when its workflow has none."""
    workflow = None if standing is None else _find_limited(trigger.workflow, trigger.source, standing)
    return [] if standing is None or workflow is None else _findings(reader, workflow, standing, now)


def find_reached_limit(
    reader: Reader, workflow: str | None, source: str, standing: EngineFacts, now: float
) -> str | None:
    """Return the workflow whose limit keeps a trigger of this workflow, or of this source, waiting now; None: none
    does."""
    limited = _find_limited(workflow, source, standing)
    return limited if limited is not None and _findings(reader, limited, standing, now) else None


def _find_limited(workflow: str | None, source: str, standing: EngineFacts) -> str | None:
    for name, limit in standing.limits.items():
        if limit["limit_by"] is not None:
            continue  # what it keeps waiting was put off
        if workflow == name or (workflow is None and source in limit["sources"]):
            return name
    return None


def _findings(reader: Reader, workflow: str, standing: EngineFacts, now: float) -> list[Finding]:
    limit = standing.limits[workflow]
    sources = f",{','.join(limit['sources'])},"
    return [*_slot_findings(reader, workflow, limit, sources), *_tokens(reader, workflow, limit, sources, now)]


def key_findings(reader: Reader, trigger: Trigger, standing: EngineFacts | None) -> list[Finding]:
    """Return the limit by which a trigger was put off, because the places or tokens of its key are taken. Empty when it
    was not. `standing` None: what the limit was is unknown."""
    given = {"seq": trigger.seq}
    if trigger.due_at != LIMITED_UNTIL or (wait := reader.fetch_one(PUT_OFF, **given)) is None:
        return []
    if wait["limit_by"] == LANE:
        text = f"an earlier trigger of its lane waits for a limit of workflow {wait['workflow']}"
        return [Finding(code="lane order", text=text, query=show_query(PUT_OFF, **given))]
    limits = standing.limits if standing is not None else {}
    limit = limits.get(wait["workflow"], {"concurrency": None, "count": None})
    most = [f"run {limit['concurrency']:,} at a time"] if limit["concurrency"] is not None else []
    if limit["count"] is not None:
        most.append(f"start {limit['count']:,} within {format_span(limit['seconds'])}")
    may = f"may {' and '.join(most)}" if most else "has a limit"
    text = f"workflow {wait['workflow']} {may} for each {wait['limit_by']}, and {wait['key']} has reached that"
    return [Finding(code="limit", text=text, query=show_query(PUT_OFF, **given))]


def _slot_findings(reader: Reader, workflow: str, limit: dict[str, Any], sources: str) -> list[Finding]:
    given = {"workflow": workflow, "sources": sources}
    if limit["concurrency"] is None or (claimed := reader.fetch_value(CLAIMED, **given)) < limit["concurrency"]:
        return []
    text = (
        f"workflow {workflow} may run {limit['concurrency']:,} at a time, and "
        f"{format_count(claimed, 'is', 'are')} claimed"
    )
    return [Finding(code="limit", text=text, query=show_query(CLAIMED, **given))]


def _tokens(reader: Reader, workflow: str, limit: dict[str, Any], sources: str, now: float) -> list[Finding]:
    if limit["count"] is None:
        return []
    given = {"workflow": workflow, "sources": sources, "since": now - limit["seconds"]}
    taken = reader.fetch_one(STARTED, **given) or {}
    if taken["started"] + taken["claimed"] < limit["count"]:
        return []
    text = (
        f"workflow {workflow} may start {limit['count']:,} within {format_span(limit['seconds'])}: "
        f"{format_count(taken['started'], 'has', 'have')}, and {format_count(taken['claimed'], 'is', 'are')} about to"
    )
    return [Finding(code="limit", text=text, query=show_query(STARTED, **given))]
