"""craftcore under a real systemd: installation, start, kill, hang, reload, stop, backup and shutdown of the machine.

The tests are in one file, so that one worker has the machine. They run in order, from the installation on.
"""

from __future__ import annotations

import json
import stat

import pytest

from tests.systemd.installing import steps
from tests.systemd.machine import until
from tests.systemd.service import DATABASE, SETTINGS, STATE, UNIT

pytestmark = pytest.mark.system

# Installing: the steps of the page, word for word, on a Debian that has never seen craftcore


def test_install_page_steps_install_and_start_the_unit(server):
    root, installed = server

    assert installed.code == 0, installed
    for name in ("craftcore.service", "craftcore-backup.service", "craftcore-backup.timer"):
        assert f"wrote /etc/systemd/system/{name}" in installed.out
    assert "env /opt/craftcore/bin/craftcore run" in (root / "etc/systemd/system" / UNIT).read_text()
    assert (root / "var/lib/private/craftcore/craftcore.db").exists(), "`enable --now` has started it"


def test_unit_starts_at_the_next_boot_and_matches_the_page(machine):
    until(lambda: machine.run("systemctl", "is-active", UNIT).out == "active\n", "it to be started by nobody")

    said = machine.do("bash", "-eu", stdin=steps("use")).splitlines()

    assert said[0] == '"Hello, Ada!"'
    assert said[1].startswith("healthy: ")
    assert "all is well" in said
    assert any(line.startswith("ok    unit          /etc/systemd/system/craftcore.service is ours") for line in said)
    assert any(" craftcore[" in line and '"event":"daemon.ready"' in line for line in said), "the journal names it"


def test_unit_is_installed_with_all_its_files(machine):
    """The wheel has its migrations, its settings with their comments, and its units."""
    shipped = machine.do("craftcore", "systemd", "print", "--user", "--backup")
    machine.do("craftcore", "init", "/root/another")

    assert all(text in shipped for text in ("[Timer]", "ExecStart=/usr/bin/env /opt/craftcore/bin/craftcore run"))
    assert machine.path("/root/another/craftcore.toml").read_text().startswith("# Every setting of craftcore")
    checked = machine.run("craftcore", "--db", DATABASE, "db", "check")
    assert checked.code == 0, checked


# Starting: what systemd sees of it, and after which ends it begins anew


def test_unit_is_active_only_after_ready(service):
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


def test_unit_status_line_shows_the_work(service):
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
def test_failure_that_needs_a_person_is_not_restarted(service, spoil, code):
    """It would be `activating` if systemd meant to."""
    spoil(service)

    assert service.systemctl("start").code != 0

    service.until("ActiveState", "failed")
    assert (service.shown("ExecMainStatus"), service.shown("NRestarts")) == (str(code), "0"), service.journal


def test_temporary_failure_is_restarted_until_success(service):
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


# Dying, by every kind of death: it is started again, and nothing is lost


def test_unit_is_restarted_after_sigkill_and_completes_accepted_work(service):
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


def test_hung_loop_is_ended_by_the_watchdog_and_becomes_poison(service):
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


def test_six_quick_deaths_hold_scheduled_work_and_systemd_never_gives_up(service):
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


# Confinement: what the unit gives the daemon, and what it does not


DYNAMIC = range(61_184, 65_520)
"""The users that systemd makes up."""


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

    came = service.told("emit", "writes", "--payload", payload([*elsewhere, "/tmp/x", "here"]), "--wait")["result"]

    assert {path: came[path] for path in ("here", "/tmp/x")} == {"here": "written", "/tmp/x": "written"}
    assert {came[path] for path in elsewhere} <= {"Read-only file system", "Permission denied"}
    assert {path: service.machine.path(path).exists() for path in elsewhere} == before
    assert not service.machine.path("/tmp/x").exists(), "its /tmp is its own"


@pytest.mark.parametrize("unit", ["craftcore.service", "craftcore-backup.service"])
def test_unit_exposure_rated_by_systemd_is_low(service, unit):
    """By the unit as it is loaded, not as the file says."""
    service.machine.do("systemd-analyze", "security", "--no-pager", "--threshold=15", unit)


def test_emit_works_for_root_and_a_service_of_the_same_user_only(service):
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


# Reloading: it returns when the settings count, or fails and changes nothing


SCHEDULE = '[[schedule]]\nid = "{}"\nworkflow = "note"\nwhen = "every day at 3am"\ntimezone = "UTC"\n'


