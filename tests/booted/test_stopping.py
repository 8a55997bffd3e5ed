"""`systemctl stop` and the machine's own end: in order, within the grace, and what was cut off comes again."""

from __future__ import annotations

from tests.booted.machine import until
from tests.booted.service import UNIT

OBSTINATE = ["sh", "-c", "trap '' TERM INT; while :; do sleep 0.1; done", "obstinate"]


def test_a_stop_ends_within_the_grace_whatever_runs_on(service):
    """The grace and systemd's patience are those of the shipped unit less 27 seconds: the margin is the same."""
    service.settings("[daemon]\nshutdown_grace = 3.0\n")
    service.drop_in("sooner", "TimeoutStopSec=18")
    service.start()
    cut_off = [service.emit("runs.on"), service.emit("command.run", argv=OBSTINATE)]
    service.until_traced("runs on")
    until(lambda: service.programs("obstinate"), "the program to run")

    assert service.systemctl("stop").code == 0

    ended = {name: service.shown(name) for name in ("ActiveState", "Result", "ExecMainStatus", "ExecMainCode")}
    assert ended == {"ActiveState": "inactive", "Result": "success", "ExecMainStatus": "0", "ExecMainCode": "1"}
    assert '"signal":"SIGTERM","running":2' in service.journal
    assert "Killing process" not in service.journal, "systemd had to end nothing"
    assert service.programs("obstinate") == []
    assert service.traced[-1] == "cancelled"
    for trigger_id in cut_off:
        trigger = service.trigger(trigger_id)
        assert (trigger["status"], trigger["attempts"]) == ("PENDING", 0), "given back"
    service.start()
    service.until_traced("runs on", times=2)
    service.go()
    service.until_settled(cut_off[0])


def test_switched_off_in_order_it_goes_on_at_the_next_boot(service):
    """Enabled, nobody has to start it."""
    service.settings("[daemon]\nshutdown_grace = 1.0\n")
    goes_on_after(service, service.machine.power_off)

    assert '"clean":true' in service.machine.do("journalctl", "--boot", f"--unit={UNIT}", "--output=cat")


def test_after_a_power_cut_it_goes_on_at_the_next_boot(service):
    """Every process ends at once. What the disk had not yet is the matter of tests/crash/."""
    goes_on_after(service, service.machine.cut)

    assert '"clean":false' in service.machine.do("journalctl", "--boot", f"--unit={UNIT}", "--output=cat")


def goes_on_after(service, end):
    """The machine ends while work is at hand, and boots."""
    service.start()
    at_work = service.emit("runs.on")
    later = service.emit("note", "--in", "1h")
    service.until_traced("runs on")

    end()
    assert "came to its end" not in service.traced
    service.machine.boot()

    until(lambda: service.state == "active", "the unit to be started", lambda: service.journal)
    service.until_traced("runs on", times=2)
    service.go()
    assert service.trigger(later)["status"] == "PENDING"
    service.until_settled(at_work)
