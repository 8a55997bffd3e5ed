"""craftcore under a real systemd: installation, start, kill, hang, reload, stop, backup and shutdown of the machine.

The tests are in one file, so that one worker has the machine. They run in order, from the installation on.
"""

from __future__ import annotations

import json
import stat

import pytest

from tests.systemd.installing import read_steps
from tests.systemd.machine import wait_until
from tests.systemd.service import DATABASE, SETTINGS, STATE, UNIT

pytestmark = pytest.mark.system

# Installation: the steps of the page, word for word, on a Debian without craftcore


def test_install_page_steps_install_and_start_the_unit(server):
    root, installed = server

    assert installed.code == 0, installed
    for name in ("craftcore.service", "craftcore-backup.service", "craftcore-backup.timer"):
        assert f"wrote /etc/systemd/system/{name}" in installed.out
    assert "env /opt/craftcore/bin/craftcore run" in (root / "etc/systemd/system" / UNIT).read_text()
    assert (root / "var/lib/private/craftcore/craftcore.db").exists(), "`enable --now` has started it"


def test_unit_starts_at_the_next_boot_and_matches_the_page(machine):
    wait_until(lambda: machine.run("systemctl", "is-active", UNIT).out == "active\n", "the start at boot")

    lines = machine.do("bash", "-eu", stdin=read_steps("use")).splitlines()

    assert lines[0] == '"Hello, Ada!"'
    assert lines[1].startswith("healthy: ")
    assert "all is well" in lines
    assert any(line.startswith("ok    unit          /etc/systemd/system/craftcore.service is ours") for line in lines)
    assert any(" craftcore[" in line and '"event":"daemon.ready"' in line for line in lines), (
        "the journal has the identifier"
    )


def test_unit_is_installed_with_all_its_files(machine):
    """The wheel has its migrations, its settings with their comments, and its units."""
    shipped = machine.do("craftcore", "systemd", "print", "--user", "--backup")
    machine.do("craftcore", "init", "/root/another")

    assert all(text in shipped for text in ("[Timer]", "ExecStart=/usr/bin/env /opt/craftcore/bin/craftcore run"))
    assert machine.path("/root/another/craftcore.toml").read_text().startswith("# Every setting of craftcore")
    checked = machine.run("craftcore", "--db", DATABASE, "db", "check")
    assert checked.code == 0, checked


# Start: the state that systemd shows, and the exit codes after which it restarts the unit


def test_unit_is_active_only_after_ready(service):
    """The import of the app delays the start until the test removes a file."""
    hold = service.machine.path("/srv/agent/hold")
    hold.touch()

    service.systemctl("start", "--no-block")

    service.wait_for_trace("import")
    assert (service.state, service.property_value("SubState"), service.property_value("StatusText")) == (
        "activating",
        "start",
        "",
    )
    assert service.machine.run("systemctl", "is-active", "craftcore").out == "activating\n"
    assert service.pid > 0
    hold.unlink()
    service.wait_for_property("ActiveState", "active")
    assert service.property_value("StatusText") == "running 0"
    assert service.journal.index("engine.booted") < service.journal.index("Started craftcore.service")


def test_unit_status_line_shows_the_work(service):
    service.start()
    service.emit("runs.on")

    wait_until(lambda: service.property_value("StatusText").startswith("running 1"), "the status line")

    assert '"running 1' in service.machine.do("systemctl", "status", "--no-pager", "craftcore")
    service.finish_runs()
    wait_until(lambda: "settled DONE 1" in service.property_value("StatusText"), "the status line")


def misspell(service):
    service.write_settings("[daemon]\nconcurency = 1\n")


def damage(service):
    service.start().systemctl("stop")
    service.machine.path(DATABASE).write_bytes(b"this is no database" * 1000)


def uninstall(service):
    service.write_drop_in("gone", "ExecStart=", "ExecStart=/usr/bin/env craftcore-removed run")


