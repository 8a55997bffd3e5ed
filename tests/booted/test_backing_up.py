"""The backup of the timer, beside the daemon: of one moment, whole, and restored elsewhere."""

from __future__ import annotations

import json
import stat

from tests.booted.machine import until
from tests.booted.service import DATABASE, STATE

BACKUP, TIMER = "craftcore-backup.service", "craftcore-backup.timer"


def test_the_timer_waits_for_its_hour(service):
    def shown(name):
        return service.machine.do("systemctl", "show", "--value", f"--property={name}", TIMER).strip()

    assert (shown("ActiveState"), shown("UnitFileState"), shown("Unit")) == ("active", "enabled", BACKUP)
    assert shown("NextElapseUSecRealtime"), "no next time"


def test_a_backup_is_made_while_the_daemon_works_and_can_be_restored(service):
    service.start()
    pid = service.pid
    service.emit("runs.on")
    done = [service.emit("note", number=number) for number in range(3)]
    for trigger_id in done:
        service.until_settled(trigger_id)

    service.machine.do("systemctl", "start", BACKUP)

    assert (service.state, service.pid) == ("active", pid)
    folder = service.machine.path(STATE) / "backups"
    [manifest] = folder.glob("*.manifest.json")
    backup = manifest.with_name(manifest.name.removesuffix(".manifest.json"))
    assert json.loads(manifest.read_text())["rows"]["triggers"] == 4
    owner = service.machine.path(DATABASE).stat().st_uid
    assert {path.name for path in folder.iterdir()} == {backup.name, manifest.name}
    assert {(stat.S_IMODE(path.stat().st_mode), path.stat().st_uid) for path in folder.iterdir()} == {(0o600, owner)}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    restored = "/root/restored/craftcore.db"
    service.machine.do("craftcore", "--db", restored, "db", "restore", f"{STATE}/backups/{backup.name}")
    service.machine.do("craftcore", "--db", restored, "db", "check")
    rows = json.loads(service.machine.do("craftcore", "--db", restored, "--json", "trigger", "list"))
    assert {row["id"] for row in rows} > set(done)


def test_the_daemons_own_database_is_restored_by_root_and_the_daemon_can_open_it(service):
    """Stop, restore, start, release: as docs/operating.md has it."""
    service.start()
    note = service.emit("note", "--in", "1h")
    service.machine.do("systemctl", "start", BACKUP)
    [backup] = (service.machine.path(STATE) / "backups").glob("*.db")
    service.systemctl("stop")

    restored = service.craftcore("db", "restore", f"{STATE}/backups/{backup.name}", "--yes")

    assert restored.code == 0, restored
    service.start()
    until(lambda: "held" in service.shown("StatusText"), "it to be held", lambda: service.journal)
    assert service.craftcore("release").code == 0
    until(lambda: "held" not in service.shown("StatusText"), "it to go on", lambda: service.journal)
    assert service.trigger(note)["status"] == "PENDING"
    service.until_settled(service.emit("note"))
