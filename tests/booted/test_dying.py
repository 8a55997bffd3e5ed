"""The daemon dies under systemd, by every kind of death: it is started again, and nothing is lost."""

from __future__ import annotations

from tests.booted.machine import until


def test_after_sigkill_it_is_started_again_and_does_what_it_had_accepted(service):
    """With work at hand, a program of a command among it, and with triggers that come while nobody is there."""
    service.start()
    running = service.emit("runs.on")
    service.emit("command.run", argv=["sleep", "98765"])
    accepted = [service.emit("note", number=number) for number in range(3)]
    later = service.emit("note", "--in", "1h", number=99)
    service.until_traced("runs on")
    [program] = until(lambda: service.programs("98765"), "the program to run")

    killed = service.kill()

    accepted += [service.emit("note", number=number) for number in range(3, 6)]
    assert service.state == "activating", "systemd waits its RestartSec=5"
    service.restarted_after(killed)
    assert (service.shown("NRestarts"), service.shown("Result")) == ("1", "success")
    for trigger_id in accepted:
        service.until_settled(trigger_id)
    service.until_traced("runs on", times=2)
    [again] = until(lambda: service.programs("98765"), "the program to run again, and no other beside it")
    assert again != program
    service.go()
    service.until_settled(running)
    assert service.traced.count("came to its end") == 1
    assert service.trigger(later)["status"] == "PENDING"
    assert "the daemon before this one died" in service.craftcore("status").out


def test_a_hung_loop_is_ended_by_the_watchdog_and_what_hangs_is_buried_as_poison(service):
    """By the third time, the last of them alone; what was accepted beside it is done."""
    service.drop_in("impatient", "WatchdogSec=3", "RestartSec=200ms")
    service.start()
    first = service.pid
    poison = service.emit("hangs")
    service.until_traced("hangs")
    beside = service.emit("note", number=7)

    service.restarted_after(first)

    assert "Watchdog timeout (limit 3s)!" in service.journal
    dead = service.until_settled(poison, "DEAD")
    assert (dead["error_code"], service.traced.count("hangs")) == ("POISON", 3)
    assert service.journal.count("Watchdog timeout (limit 3s)!") == 3
    service.until_settled(beside)
    assert service.state == "active"


def test_after_six_quick_deaths_what_is_scheduled_waits_for_a_person_and_systemd_never_gives_up(service):
    service.settings('[[schedule]]\nid = "often"\nworkflow = "note"\npayload = {number = 1}\nwhen = "every 1s"\n')
    service.drop_in("soon", "RestartSec=200ms")
    service.start()
    pid = service.pid
    deaths = 0
    while "safe mode" not in service.shown("StatusText"):
        assert deaths < 6, service.shown("StatusText")
        service.kill()
        deaths += 1
        pid = service.restarted_after(pid)

    assert (deaths, service.state, service.shown("NRestarts")) == (6, "active", "6")
    before = service.traced.count("note 1")
    service.until_settled(service.emit("note", number=2))  # what is emitted goes on
    assert service.traced.count("note 1") == before
    service.craftcore("release")
    service.until_traced("note 1", times=before + 1)