@pytest.mark.parametrize(("spoil", "code"), [(misspell, 78), (damage, 65), (uninstall, 127)])
def test_failure_that_needs_a_person_is_not_restarted(service, spoil, code):
    """The state would be `activating` if systemd were to restart the unit."""
    spoil(service)

    assert service.systemctl("start").code != 0

    service.wait_for_property("ActiveState", "failed")
    assert (service.property_value("ExecMainStatus"), service.property_value("NRestarts")) == (str(code), "0"), (
        service.journal
    )


def test_temporary_failure_is_restarted_until_success(service):
    """Another daemon holds the database: the exit code is 75."""
    another = ["--unit=another", "--property=Type=notify", "--property=DynamicUser=yes", "--property=User=craftcore"]
    service.machine.do(
        "systemd-run", *another, "--property=StateDirectory=craftcore", "/opt/craftcore/bin/craftcore", "run"
    )
    service.write_drop_in("soon", "RestartSec=200ms")

    assert service.systemctl("start").code != 0

    wait_until(lambda: int(service.property_value("NRestarts")) >= 2, "two more attempts", lambda: service.journal)
    assert service.property_value("ExecMainStatus") in ("0", "75")
    assert "another daemon holds this database: pid " in service.journal
    service.machine.do("systemctl", "stop", "another")
    service.wait_for_property("ActiveState", "active")


# Kills and hangs: the unit is restarted, and no work is lost


def test_unit_is_restarted_after_sigkill_and_completes_accepted_work(service):
    """The kill meets running work, also a program of a command. More triggers are emitted while no daemon runs."""
    service.start()
    running = service.emit("runs.on")
    service.emit("command.run", argv=["sleep", "98765"])
    accepted = [service.emit("note", number=number) for number in range(3)]
    later = service.emit("note", "--in", "1h", number=99)
    service.wait_for_trace("runs on")
    [program] = wait_until(lambda: service.pids_of("98765"), "the program to run")

    killed = service.kill()

    accepted += [service.emit("note", number=number) for number in range(3, 6)]
    assert service.state == "activating", "systemd waits its RestartSec=5"
    service.wait_for_restart(killed)
    assert (service.property_value("NRestarts"), service.property_value("Result")) == ("1", "success")
    for trigger_id in accepted:
        service.wait_for_status(trigger_id)
    service.wait_for_trace("runs on", times=2)
    [again] = wait_until(lambda: service.pids_of("98765"), "a single new run of the program")
    assert again != program
    service.finish_runs()
    service.wait_for_status(running)
    assert service.trace_lines.count("finished") == 1
    assert service.trigger(later)["status"] == "PENDING"
    assert "the daemon before this one died" in service.craftcore("status").out


def test_hung_loop_is_ended_by_the_watchdog_and_becomes_poison(service):
    """The hanging trigger runs three times, the third time alone; other accepted work completes."""
    service.write_drop_in("impatient", "WatchdogSec=3", "RestartSec=200ms")
    service.start()
    first = service.pid
    poison = service.emit("hangs")
    service.wait_for_trace("hangs")
    other = service.emit("note", number=7)

    service.wait_for_restart(first)

    assert "Watchdog timeout (limit 3s)!" in service.journal
    dead = service.wait_for_status(poison, "DEAD")
    assert (dead["error_code"], service.trace_lines.count("hangs")) == ("POISON", 3)
    assert service.journal.count("Watchdog timeout (limit 3s)!") == 3
    service.wait_for_status(other)
    assert service.state == "active"


def test_six_quick_kills_hold_scheduled_work_and_systemd_never_gives_up(service):
    service.write_settings('[[schedule]]\nid = "often"\nworkflow = "note"\npayload = {number = 1}\nwhen = "every 1s"\n')
    service.write_drop_in("soon", "RestartSec=200ms")
    service.start()
    pid = service.pid
    kills = 0
    while "safe mode" not in service.property_value("StatusText"):
        assert kills < 6, service.property_value("StatusText")
        service.kill()
        kills += 1
        pid = service.wait_for_restart(pid)

    assert (kills, service.state, service.property_value("NRestarts")) == (6, "active", "6")
    before = service.trace_lines.count("note 1")
    service.wait_for_status(service.emit("note", number=2))  # emitted work is not held
    assert service.trace_lines.count("note 1") == before
    service.craftcore("release")
    service.wait_for_trace("note 1", times=before + 1)


