"""The steps of docs/operating.md, word for word, on a Debian that has never seen craftcore."""

from __future__ import annotations

from tests.booted.installing import steps
from tests.booted.machine import until
from tests.booted.service import DATABASE, UNIT


def test_the_steps_of_the_page_install_it_and_start_it(server):
    root, installed = server

    assert installed.code == 0, installed
    for name in ("craftcore.service", "craftcore-backup.service", "craftcore-backup.timer"):
        assert f"wrote /etc/systemd/system/{name}" in installed.out
    assert "env /opt/craftcore/bin/craftcore run" in (root / "etc/systemd/system" / UNIT).read_text()
    assert (root / "var/lib/private/craftcore/craftcore.db").exists(), "`enable --now` has started it"


def test_it_comes_with_the_next_boot_and_does_as_the_page_says(machine):
    until(lambda: machine.run("systemctl", "is-active", UNIT).out == "active\n", "it to be started by nobody")

    said = machine.do("bash", "-eu", stdin=steps("use")).splitlines()

    assert said[0] == '"Hello, Ada!"'
    assert said[1].startswith("healthy: ")
    assert "all is well" in said
    assert any(line.startswith("ok    unit          /etc/systemd/system/craftcore.service is ours") for line in said)
    assert any(" craftcore[" in line and '"event":"daemon.ready"' in line for line in said), "the journal names it"


def test_it_comes_with_everything_that_it_reads(machine):
    """The wheel has its migrations, its settings with their comments, and its units."""
    shipped = machine.do("craftcore", "systemd", "print", "--user", "--backup")
    machine.do("craftcore", "init", "/root/another")

    assert all(text in shipped for text in ("[Timer]", "ExecStart=/usr/bin/env /opt/craftcore/bin/craftcore run"))
    assert machine.path("/root/another/craftcore.toml").read_text().startswith("# Every setting of craftcore")
    checked = machine.run("craftcore", "--db", DATABASE, "db", "check")
    assert checked.code == 0, checked
