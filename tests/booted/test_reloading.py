"""`systemctl reload`: it takes the settings over and waits until that is done, or fails and changes nothing."""

from __future__ import annotations

SCHEDULE = '[[schedule]]\nid = "{}"\nworkflow = "note"\nwhen = "every day at 3am"\ntimezone = "UTC"\n'


def test_a_reload_takes_the_settings_over_and_says_what_counts(service):
    service.start()
    pid = service.pid
    service.settings(SCHEDULE.format("nightly") + "[daemon]\nconcurrency = 3\n")

    reloaded = service.systemctl("reload")

    assert reloaded.code == 0, service.journal
    assert [one["id"] for one in service.told("schedule", "list")] == ["nightly"], "it is done when systemctl returns"
    assert "changed, and counts now: schedule\n" in service.journal
    assert "changed, and waits for the next start: daemon.concurrency\n" in service.journal
    assert (service.state, service.pid) == ("active", pid)


def test_with_a_mistake_in_the_settings_the_reload_fails_and_the_daemon_goes_on_as_it_was(service):
    service.settings(SCHEDULE.format("nightly"))
    service.start()
    pid = service.pid
    service.settings(SCHEDULE.format("another") + "[daemon]\nconcurency = 3\n")

    refused = service.systemctl("reload")

    assert refused.code != 0
    assert "did you mean 'concurrency'" in service.journal
    assert "nothing was changed: the daemon goes on with the settings as they were" in service.journal
    assert [one["id"] for one in service.told("schedule", "list")] == ["nightly"]
    assert (service.state, service.pid, service.shown("NRestarts")) == ("active", pid, "0")
    service.until_settled(service.emit("note"))
    service.settings(SCHEDULE.format("another"))
    assert service.systemctl("reload").code == 0, service.journal