# Confinement: the rights of the daemon under the unit


DYNAMIC = range(61_184, 65_520)
"""The ids of the users that systemd allocates for units with DynamicUser."""


def test_unit_runs_as_its_own_user_without_rights(service):
    service.start()
    status = dict(
        line.split(":\t", 1) for line in service.machine.do("cat", f"/proc/{service.pid}/status").splitlines()
    )

    assert {int(uid) in DYNAMIC for uid in status["Uid"].split()} == {True}
    assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert service.machine.run("getent", "passwd", "craftcore").out.split(":")[2:3] in ([], [status["Uid"].split()[0]])
    assert "craftcore" not in service.machine.path("/etc/passwd").read_text()


def test_unit_files_are_private_to_its_user(service):
    service.start()
    service.emit("note")
    home = service.machine.path(STATE)
    uid = service.owner

    assert home.readlink().as_posix() == "private/craftcore"
    assert stat.S_IMODE(home.stat().st_mode) == stat.S_IMODE(home.parent.joinpath("private").stat().st_mode) == 0o700
    found = {path.name: path.lstat() for path in home.iterdir()}
    names = [f"craftcore.db{suffix}" for suffix in ("", "-wal", "-shm", ".lock", ".bell")]
    assert set(names) <= set(found)
    assert {name: oct(stat.S_IMODE(found[name].st_mode)) for name in found} == dict.fromkeys(found, "0o600")
    assert {found[name].st_uid for name in found} == {uid}
    assert stat.S_ISSOCK(found["craftcore.db.bell"].st_mode)


def test_unit_can_write_only_in_its_directory(service):
    elsewhere = ["/etc/x", "/srv/agent/x", "/opt/craftcore/x", "/usr/local/bin/x", "/var/lib/x", "/root/x", "/home/x"]
    before = {path: service.machine.path(path).exists() for path in elsewhere}
    service.start()

    outcomes = service.run_json("emit", "writes", "--payload", payload([*elsewhere, "/tmp/x", "here"]), "--wait")[
        "result"
    ]

    assert {path: outcomes[path] for path in ("here", "/tmp/x")} == {"here": "written", "/tmp/x": "written"}
    assert {outcomes[path] for path in elsewhere} <= {"Read-only file system", "Permission denied"}
    assert {path: service.machine.path(path).exists() for path in elsewhere} == before
    assert not service.machine.path("/tmp/x").exists(), "the unit has a private /tmp"


@pytest.mark.parametrize("unit", ["craftcore.service", "craftcore-backup.service"])
def test_unit_exposure_rated_by_systemd_is_low(service, unit):
    """systemd-analyze rates the loaded unit, with its drop-ins."""
    service.machine.do("systemd-analyze", "security", "--no-pager", "--threshold=15", unit)


def test_emit_works_for_root_and_a_service_of_the_same_user_only(service):
    """Each emit wakes the daemon at once, for the polling interval is 30 seconds."""
    service.write_settings("[daemon]\npoll_seconds = 30.0\n")
    service.start()
    own = [f"--property={line}" for line in read_steps("producer").splitlines()]

    service.machine.do("systemd-run", "--wait", "--quiet", *own, "/opt/craftcore/bin/craftcore", "emit", "note")
    service.wait_for_status(service.emit("note", number=1))
    refused = service.machine.run(
        "setpriv", "--reuid=nobody", "--clear-groups", "craftcore", "--db", DATABASE, "emit", "note"
    )

    wait_until(lambda: {"note 0", "note 1"} <= set(service.trace_lines), "both to be done")
    assert (refused.code, refused.out) == (77, ""), refused
    assert service.craftcore("doctor").code == 0, "no file belongs to root"