def test_reload_applies_settings_and_reports_the_effective_settings(service):
    service.start()
    pid = service.pid
    service.settings(SCHEDULE.format("nightly") + "[daemon]\nconcurrency = 3\n")

    reloaded = service.systemctl("reload")

    assert reloaded.code == 0, service.journal
    assert [one["id"] for one in service.told("schedule", "list")] == ["nightly"], "it is done when systemctl returns"
    assert "changed, and counts now: schedule\n" in service.journal
    assert "changed, and waits for the next start: daemon.concurrency\n" in service.journal
    assert (service.state, service.pid) == ("active", pid)


def test_reload_with_a_mistake_fails_and_the_daemon_continues_unchanged(service):
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


# Stopping, and the machine's own end: within the grace, and what was cut off comes again


OBSTINATE = ["sh", "-c", "trap '' TERM INT; while :; do sleep 0.1; done", "obstinate"]


def test_stop_ends_within_the_grace_with_any_work(service):
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


def test_daemon_continues_at_the_next_boot_after_an_orderly_shutdown(service):
    """Enabled, nobody has to start it."""
    service.settings("[daemon]\nshutdown_grace = 1.0\n")
    goes_on_after(service, service.machine.power_off)

    assert '"clean":true' in service.machine.do("journalctl", "--boot", f"--unit={UNIT}", "--output=cat")


def test_daemon_continues_at_the_next_boot_after_a_power_cut(service):
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


# Backing up: by the timer's service, beside the daemon


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
        service.until_settled(trigger_id)

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
    assert service.machine.path(DATABASE).stat().st_uid == uid, "the daemon's still"
    restored = "/root/restored/craftcore.db"
    service.machine.do("craftcore", "--db", restored, "db", "restore", f"{STATE}/backups/{backup.name}")
    service.machine.do("craftcore", "--db", restored, "db", "check")
    rows = json.loads(service.machine.do("craftcore", "--db", restored, "--json", "trigger", "list"))
    assert {row["id"] for row in rows} > set(done)


def test_database_restored_by_root_can_be_opened_by_the_daemon(service):
    """Stop, restore, start, release: as docs/how-to/back-up-and-restore.md has it."""
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


# The page: a unit beside the daemon's, as its user, without its secrets


PAGE = "craftcore-web.service"
PERSON = '[[web.person]]\nname = "ada"\ntoken = "credential:web-ada"\nmay = "act"\n'
ASKING = """
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
    service.settings(PERSON)
    service.start()
    block = steps("page", "answer-from-a-phone.md").replace("/srv/agent/craftcore.toml", SETTINGS)

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
    assert machine.do("/opt/craftcore/bin/python", "-c", ASKING) == "200\n303\n200 True\n"
    service.systemctl("stop")
    assert machine.do("/opt/craftcore/bin/python", "-c", ASKING).splitlines()[1:] == ["303", "200 True"], "also alone"
    assert machine.run("systemctl", "stop", PAGE).code == 0
    assert shown("Result") == "success"
    assert not (machine.path(STATE) / "web.sock").exists()


# The unit of a person's own: no root, no sandbox, and there while nobody is logged in


ADA = "/home/ada"


def test_user_installs_runs_reloads_and_backs_up_a_user_unit(machine):
    machine.do("useradd", "--create-home", "ada")
    machine.do("loginctl", "enable-linger", "ada")
    uid = machine.do("id", "--user", "ada").strip()
    until(lambda: machine.run("systemctl", "is-active", f"user@{uid}").out == "active\n", "a systemd of ada's own")

    def ada(*command):
        variables = [f"HOME={ADA}", f"XDG_RUNTIME_DIR=/run/user/{uid}"]
        return machine.do("setpriv", f"--reuid={uid}", f"--regid={uid}", "--init-groups", "env", *variables, *command)

    told = json.loads(ada("craftcore", "--json", "systemd", "install", "--user", "--backup"))
    for command in told["next"]:
        ada(*command)

    assert told["next"][-1] == ["systemctl", "--user", "enable", "--now", "craftcore", "craftcore-backup.timer"]
    who = json.loads(ada("craftcore", "emit", "command.run", "--payload", '{"argv": ["id", "-un"]}', "--wait"))
    assert who["stdout"] == "ada\n"
    ada("systemctl", "--user", "reload", "craftcore")
    ada("systemctl", "--user", "start", "craftcore-backup.service")
    assert len(list(machine.path(f"{ADA}/.local/state/craftcore/backups").glob("*.manifest.json"))) == 1
    assert ada("craftcore", "doctor").endswith("all is well\n")
    ada("systemctl", "--user", "stop", "craftcore")
