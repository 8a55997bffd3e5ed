"""`craftcore hold` and `craftcore release`, and the commands that report a hold."""

from __future__ import annotations

import pytest

from craftcore.schedules.model import Origin, ScheduleSpec
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.trigger_steps import emit


@pytest.fixture
def core(database):
    core = VirtualCore(database, VirtualClock())
    core.do(core.schedules.put, ScheduleSpec(id="nightly", when="every 1h", workflow="greet"), Origin.OPERATOR)
    yield core
    core.close()


def test_status_why_doctor_and_audit_report_a_hold(cli, core):
    trigger_id = emit(core).id
    assert cli("hold", "--workflow", "greet", "--reason", "wrong text").out == "workflow greet is held\n"

    words = r"workflow greet is held: "
    assert words in cli("status").out
    assert "wrong text. To let it start: craftcore release --workflow greet" in cli("status").out
    assert words in cli("trigger", "why", trigger_id).out
    assert words in cli("schedule", "why", "nightly").out
    assert words in cli("doctor").out
    [hold] = cli("--json", "status").json["holds"]
    assert (hold["kind"], hold["name"]) == ("workflow", "greet")
    assert "hold" in cli("audit").out


def test_release_ends_a_single_hold_or_all(cli, core):
    for target in ((), ("--workflow", "greet"), ("--source", "MEMORY"), ("--schedule", "nightly")):
        assert cli("hold", *target).code == 0
    assert "schedule nightly is held" in cli("schedule", "why", "nightly").out

    assert cli("release", "--source", "MEMORY").out.startswith("released; it was held because ")
    assert cli("release", "--source", "MEMORY").out == "source MEMORY was not held\n"
    released = cli("--json", "release").json
    assert released["released"] is True
    assert released["reason"].count("held it at") == 3
    assert cli("release").out == "nothing was held\n"


def test_second_hold_leaves_the_first(cli, core):
    cli("hold", "--reason", "first")
    assert cli("--json", "hold", "--reason", "second").json == {"held": "everything", "already": True}
    assert cli("--json", "status").json["held"].endswith(": first")


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (("--source", "memory"), 64, "source 'memory' is unknown"),
        (("--schedule", "hourly"), 10, "no schedule hourly"),
        (("--schedule", "nightly", "--workflow", "greet"), 64, "give one at a time"),
    ],
)
def test_bad_hold_is_refused_with_its_exit_code(cli, core, arguments, code, why):
    refused = cli("hold", *arguments)
    assert (refused.code, why in refused.err) == (code, True)
    assert cli("--json", "status").json["holds"] == []
