"""The audit row of a changed schedule: both versions, and no part of a long payload."""

from __future__ import annotations

import json
from typing import Any

import pytest

from craftcore.audit.model import Actor
from craftcore.operations import schedules
from craftcore.operations.audit_scope import audited_transaction
from craftcore.operations.schedules import CHANGED_MAX
from craftcore.schedules.model import ScheduleSpec
from tests.support.fakes import VirtualCore

ADA = Actor(uid=1000, name="ada")


def declare_all(core: VirtualCore, *specs: ScheduleSpec) -> list[dict[str, Any]]:
    """Declare the schedules, and return the details of their audit rows."""
    for spec in specs:
        with audited_transaction(core, ADA, "schedule edit") as (tx, scope):
            schedules.declare(tx, scope, core, spec, checks_workflow=False)
    return [json.loads(row["details_json"]) for row in core.rows("SELECT details_json FROM audit_log ORDER BY seq")]


def spec(**changed: Any) -> ScheduleSpec:
    return ScheduleSpec(**{"id": "nightly", "when": "every day at 3am", "workflow": "greet", **changed})


@pytest.mark.parametrize("excess", [0, 1])
def test_changed_payload_is_kept_whole_or_not_at_all(core, excess):
    """A part of a payload is not valid JSON, and may be half of a secret."""
    frame = len('{"key":"","token":"s3cret"}')
    payload = {"key": "x" * (CHANGED_MAX - frame + excess), "token": "s3cret"}

    first, second = declare_all(core, spec(), spec(payload=payload))

    assert first["change"] == "added"
    kept = f"(not kept: {CHANGED_MAX + 1} characters)" if excess else payload
    assert second["payload"] == {"before": {}, "after": kept}


def test_long_description_is_kept_at_both_ends(core):
    _, second = declare_all(core, spec(), spec(description="a" * CHANGED_MAX + "end"))

    kept = second["description"]
    assert kept["before"] is None
    assert kept["after"].startswith("aaa")
    assert kept["after"].endswith("end")
