"""The shipped units: systemd reads every line of them, and the system unit gives away little."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from craftcore.config import Config
from tests.processes import PATIENCE

SYSTEMD = Path(__file__).parents[1] / "systemd"
SYSTEM_UNIT = SYSTEMD / "craftcore.service"
USER_UNIT = SYSTEMD / "user" / "craftcore.service"

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed (Debian: the package systemd)"
)


@pytest.fixture
def analyze(tmp_path):
    """Run systemd-analyze with a runtime directory of its own: there may be no session to lend one."""

    def analyze(*arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["systemd-analyze", "--no-pager", *map(str, arguments)],
            env={**os.environ, "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

    return analyze


@needs_systemd
@pytest.mark.parametrize(("scope", "unit"), [("--system", SYSTEM_UNIT), ("--user", USER_UNIT)], ids=["system", "user"])
def test_systemd_accepts_every_line(analyze, scope, unit):
    """An unknown key is a warning and exit 0, so silence is asked for as well."""
    verified = analyze(scope, "verify", unit)

    assert (verified.returncode, verified.stdout + verified.stderr) == (0, "")


@needs_systemd
def test_a_misspelt_key_would_be_seen(analyze, tmp_path):
    misspelt = tmp_path / "craftcore.service"
    misspelt.write_text(SYSTEM_UNIT.read_text().replace("WatchdogSec", "WatchdgSec"))

    assert "WatchdgSec" in analyze("--system", "verify", misspelt).stderr


@needs_systemd
def test_the_system_unit_is_exposed_no_more_than_1_5(analyze):
    """The user unit is not measured: its commands are that user's own programs on that user's own files."""
    secured = analyze("security", "--offline=true", "--threshold=15", SYSTEM_UNIT)

    assert secured.returncode == 0, secured.stdout
    assert exposure(secured.stdout) <= 1.5


@needs_systemd
def test_an_open_unit_would_be_refused(analyze, tmp_path):
    opened = tmp_path / "craftcore.service"
    opened.write_text(SYSTEM_UNIT.read_text().replace("SystemCallFilter", "#").replace("DynamicUser=yes", ""))
    secured = analyze("security", "--offline=true", "--threshold=15", opened)

    assert secured.returncode != 0
    assert exposure(secured.stdout) > 1.5


@pytest.mark.parametrize("unit", [SYSTEM_UNIT, USER_UNIT], ids=["system", "user"])
def test_stopping_leaves_the_grace_its_time(unit):
    """Else systemd kills work that the daemon still lets finish."""
    assert int(settings(unit)["TimeoutStopSec"]) > Config().daemon.shutdown_grace


@pytest.mark.parametrize("unit", [SYSTEM_UNIT, USER_UNIT], ids=["system", "user"])
def test_what_only_a_person_can_repair_is_not_restarted(unit):
    prevented = set(settings(unit)["RestartPreventExitStatus"].split())

    assert {"64", "65", "77", "78"} <= prevented
    assert prevented.isdisjoint({"70", "73", "74", "75"})


def settings(unit: Path) -> configparser.SectionProxy:
    """The [Service] section; of a repeated key the last."""
    parser = configparser.ConfigParser(strict=False, interpolation=None, delimiters=["="])
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(unit)
    return parser["Service"]


def exposure(report: str) -> float:
    found = re.search(r"Overall exposure level for craftcore\.service: ([\d.]+)", report)
    assert found, report
    return float(found[1])
