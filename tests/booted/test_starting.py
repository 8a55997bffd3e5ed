"""What systemd sees of the daemon while it starts and works, and which ends it begins anew."""

from __future__ import annotations

import pytest

from tests.booted.machine import until
from tests.booted.service import DATABASE


def test_it_is_active_only_when_it_says_so(service):
    """Its start is held up in the app's import, for as long as we like."""
    hold = service.machine.path("/srv/agent/hold")
    hold.touch()

    service.systemctl("start", "--no-block")

    service.until_traced("import")
    assert (service.state, service.shown("SubState"), service.shown("StatusText")) == ("activating", "start", "")
    assert service.machine.run("systemctl", "is-active", "craftcore").out == "activating\n"
    assert service.pid > 0
    hold.unlink()
    service.until("ActiveState", "active")
    assert service.shown("StatusText") == "running 0"
    assert service.journal.index("engine.booted") < service.journal.index("Started craftcore.service")


def test_its_status_line_says_what_it_does(service):
    service.start()
    service.emit("runs.on")

    until(lambda: service.shown("StatusText").startswith("running 1"), "the status line")

    assert '"running 1' in service.machine.do("systemctl", "status", "--no-pager", "craftcore")
    service.go()
    until(lambda: "settled DONE 1" in service.shown("StatusText"), "the status line")


def misspell(service):
    service.settings("[daemon]\nconcurency = 1\n")


def damage(service):
    service.start().systemctl("stop")
    service.machine.path(DATABASE).write_bytes(b"no database of ours" * 1000)


def uninstall(service):
    service.drop_in("gone", "ExecStart=", "ExecStart=/usr/bin/env craftcore-that-was run")


@pytest.mark.parametrize(("spoil", "code"), [(misspell, 78), (damage, 65), (uninstall, 127)])
def test_what_only_a_person_can_repair_is_not_tried_again(service, spoil, code):
    """It would be `activating` if systemd meant to."""
    spoil(service)

    assert service.systemctl("start").code != 0

    service.until("ActiveState", "failed")
    assert (service.shown("ExecMainStatus"), service.shown("NRestarts")) == (str(code), "0"), service.journal


def test_what_may_be_over_next_time_is_tried_until_it_is(service):
    """Another daemon has the database: exit 75."""
    another = ["--unit=another", "--property=Type=notify", "--property=DynamicUser=yes", "--property=User=craftcore"]
    service.machine.do(
        "systemd-run", *another, "--property=StateDirectory=craftcore", "/opt/craftcore/bin/craftcore", "run"
    )
    service.drop_in("soon", "RestartSec=200ms")

    assert service.systemctl("start").code != 0

    until(lambda: int(service.shown("NRestarts")) >= 2, "two more tries", lambda: service.journal)
    assert service.shown("ExecMainStatus") in ("0", "75")
    assert "another daemon holds this database: pid " in service.journal
    service.machine.do("systemctl", "stop", "another")
    service.until("ActiveState", "active")