def payload(paths):
    return json.dumps({"paths": paths})


# Reload: it returns when the settings are in effect, or fails and changes nothing


SCHEDULE = '[[schedule]]\nid = "{}"\nworkflow = "note"\nwhen = "every day at 3am"\ntimezone = "UTC"\n'


def test_reload_applies_settings_and_reports_the_effective_settings(service):
    service.start()
    pid = service.pid
    service.write_settings(SCHEDULE.format("nightly") + "[daemon]\nconcurrency = 3\n")

    reloaded = service.systemctl("reload")

    assert reloaded.code == 0, service.journal
    assert [one["id"] for one in service.run_json("schedule", "list")] == ["nightly"], (
        "the reload is complete when systemctl returns"
    )
    assert "changed, and counts now: schedule\n" in service.journal
    assert "changed, and waits for the next start: daemon.concurrency\n" in service.journal
    assert (service.state, service.pid) == ("active", pid)


def test_reload_with_a_mistake_fails_and_the_daemon_continues_unchanged(service):
    service.write_settings(SCHEDULE.format("nightly"))
    service.start()
    pid = service.pid
    service.write_settings(SCHEDULE.format("another") + "[daemon]\nconcurency = 3\n")

    refused = service.systemctl("reload")

    assert refused.code != 0
    assert "did you mean 'concurrency'" in service.journal
    assert "nothing was changed: the daemon goes on with the settings as they were" in service.journal
    assert [one["id"] for one in service.run_json("schedule", "list")] == ["nightly"]
    assert (service.state, service.pid, service.property_value("NRestarts")) == ("active", pid, "0")
    service.wait_for_status(service.emit("note"))
    service.write_settings(SCHEDULE.format("another"))
    assert service.systemctl("reload").code == 0, service.journal


# Stop and shutdown: both end within the grace, and interrupted work runs again


OBSTINATE = ["sh", "-c", "trap '' TERM INT; while :; do sleep 0.1; done", "obstinate"]


def test_stop_ends_within_the_grace_with_any_work(service):
    """The grace and the stop timeout are 27 seconds shorter than in the shipped unit, so the margin is the same."""
    service.write_settings("[daemon]\nshutdown_grace = 3.0\n")
    service.write_drop_in("sooner", "TimeoutStopSec=18")
    service.start()
    interrupted = [service.emit("runs.on"), service.emit("command.run", argv=OBSTINATE)]
    service.wait_for_trace("runs on")
    wait_until(lambda: service.pids_of("obstinate"), "the program to run")

    assert service.systemctl("stop").code == 0

    ended = {name: service.property_value(name) for name in ("ActiveState", "Result", "ExecMainStatus", "ExecMainCode")}
    assert ended == {"ActiveState": "inactive", "Result": "success", "ExecMainStatus": "0", "ExecMainCode": "1"}
    assert '"signal":"SIGTERM","running":2' in service.journal
    assert "Killing process" not in service.journal, "systemd killed no process"
    assert service.pids_of("obstinate") == []
    assert service.trace_lines[-1] == "cancelled"
    for trigger_id in interrupted:
        trigger = service.trigger(trigger_id)
        assert (trigger["status"], trigger["attempts"]) == ("PENDING", 0), "given back"
    service.start()
    service.wait_for_trace("runs on", times=2)
    service.finish_runs()
    service.wait_for_status(interrupted[0])


def test_daemon_continues_at_the_next_boot_after_an_orderly_shutdown(service):
    """The unit is enabled, so the boot starts it."""
    service.write_settings("[daemon]\nshutdown_grace = 1.0\n")
    require_continuation_after(service, service.machine.power_off)

    assert '"clean":true' in service.machine.do("journalctl", "--boot", f"--unit={UNIT}", "--output=cat")


