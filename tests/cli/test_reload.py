"""`craftcore reload` with a real daemon: changes applied now or at the next start, mistakes, and refused signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from craftcore.clock import SystemClock
from craftcore.config import Config
from craftcore.daemon.config_reload import answer
from craftcore.daemon.lock import DaemonLock
from craftcore.daemon.lock_note import LockInfo, note_line
from craftcore.daemon.lock_owner import open_daemon_process
from craftcore.errors import PermissionRefused
from craftcore.services import Services
from tests.cli.conftest import NOON
from tests.support.processes import APP, PATIENCE, a_daemon, craftcore, environment

NOBODY = 65_534
USER_NAMESPACE = ["unshare", "--user", "--map-root-user"]
"""A program in its own user namespace, as under PrivateUsers=yes of the system unit."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "craftcore.toml").write_text("")
    return tmp_path


@pytest.fixture
def daemon(folder):
    with a_daemon(folder, "app:app", "--config", "craftcore.toml") as daemon:
        yield daemon.ready()


@pytest.fixture
def settings(folder):
    return (folder / "craftcore.toml").write_text


def test_reload_lists_changes_applied_now_and_at_the_next_start(folder, daemon, settings):
    settings('[log]\nlevel = "error"\n[daemon]\nconcurrency = 3\n[retry]\nmax_attempts = 1\n')

    result = craftcore(folder, "reload")

    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines() == [
        "changed, and counts now: retry.max_attempts, log.level",
        "changed, and waits for the next start: daemon.concurrency",
    ]
    assert craftcore(folder, "emit", "later", "--wait", str(PATIENCE)).code == 4, "the reloaded limit is one attempt"
    again = craftcore(folder, "--json", "reload").json
    assert (again["ok"], again["applied"], again["at_next_start"]) == (True, [], ["daemon.concurrency"])
    assert (again["epoch"], again["number"], again["at_iso"][-1]) == (1, 2, "Z")
    settings('[log]\nlevel = "error"\n[retry]\nmax_attempts = 1\n')
    assert craftcore(folder, "reload").out == "read again: nothing has changed\n"


def test_reload_reports_that_a_notification_rule_waits_for_the_next_start(folder, daemon, settings):
    settings('[[notify]]\non = "dead"\ncommand = ["true"]\n')

    assert craftcore(folder, "reload").out == "changed, and waits for the next start: notify\n"


def test_reload_applies_a_schedule_of_the_settings_file_at_once(folder, daemon, settings):
    settings('[[schedule]]\nid = "often"\nworkflow = "greet"\nwhen = "every 1h"\n')

    assert craftcore(folder, "reload").out == "changed, and counts now: schedule\n"

    assert craftcore(folder, "--json", "schedule", "show", "often").json["status"] == "ACTIVE"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param('[log]\nlevel = "error"\nlevle = 1\n', "did you mean 'level'", marks=pytest.mark.acceptance),
        ('[log]\nlevel = "error"\n[[schedule]]\nid = "a"\nworkflow = "greet"\nwhen = "now and then"\n', "schedule a: "),
        pytest.param("[log\n", "is not TOML", marks=pytest.mark.acceptance),
    ],
)
def test_reload_with_a_mistake_changes_nothing_and_reports_the_mistake(folder, daemon, settings, text, line):
    settings(text)

    printed, document = craftcore(folder, "reload"), craftcore(folder, "--json", "reload")

    first, last = printed.out.splitlines()
    assert (printed.code, document.code, document.json["ok"]) == (78, 78, False)
    assert first.startswith("FAIL  ")
    assert line in first
    assert last == "nothing was changed: the daemon goes on with the settings as they were"
    assert document.json["refused"] == [first.removeprefix("FAIL  ")]
    settings("")
    assert craftcore(folder, "reload").out == "read again: nothing has changed\n"


def test_reload_reads_the_daemon_settings_and_ignores_the_caller_config(folder, daemon):
    (folder / "mine.toml").write_text("nonsense = 1\n")

    assert craftcore(folder, "--config", "mine.toml", "reload").out == "read again: nothing has changed\n"


def test_reload_reports_a_daemon_that_does_not_answer(folder, daemon, cli, monkeypatch):
    monkeypatch.setattr("craftcore.cli.service.reload.PATIENCE_SECONDS", 0.1)
    daemon.signal(signal.SIGSTOP)

    refused = cli("--db", str(folder / "agent.db"), "reload")

    assert (refused.code, refused.out) == (75, "")
    assert "has not answered" in refused.err
    daemon.signal(signal.SIGCONT)
    daemon.wait_for_notification("READY=1")


def _has_user_namespaces() -> bool:
    try:
        return subprocess.run([*USER_NAMESPACE, "true"], capture_output=True).returncode == 0
    except OSError:
        return False


