"""The time zone of the machine: its name from TZ, /etc/localtime and /etc/timezone, or none."""

from __future__ import annotations

import importlib.resources
import re
from typing import Any

import pytest

from craftcore import App, InvalidInput, TaskContext
from craftcore.errors import ScheduleInvalid
from craftcore.machine_zone import MachineZone, find_machine_zone
from craftcore.schedules.model import Origin, ScheduleSpec
from craftcore.triggers.model import TriggerSpec
from tests.support.engine_harness import lab
from tests.support.fakes import NEW_YEAR, VirtualClock, VirtualCore
from tests.support.turns import failure, run

UNKNOWN = "the time zone of this machine is not known"


def zone_bytes(name: str) -> bytes:
    """Return a zone file of the package tzdata, which differs from the file of a system."""
    return importlib.resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()


@pytest.fixture
def find(tmp_path):
    """Return a function that finds the zone of a machine with these two files. None leaves a file out."""

    def find(variable: str | None, localtime: bytes | str | None, timezone: str | None = None) -> MachineZone:
        link, named = tmp_path / "localtime", tmp_path / "timezone"
        if isinstance(localtime, str):
            link.symlink_to(localtime)
        elif localtime is not None:
            link.write_bytes(localtime)
        if timezone is not None:
            named.write_text(timezone + "\n")
        return find_machine_zone(variable, NEW_YEAR, localtime=str(link), named_in=str(named))

    return find


def test_link_of_localtime_names_the_zone(find):
    assert find(None, "/usr/share/zoneinfo/Europe/Berlin") == MachineZone("Europe/Berlin")


def test_link_into_the_folder_posix_names_the_zone(find):
    assert find(None, "/usr/share/zoneinfo/posix/Europe/Berlin") == MachineZone("Europe/Berlin")


@pytest.mark.parametrize("name", ["Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "UTC"])
def test_copy_of_a_zone_file_is_known_by_its_bytes(find, name):
    assert find(None, zone_bytes(name)) == MachineZone(name)


def test_copy_of_a_zone_file_with_several_names_has_that_of_etc_timezone(find):
    assert find(None, zone_bytes("Etc/UTC"), "Etc/UCT") == MachineZone("Etc/UCT")


def test_copy_of_a_zone_file_outweighs_an_etc_timezone_that_differs(find):
    assert find(None, zone_bytes("Europe/Berlin"), "Asia/Tokyo") == MachineZone("Europe/Berlin")


def test_zone_file_of_another_tzdata_has_the_name_of_etc_timezone(find):
    assert find(None, changed_history("Europe/Berlin"), "Europe/Berlin") == MachineZone("Europe/Berlin")


def test_zone_file_without_a_name_is_not_known(find):
    found = find(None, changed_history("Europe/Berlin"))
    assert found.name is None
    assert found.why.endswith("localtime is a file without the name of its zone")


def test_zone_file_without_a_name_is_not_known_when_etc_timezone_differs(find):
    found = find(None, changed_history("Europe/Berlin"), "Asia/Tokyo")
    assert found.name is None
    assert found.why.endswith("timezone says Asia/Tokyo, which differs from it")


def test_file_that_holds_no_zone_is_not_known(find):
    assert find(None, b"garbage", "Europe/Berlin").name is None


def test_machine_without_localtime_is_in_utc(find):
    assert find(None, None) == MachineZone("UTC")


def test_zone_without_localtime_is_not_known_when_etc_timezone_names_a_place(find):
    found = find(None, None, "Europe/Berlin")
    assert found.name is None
    assert "so the machine's clock is in UTC, and" in found.why


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("Europe/Berlin", "Europe/Berlin"),
        (":Europe/Berlin", "Europe/Berlin"),
        ("/usr/share/zoneinfo/Europe/Berlin", "Europe/Berlin"),
        ("UTC", "UTC"),
        ("UTC0", "UTC"),
        ("", "UTC"),
        ("localtime", "Asia/Kolkata"),
        (None, "Asia/Kolkata"),
        ("CET-1CEST", None),
        ("Europe/Berln", None),
        ("Europe", None),
        ("posixrules", None),
        ("../etc/passwd", None),
    ],
)
def test_variable_tz_comes_before_the_files(find, variable, name):
    found = find(variable, zone_bytes("Asia/Kolkata"))
    assert found.name == name
    assert name is not None or found.why == f"TZ is {variable!r}, which is not the name of a zone"


def test_variable_tz_may_be_the_path_of_a_copy(find, tmp_path):
    (tmp_path / "copy").write_bytes(zone_bytes("Europe/Berlin"))
    assert find(f":{tmp_path}/copy", "/usr/share/zoneinfo/UTC") == MachineZone("Europe/Berlin")


def changed_history(name: str) -> bytes:
    """Return a file that differs from the file of a zone in its oldest change, so that its bytes match no zone."""
    content = zone_bytes(name)
    second = content.index(b"TZif", 4)
    counts = [int.from_bytes(content[second + at : second + at + 4], "big") for at in range(20, 44, 4)]
    assert counts[3] > 0, "the zone has no changes"
    first_change = second + 44
    return content[: first_change + 7] + bytes([content[first_change + 7] ^ 1]) + content[first_change + 8 :]


# Refusals while the zone of the machine is unknown


@pytest.fixture
def zoneless(tmp_path):
    """Return a core on a machine whose zone is not known."""
    return VirtualCore(tmp_path / "core.db", VirtualClock(zone_name=None))


@pytest.mark.parametrize("when", ["every day at 9am", "tomorrow at 9am", "at 3pm", "0 9 * * *", "@daily"])
def test_schedule_by_the_wall_clock_is_refused_without_a_zone(zoneless, when):
    with pytest.raises(ScheduleInvalid, match=f"schedule '{re.escape(when)}': {UNKNOWN}, so a time of day has no"):
        zoneless.schedules.check(ScheduleSpec(id="s", when=when, workflow="w"), Origin.OPERATOR)
    zoneless.schedules.check(ScheduleSpec(id="s", when=when, workflow="w", timezone="Europe/Berlin"), Origin.OPERATOR)


@pytest.mark.parametrize("when", ["in 10m", "every 2h", "on startup", "immediate", "2026-12-01T09:00Z"])
def test_schedule_that_needs_no_zone_is_accepted(zoneless, when):
    zoneless.schedules.check(ScheduleSpec(id="s", when=when, workflow="w"), Origin.OPERATOR)


@pytest.mark.parametrize("field", ["at", "expires_at"])
def test_emit_at_a_time_of_day_is_refused_without_a_zone(zoneless, field):
    options: dict[str, Any] = {field: "tomorrow 9am"}
    with pytest.raises(InvalidInput, match=f"{field} 'tomorrow 9am': {UNKNOWN}"):
        zoneless.triggers.accept(TriggerSpec(workflow="w", **options))


def test_emit_at_a_moment_that_needs_no_zone_is_accepted(zoneless):
    assert zoneless.triggers.accept(TriggerSpec(workflow="w", at="in 10m")).fire_at == NEW_YEAR + 600
    assert zoneless.triggers.accept(TriggerSpec(workflow="w", at="2026-12-01T09:00Z")).fire_at > NEW_YEAR


@pytest.mark.anyio
async def test_sleep_until_a_time_of_day_is_refused_without_a_zone(tmp_path):
    async def turn(ctx: TaskContext) -> None:
        await ctx.sleep_until("9am")

    async with lab(App(), tmp_path, clock=VirtualClock(zone_name=None)) as it:
        assert UNKNOWN in failure(await run(it, turn))[1]