def test_daemon_continues_at_the_next_boot_after_a_power_cut(service):
    """Every process ends at once. Lost disk writes are the subject of tests/crash/."""
    require_continuation_after(service, service.machine.cut_power)

    assert '"clean":false' in service.machine.do("journalctl", "--boot", f"--unit={UNIT}", "--output=cat")


def require_continuation_after(service, end):
    """End the machine during work, boot it again, and require that the daemon continues."""
    service.start()
    running = service.emit("runs.on")
    later = service.emit("note", "--in", "1h")
    service.wait_for_trace("runs on")

    end()
    assert "finished" not in service.trace_lines
    service.machine.boot()

    wait_until(lambda: service.state == "active", "the unit to be started", lambda: service.journal)
    service.wait_for_trace("runs on", times=2)
    service.finish_runs()
    assert service.trigger(later)["status"] == "PENDING"
    service.wait_for_status(running)


# Backup: by the service of the timer, beside the daemon


BACKUP, TIMER = "craftcore-backup.service", "craftcore-backup.timer"


def test_backup_timer_waits_for_its_hour(service):
    def shown(name):
        return service.machine.do("systemctl", "show", "--value", f"--property={name}", TIMER).strip()

    assert (shown("ActiveState"), shown("UnitFileState"), shown("Unit")) == ("active", "enabled", BACKUP)
    assert shown("NextElapseUSecRealtime"), "no next time"


def test_backup_beside_a_working_daemon_can_be_restored(service):
    service.start()
    pid = service.pid
    service.emit("runs.on")
    done = [service.emit("note", number=number) for number in range(3)]
    for trigger_id in done:
        service.wait_for_status(trigger_id)

    uid = service.owner

    service.machine.do("systemctl", "start", BACKUP)

    assert (service.state, service.pid) == ("active", pid)
    folder = service.machine.path(STATE) / "backups"
    [manifest] = folder.glob("*.manifest.json")
    backup = manifest.with_name(manifest.name.removesuffix(".manifest.json"))
    assert json.loads(manifest.read_text())["rows"]["triggers"] == 4
    assert {path.name for path in folder.iterdir()} == {backup.name, manifest.name}
    assert {(stat.S_IMODE(path.stat().st_mode), path.stat().st_uid) for path in folder.iterdir()} == {(0o600, uid)}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert service.machine.path(DATABASE).stat().st_uid == uid, "the daemon still owns it"
    restored = "/root/restored/craftcore.db"
    service.machine.do("craftcore", "--db", restored, "db", "restore", f"{STATE}/backups/{backup.name}")
    service.machine.do("craftcore", "--db", restored, "db", "check")
    rows = json.loads(service.machine.do("craftcore", "--db", restored, "--json", "trigger", "list"))
    assert {row["id"] for row in rows} > set(done)


def test_database_restored_by_root_can_be_opened_by_the_daemon(service):
    """The order is stop, restore, start and release, as in docs/how-to/back-up-and-restore.md."""
    service.start()
    note = service.emit("note", "--in", "1h")
    service.machine.do("systemctl", "start", BACKUP)
    [backup] = (service.machine.path(STATE) / "backups").glob("*.db")
    service.systemctl("stop")

    restored = service.craftcore("db", "restore", f"{STATE}/backups/{backup.name}", "--yes")

    assert restored.code == 0, restored
    service.start()
    wait_until(lambda: "held" in service.property_value("StatusText"), "the hold", lambda: service.journal)
    assert service.craftcore("release").code == 0
    wait_until(lambda: "held" not in service.property_value("StatusText"), "the release", lambda: service.journal)
    assert service.trigger(note)["status"] == "PENDING"
    service.wait_for_status(service.emit("note"))


# The page: a second unit, with the user of the daemon and without the secrets of the daemon


