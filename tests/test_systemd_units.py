"""The shipped units: systemd accepts every line, and the system unit has a low exposure."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
from pathlib import Path
from string import Template

import pytest

from craftcore.config import Config
from tests.support.processes import PATIENCE, craftcore

SYSTEMD = Path(__file__).parents[1] / "systemd"
SYSTEM_UNIT = SYSTEMD / "craftcore.service"
USER_UNIT = SYSTEMD / "user" / "craftcore.service"
BACKUPS = [SYSTEMD / "craftcore-backup.service", SYSTEMD / "user" / "craftcore-backup.service"]
PAGES = [SYSTEMD / "craftcore-web.service", SYSTEMD / "user" / "craftcore-web.service"]
UNITS = sorted(path for path in SYSTEMD.rglob("*.*") if path.is_file())

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed (Debian: the package systemd)"
)


@pytest.fixture
def analyze(tmp_path):
    """Return a function that runs systemd-analyze with its own runtime directory, which needs no session."""

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
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: str(unit.relative_to(SYSTEMD)))
def test_systemd_accepts_every_line(analyze, unit):
    """An unknown key gives a warning and exit code 0, so the output must be empty, too."""
    verified = analyze("--user" if unit.parent.name == "user" else "--system", "verify", unit)

    assert (verified.returncode, verified.stdout + verified.stderr) == (0, "")


@needs_systemd
def test_misspelt_key_is_found(analyze, tmp_path):
    misspelt = tmp_path / "craftcore.service"
    misspelt.write_text(SYSTEM_UNIT.read_text().replace("WatchdogSec", "WatchdgSec"))

    assert "WatchdgSec" in analyze("--system", "verify", misspelt).stderr


@needs_systemd
@pytest.mark.parametrize("unit", [SYSTEM_UNIT, BACKUPS[0], PAGES[0]], ids=["daemon", "backup", "page"])
def test_system_unit_has_an_exposure_of_at_most_1_5(analyze, unit):
    """User units are left out: their commands are the user's programs on the user's files."""
    secured = analyze("security", "--offline=true", "--threshold=15", unit)

    assert secured.returncode == 0, secured.stdout
    assert exposure(secured.stdout) <= 1.5


@needs_systemd
def test_open_unit_is_refused(analyze, tmp_path):
    opened = tmp_path / "craftcore.service"
    opened.write_text(SYSTEM_UNIT.read_text().replace("SystemCallFilter", "#").replace("DynamicUser=yes", ""))
    secured = analyze("security", "--offline=true", "--threshold=15", opened)

    assert secured.returncode != 0
    assert exposure(secured.stdout) > 1.5


@pytest.mark.parametrize("unit", [SYSTEM_UNIT, USER_UNIT], ids=["system", "user"])
def test_stopping_leaves_the_grace_its_time(unit):
    """With a shorter timeout, systemd would kill work that the daemon still lets finish."""
    assert int(settings(unit)["TimeoutStopSec"]) > Config().daemon.shutdown_grace


@pytest.mark.parametrize("unit", [SYSTEM_UNIT, USER_UNIT, *PAGES], ids=lambda unit: str(unit.relative_to(SYSTEMD)))
def test_permanent_failure_is_not_restarted(unit):
    prevented = set(settings(unit)["RestartPreventExitStatus"].split())

    assert {"64", "65", "77", "78"} <= prevented
    assert prevented.isdisjoint({"70", "73", "74", "75"})


@pytest.mark.parametrize("unit", [BACKUPS[0], PAGES[0]], ids=["backup", "page"])
def test_unit_beside_the_daemon_runs_as_its_user_in_its_directory(unit):
    """With another dynamic user, systemd would change the owner of the directory while the daemon runs in it."""
    daemon, unit_settings = settings(SYSTEM_UNIT), settings(unit)

    assert "User" not in daemon, "the default user has the name of the unit"
    assert unit_settings["User"] == SYSTEM_UNIT.stem
    for key in ("DynamicUser", "StateDirectory", "StateDirectoryMode", "WorkingDirectory", "UMask", "ProtectSystem"):
        assert unit_settings[key] == daemon[key]


HARDENED = (
    *("CapabilityBoundingSet", "AmbientCapabilities", "NoNewPrivileges", "PrivateDevices", "PrivateMounts"),
    *("PrivateTmp", "PrivateUsers", "ProtectClock", "ProtectControlGroups", "ProtectHome", "ProtectHostname"),
    *("ProtectKernelLogs", "ProtectKernelModules", "ProtectKernelTunables", "ProtectProc", "RemoveIPC"),
    *("RestrictNamespaces", "RestrictRealtime", "RestrictSUIDSGID", "LockPersonality", "SystemCallArchitectures"),
    *("SystemCallFilter", "SystemCallErrorNumber", "LimitCORE"),
)


def test_page_has_no_right_that_the_daemon_has_not():
    daemon, page = settings(SYSTEM_UNIT), settings(PAGES[0])

    assert {key: page[key] for key in HARDENED} == {key: daemon[key] for key in HARDENED}
    assert (page["IPAddressDeny"], page["IPAddressAllow"]) == ("any", "localhost")


@pytest.mark.parametrize("unit", PAGES, ids=["system", "user"])
def test_page_is_limited_and_reads_no_environment_file_of_the_daemon(unit):
    """The daemon's file has the secrets of providers."""
    page, daemon = settings(unit), settings(unit.with_name("craftcore.service"))

    assert page["ExecStart"] == "/usr/bin/env craftcore web"
    assert (page["Type"], page["MemoryMax"]) == ("notify", "160M")
    assert page["EnvironmentFile"] != daemon["EnvironmentFile"]
    assert page["EnvironmentFile"].endswith("/web-environment")
    assert set(page["RestrictAddressFamilies"].split()) == {"AF_UNIX", "AF_INET", "AF_INET6"}


@pytest.mark.parametrize("unit", BACKUPS, ids=["system", "user"])
def test_backup_unit_runs_an_existing_command(unit, tmp_path):
    """The command gets the values of the unit's environment, with another folder for the backups."""
    service = settings(unit)
    values = dict(word.split("=", 1) for word in service["Environment"].split() if word.startswith("BACKUP_"))
    values["BACKUP_DIR"] = str(tmp_path / "backups")
    words = Template(service["ExecStart"]).substitute(values).split()
    assert words[:2] == ["/usr/bin/env", "craftcore"]
    assert craftcore(tmp_path, "emit", "command.run", "--payload", '{"argv": ["true"]}').code == 0

    done = craftcore(tmp_path, "--json", *words[2:])

    assert done.code == 0, done
    assert done.json["rows"]["triggers"] == 1
    assert Path(done.json["file"]).parent == tmp_path / "backups"


@pytest.mark.parametrize("unit", [path.with_suffix(".timer") for path in BACKUPS], ids=["system", "user"])
def test_missed_backup_is_made_later_with_a_random_delay(unit):
    timer = settings(unit, "Timer")

    assert (timer["OnCalendar"], timer["Persistent"]) == ("daily", "true")
    assert timer["RandomizedDelaySec"] == "1h"
    assert settings(unit, "Install")["WantedBy"] == "timers.target"


def settings(unit: Path, section: str = "Service") -> configparser.SectionProxy:
    """Return a section of a unit. The last value of a repeated key counts."""
    parser = configparser.ConfigParser(strict=False, interpolation=None, delimiters=["="])
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(unit)
    return parser[section]


def exposure(report: str) -> float:
    found = re.search(r"Overall exposure level for craftcore(?:-backup|-web)?\.service: ([\d.]+)", report)
    assert found, report
    return float(found[1])
