"""What the unit gives the daemon, and what it does not."""

from __future__ import annotations

import json
import stat

import pytest

from tests.booted.installing import steps
from tests.booted.machine import until
from tests.booted.service import DATABASE, STATE

DYNAMIC = range(61_184, 65_520)
"""The users that systemd makes up."""


def test_it_is_a_user_of_its_own_without_any_right(service):
    service.start()
    status = dict(
        line.split(":\t", 1) for line in service.machine.do("cat", f"/proc/{service.pid}/status").splitlines()
    )

    assert {int(uid) in DYNAMIC for uid in status["Uid"].split()} == {True}
    assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert service.machine.run("getent", "passwd", "craftcore").out.split(":")[2:3] in ([], [status["Uid"].split()[0]])
    assert "craftcore" not in service.machine.path("/etc/passwd").read_text()


def test_its_files_are_its_own_and_nobody_elses(service):
    service.start()
    service.emit("note")
    home = service.machine.path(STATE)
    uid = int(service.machine.do("stat", "--format=%u", f"/proc/{service.pid}"))

    assert home.readlink().as_posix() == "private/craftcore"
    assert stat.S_IMODE(home.stat().st_mode) == stat.S_IMODE(home.parent.joinpath("private").stat().st_mode) == 0o700
    found = {path.name: path.lstat() for path in home.iterdir()}
    names = [f"craftcore.db{suffix}" for suffix in ("", "-wal", "-shm", ".lock", ".bell")]
    assert set(names) <= set(found)
    assert {name: oct(stat.S_IMODE(found[name].st_mode)) for name in found} == dict.fromkeys(found, "0o600")
    assert {found[name].st_uid for name in found} == {uid}
    assert stat.S_ISSOCK(found["craftcore.db.bell"].st_mode)


def test_it_can_write_in_its_directory_and_nowhere_else(service):
    elsewhere = ["/etc/x", "/srv/agent/x", "/opt/craftcore/x", "/usr/local/bin/x", "/var/lib/x", "/root/x", "/home/x"]
    before = {path: service.machine.path(path).exists() for path in elsewhere}
    service.start()

    came = service.told("emit", "writes", "--payload", payload([*elsewhere, "/tmp/x", "here"]), "--wait")["result"]

    assert {path: came[path] for path in ("here", "/tmp/x")} == {"here": "written", "/tmp/x": "written"}
    assert {came[path] for path in elsewhere} <= {"Read-only file system", "Permission denied"}
    assert {path: service.machine.path(path).exists() for path in elsewhere} == before
    assert not service.machine.path("/tmp/x").exists(), "its /tmp is its own"


@pytest.mark.parametrize("unit", ["craftcore.service", "craftcore-backup.service"])
def test_systemd_rates_it_as_hardly_exposed(service, unit):
    """By the unit as it is loaded, not as the file says."""
    service.machine.do("systemd-analyze", "security", "--no-pager", "--threshold=15", unit)


def test_root_emits_and_so_does_a_service_of_the_same_user_and_nobody_else(service):
    """And each is heard at once, through the users that the unit has to itself."""
    service.settings("[daemon]\npoll_seconds = 30.0\n")
    service.start()
    own = [f"--property={line}" for line in steps("producer").splitlines()]

    service.machine.do("systemd-run", "--wait", "--quiet", *own, "/opt/craftcore/bin/craftcore", "emit", "note")
    service.until_settled(service.emit("note", number=1))
    stranger = service.machine.run(
        "setpriv", "--reuid=nobody", "--clear-groups", "craftcore", "--db", DATABASE, "emit", "note"
    )

    until(lambda: {"note 0", "note 1"} <= set(service.traced), "both to be done")
    assert (stranger.code, stranger.out) == (77, ""), stranger
    assert service.craftcore("doctor").code == 0, "nothing there belongs to root now"


def payload(paths):
    return json.dumps({"paths": paths})