PAGE = "craftcore-web.service"
PERSON = '[[web.person]]\nname = "ada"\ntoken = "credential:web-ada"\nmay = "act"\n'
PAGE_CLIENT = """
import http.client, socket, sys, urllib.parse

class Page(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect("/var/lib/craftcore/web.sock")

def ask(method, address, body=None, **headers):
    page = Page("localhost")
    page.request(method, address, body, {name.replace("_", "-"): value for name, value in headers.items()})
    answer = page.getresponse()
    return answer.status, answer.getheader("set-cookie") or "", answer.read().decode()

print(ask("GET", "/up")[0])
form = urllib.parse.urlencode({"name": "ada", "token": open("/etc/craftcore/web-ada").read().strip()})
kind = "application/x-www-form-urlencoded"
status, cookie, _ = ask("POST", "/login", form, Sec_Fetch_Site="same-origin", Content_Type=kind)
print(status)
status, _, text = ask("GET", "/", Cookie=cookie.partition(";")[0])
print(status, "ada" in text)
"""


def test_page_installed_as_documented_answers_over_its_socket(service):
    machine = service.machine
    service.write_settings(PERSON)
    service.start()
    block = read_steps("page", "answer-from-a-phone.md").replace("/srv/agent/craftcore.toml", SETTINGS)

    machine.do("bash", "-eu", "-o", "pipefail", "-c", f"cd /root\n{block}")

    def shown(name):
        return machine.do("systemctl", "show", "--value", f"--property={name}", PAGE).strip()

    found = (shown("ActiveState"), shown("StatusText"), shown("MemoryMax"))
    assert found == ("active", "serving the page", str(160 << 20))
    pid = shown("MainPID")
    assert machine.do("stat", "--format=%u", f"/proc/{pid}").strip() == str(service.owner), "the user of the daemon"
    status = dict(line.split(":\t", 1) for line in machine.do("cat", f"/proc/{pid}/status").splitlines())
    assert {status[name] for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert stat.S_IMODE((machine.path(STATE) / "web.sock").stat().st_mode) == 0o600
    machine.do("systemd-analyze", "security", "--no-pager", "--threshold=15", PAGE)
    assert machine.do("/opt/craftcore/bin/python", "-c", PAGE_CLIENT) == "200\n303\n200 True\n"
    service.systemctl("stop")
    assert machine.do("/opt/craftcore/bin/python", "-c", PAGE_CLIENT).splitlines()[1:] == ["303", "200 True"], (
        "the page also works without the daemon"
    )
    assert machine.run("systemctl", "stop", PAGE).code == 0
    assert shown("Result") == "success"
    assert not (machine.path(STATE) / "web.sock").exists()


# The user unit: without root, without a sandbox, and active without a login


ADA = "/home/ada"


def test_user_installs_runs_reloads_and_backs_up_a_user_unit(machine):
    machine.do("useradd", "--create-home", "ada")
    machine.do("loginctl", "enable-linger", "ada")
    uid = machine.do("id", "--user", "ada").strip()
    wait_until(
        lambda: machine.run("systemctl", "is-active", f"user@{uid}").out == "active\n", "the systemd of the user ada"
    )

    def ada(*command):
        variables = [f"HOME={ADA}", f"XDG_RUNTIME_DIR=/run/user/{uid}"]
        return machine.do("setpriv", f"--reuid={uid}", f"--regid={uid}", "--init-groups", "env", *variables, *command)

    installed = json.loads(ada("craftcore", "--json", "systemd", "install", "--user", "--backup"))
    for command in installed["next"]:
        ada(*command)

    assert installed["next"][-1] == ["systemctl", "--user", "enable", "--now", "craftcore", "craftcore-backup.timer"]
    result = json.loads(ada("craftcore", "emit", "command.run", "--payload", '{"argv": ["id", "-un"]}', "--wait"))
    assert result["stdout"] == "ada\n"
    ada("systemctl", "--user", "reload", "craftcore")
    ada("systemctl", "--user", "start", "craftcore-backup.service")
    assert len(list(machine.path(f"{ADA}/.local/state/craftcore/backups").glob("*.manifest.json"))) == 1
    assert ada("craftcore", "doctor").endswith("all is well\n")
    ada("systemctl", "--user", "stop", "craftcore")