@pytest.mark.skipif(
    not _has_user_namespaces(), reason="this machine lets nobody have users of their own (unshare --user)"
)
def test_reload_in_a_unit_sandbox_trusts_the_main_pid_of_systemd(folder, daemon):
    """The daemon's files in /proc are not readable in the sandbox. The kernel's list of locks is, and agrees with
    systemd.
    """

    def reload(main_pid):
        command = [*USER_NAMESPACE, sys.executable, "-m", "craftcore", "--db", "agent.db", "reload"]
        env = environment(MAINPID=str(main_pid))
        return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=PATIENCE)

    for ended in (reload(os.getpid()), reload(daemon.pid)):
        assert (ended.returncode, ended.stdout) == (0, "read again: nothing has changed\n"), ended.stderr


def test_reload_ignores_the_answer_to_an_earlier_request(folder, daemon, settings, cli, monkeypatch):
    """Two requests have the same time. The settings change between them, after the first answer."""
    database = folder / "agent.db"
    send = signal.pidfd_send_signal
    began = SystemClock().boot_time()

    def answered_before(*signalled: Any) -> None:
        core = Services(database, Config())
        with core.transaction() as tx:
            answer(tx, 1, began=began, applied=["retry"], at_next_start=[], refused=[])
        core.close()
        send(*signalled)

    monkeypatch.setattr(signal, "pidfd_send_signal", answered_before)
    settings("[daemon]\nconcurrency = 3\n")

    document = cli("--db", str(database), "--json", "reload").json

    assert (document["applied"], document["at_next_start"], document["number"]) == ([], ["daemon.concurrency"], 2)


# processes that receive no signal


@pytest.fixture
def lock(database):
    """Hold the lock as an engine embedded in this process, which SIGHUP would end."""
    with DaemonLock.acquire(database, pid=os.getpid(), host="here", now=NOON) as lock:
        yield lock


def test_reload_without_a_daemon_is_refused(cli, core, database):
    with DaemonLock.acquire(database, pid=os.getpid(), host="here", now=NOON):
        pass

    refused = cli("reload")

    assert (refused.code, refused.out) == (1, "")
    assert "no daemon runs on" in refused.err


def test_reload_sends_no_signal_to_a_program_without_a_handler(cli, core, lock):
    refused = cli("reload")

    assert (refused.code, refused.out) == (1, "")
    assert "runs the engine in a program of its own" in refused.err


def test_reload_sends_no_signal_for_a_stale_lock_note(cli, core, lock):
    """The lock is held, and its holder has not yet replaced the note of the previous holder."""
    with subprocess.Popen(["sleep", str(PATIENCE)]) as bystander:
        Path(lock.path).write_bytes(note_line(LockInfo(pid=bystander.pid, host="here", started_at=NOON)))

        refused = cli("reload")

        assert (refused.code, "just starting or ending" in refused.err) == (1, True)
        assert bystander.poll() is None
        bystander.kill()


def test_reload_sends_no_signal_for_an_empty_or_dead_lock_note(cli, core, lock):
    Path(lock.path).write_bytes(b"")
    assert "just starting or ending" in cli("reload").err

    with subprocess.Popen(["true"]) as ended:
        pass
    Path(lock.path).write_bytes(note_line(LockInfo(pid=ended.pid, host="there", started_at=NOON)))

    assert f"pid {ended.pid} on there, which cannot be seen from here" in cli("reload").err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_reload_sends_no_signal_to_a_daemon_of_another_user():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "app.py").write_text(APP)
        with a_daemon(folder, "app:app") as daemon:
            daemon.ready()
            folder.chmod(0o755)
            os.chown(folder / "agent.db.lock", NOBODY, NOBODY)
            os.seteuid(NOBODY)
            try:
                with (
                    pytest.raises(PermissionRefused, match="belongs to user id 0"),
                    open_daemon_process(folder / "agent.db"),
                ):
                    pass
            finally:
                os.seteuid(0)
            assert daemon.process.poll() is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_reload_sends_no_signal_to_a_main_pid_of_another_user(lock, cli, core, monkeypatch):
    """The command accepts MAINPID, and the kernel still refuses the signal."""
    with subprocess.Popen(["sleep", str(PATIENCE)], user=NOBODY) as bystander:
        Path(lock.path).write_bytes(note_line(LockInfo(pid=bystander.pid, host="here", started_at=NOON)))
        monkeypatch.setenv("MAINPID", str(bystander.pid))
        refusal = f"may not look at or signal the daemon, pid {bystander.pid}: run this as its user or as root"
        with (
            pytest.raises(PermissionRefused, match=f"^{refusal}$") as refused,
            open_daemon_process(core.database.path) as process,
        ):
            os.seteuid(NOBODY - 1)
            try:
                signal.pidfd_send_signal(process, signal.SIGHUP)
            finally:
                os.seteuid(0)

        assert refused.value.exit_code == 77
        assert bystander.poll() is None
        bystander.kill()
