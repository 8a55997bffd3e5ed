"""`craftcore run` with real processes and real signals: start, readiness, shutdown and exit codes."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import apsw
import pytest

from craftcore.config import Config, LogSettings, RetrySettings
from craftcore.daemon.config_reload import list_changed_keys
from craftcore.daemon.lock import DaemonLock
from craftcore.daemon.status_line import Condition, status_text
from craftcore.producer import Producer
from tests.support.command_calls import call_command
from tests.support.processes import APP, PATIENCE, a_daemon, craftcore, read_trace, until
from tests.support.warm_parent import FINALIZES


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


def statuses(folder: Path) -> dict[str, tuple[str, str]]:
    """Return status and reason of the trigger of each workflow."""
    rows = call_command(folder, "--json", "trigger", "list").json
    return {row["workflow"]: (row["status"], row["reason"]) for row in rows}


def test_ready_is_sent_after_the_boot_and_work_begins_at_once(folder):
    with a_daemon(folder, "app:app") as daemon:
        ready = daemon.wait_for_notification("READY=1")

        status = call_command(folder, "--json", "status").json
        assert ready in ("READY=1\nSTATUS=running 0, due 0", "READY=1\nSTATUS=running 0")
        assert (status["ok"], status["epoch"], status["daemon"]["pid"]) == (True, 1, daemon.pid)
        done = craftcore(folder, "emit", "greet", "--payload", '{"name": "Ada"}', "--wait", str(PATIENCE))
        assert (done.code, done.out, done.err) == (0, '"Hello Ada"\n', "")


BLOCKING_APP = (
    APP
    + """
@app.workflow("holds")
async def holds() -> None:
    trace("holds")
    while not os.path.exists("go"):
        time.sleep(0.01)
"""
)


def test_ready_is_sent_before_any_handler_runs(folder):
    """The watchdog starts with READY, so a loop that hangs before would last until the start timeout of systemd."""
    (folder / "app.py").write_text(BLOCKING_APP)
    for _ in range(3):
        call_command(folder, "emit", "holds")
    with a_daemon(folder, "app:app") as daemon:
        daemon.ready()

        until(lambda: "holds" in read_trace(folder), "the handler that holds the loop")
        (folder / "go").touch()
        until(lambda: statuses(folder)["holds"][0] == "DONE", "it to be done")


def test_second_daemon_exits_75_and_names_the_first(folder):
    with a_daemon(folder, "app:app") as daemon:
        daemon.ready()

        second = craftcore(folder, "run", "app:app")

        assert second.code == 75
        [line] = second.err.splitlines()
        assert line.startswith(f"craftcore: another daemon holds this database: pid {daemon.pid} on ")
        assert call_command(folder, "db", "migrate").code == 75


def test_removed_lock_file_is_restored_and_keeps_a_second_daemon_out(folder):
    with a_daemon(folder, "app:app") as daemon:
        daemon.ready()
        [lock] = folder.glob("*.lock")
        note = lock.read_bytes()

        lock.unlink()

        until(lambda: "lock.put_back" in daemon.log, "it to be put back, a second later", timeout=20.0)
        assert lock.read_bytes() == note
        second = craftcore(folder, "run", "app:app")
        assert second.code == 75
        assert second.err.startswith(f"craftcore: another daemon holds this database: pid {daemon.pid} on ")


def test_daemon_whose_lock_was_taken_by_another_ends_and_reports_the_cause(folder):
    with a_daemon(folder, "app:app") as daemon:
        daemon.ready()
        [lock] = folder.glob("*.lock")

        daemon.signal(signal.SIGSTOP)  # so that the other process acts first
        lock.unlink()
        with DaemonLock.acquire(folder / lock.stem, pid=4711, host="there", now=0):
            daemon.signal(signal.SIGCONT)
            assert daemon.wait(timeout=20.0) == 75

        assert f"{lock} was removed, and another daemon holds this database: pid 4711 on there" in daemon.log


def test_sigterm_lets_running_work_finish_within_the_grace(folder):
    """The process ends with a full finalization of the interpreter, as a real daemon does."""
    with a_daemon(folder, "app:app", **{FINALIZES: "yes"}) as daemon:
        daemon.ready()
        call_command(folder, "emit", "slow")
        until(lambda: "slow begins" in read_trace(folder))

        daemon.signal(signal.SIGTERM)

        assert daemon.wait_for_notification("STOPPING=1") == "STOPPING=1\nSTATUS=stopping; 1 still running"
        (folder / "go").touch()
        assert daemon.wait() == 0
    assert read_trace(folder) == ["slow begins", "slow ends"]
    assert statuses(folder) == {"slow": ("DONE", "succeeded")}


def test_second_signal_cancels_at_once_and_returns_the_attempt(folder):
    with a_daemon(folder, "app:app") as daemon:
        daemon.ready()
        call_command(folder, "emit", "slow")
        until(lambda: "slow begins" in read_trace(folder))
        daemon.signal(signal.SIGINT)
        daemon.wait_for_notification("STOPPING=1")

        daemon.signal(signal.SIGTERM)

        assert daemon.wait() == 0
    assert read_trace(folder) == ["slow begins", "slow cancelled"]
    [row] = call_command(folder, "--json", "trigger", "list").json
    assert (row["status"], row["reason"], row["attempts"]) == ("PENDING", "shutdown", 0)


def test_thread_that_never_returns_does_not_hold_the_process(folder):
    with a_daemon(folder, "app:app") as daemon:
        daemon.ready()
        call_command(folder, "emit", "stuck")
        until(lambda: "stuck begins" in read_trace(folder))
        daemon.signal(signal.SIGTERM)
        daemon.wait_for_notification("STOPPING=1")

        daemon.signal(signal.SIGTERM)

        assert daemon.wait() == 0
    assert statuses(folder)["stuck"][0] == "PENDING"


def test_running_code_is_cancelled_by_the_command(folder):
    with a_daemon(folder, "app:app") as daemon:
        daemon.ready()
        emitted = call_command(folder, "--json", "emit", "slow").json
        until(lambda: "slow begins" in read_trace(folder))

        cancelled = call_command(folder, "trigger", "cancel", emitted["id"])

        assert cancelled.out == f"{emitted['id']} has started; asked to cancel\n"
        until(lambda: statuses(folder)["slow"] == ("DONE", "cancelled"))
        assert "slow cancelled" in read_trace(folder)


@pytest.mark.parametrize(
    ("workflow", "code", "status"),
    [("greet", 0, "DONE"), ("fails", 4, "FAILED"), ("breaks", 4, "DEAD"), ("later", 0, "PENDING")],
)
def test_until_idle_leaves_when_nothing_is_due_and_says_whether_work_failed(folder, workflow, code, status):
    """The trigger of `later` is in backoff, which is not a failure."""
    call_command(folder, "emit", workflow)

    ended = craftcore(folder, "run", "app:app", "--until-idle")

    assert ended.code == code, ended.err
    assert statuses(folder)[workflow][0] == status


def test_paused_accepts_and_claims_nothing(folder):
    with a_daemon(folder, "--paused", "app:app") as daemon:
        assert "paused" in daemon.wait_for_notification("READY=1")
        waited = call_command(folder, "emit", "greet", "--wait", "0.3")

    assert waited.code == 75
    assert "still PENDING" in waited.err
    assert read_trace(folder) == []


def test_daemon_without_an_app_runs_programs(folder):
    call_command(folder, "emit", "command.run", "--payload", '{"argv": ["echo", "it works"]}')

    assert craftcore(folder, "run", "--until-idle").code == 0
    [row] = call_command(folder, "--json", "trigger", "list").json
    shown = call_command(folder, "--json", "trigger", "show", row["id"]).json
    assert shown["executions"][0]["response"]["payload"]["stdout"] == "it works\n"


def test_sighup_applies_a_new_log_level_and_lists_settings_that_need_a_restart(folder):
    settings = folder / "craftcore.toml"
    settings.write_text("")

    def reload(text):
        settings.write_text(text)
        daemon.signal(signal.SIGHUP)
        daemon.wait_for_notification("READY=1")
        return [line for line in daemon.log.splitlines() if "config." in line][-1]

    def failures():
        assert call_command(folder, "emit", "fails", "--wait", str(PATIENCE)).code == 4
        return daemon.log.count("trigger.settled")

    with a_daemon(folder, "app:app", "--config", "craftcore.toml") as daemon:
        daemon.ready()

        assert "config.unchanged" in reload("")
        until(lambda: failures() >= 1)
        changed = json.loads(reload('[log]\nlevel = "error"\n[daemon]\nconcurrency = 3\n'))
        assert (changed["applied"], changed["at_next_start"]) == (["log.level"], ["daemon.concurrency"])
        assert failures() == failures(), "only errors are logged now"
        assert "did you mean 'level'" in reload("[log]\nlevle = 1\n")
        reload('[log]\nlevel = "warning"\n')
        before = failures()
        until(lambda: failures() > before)


def test_sighup_takes_over_the_schedules_of_the_file_at_once(folder):
    settings = folder / "craftcore.toml"
    settings.write_text("")
    table = '[[schedule]]\nid = "often"\nworkflow = "greet"\nwhen = "{}"\n'

    def reload(text):
        settings.write_text(text)
        daemon.signal(signal.SIGHUP)
        daemon.wait_for_notification("READY=1")
        return [line for line in daemon.log.splitlines() if "config." in line][-1]

    with a_daemon(folder, "app:app", "--config", "craftcore.toml") as daemon:
        daemon.ready()

        assert json.loads(reload(table.format("every 1s")))["applied"] == ["schedule"]
        until(lambda: "greet you" in read_trace(folder))
        assert "every weekday at 9am" in reload(table.format("every weekday"))
        reload("")

    [schedule] = call_command(folder, "--json", "schedule", "list").json
    assert (schedule["status"], schedule["reason"]) == ("DISABLED", "no longer declared in the configuration file")


def test_watchdog_is_pinged_while_the_engine_makes_progress(folder):
    with a_daemon(folder, "app:app", WATCHDOG_USEC="200000") as daemon:
        daemon.ready()

        assert [daemon.wait_for_notification("WATCHDOG=1") for _ in range(2)] == ["WATCHDOG=1", "WATCHDOG=1"]


def test_write_lock_of_another_process_causes_no_restart(folder):
    """A killed daemon would leave running work in doubt and meet the same lock at its next start."""
    with a_daemon(folder, "app:app", WATCHDOG_USEC="200000") as daemon:
        daemon.ready()
        holder = apsw.Connection(str(folder / "agent.db"))
        holder.set_busy_timeout(10_000)
        holder.execute("BEGIN IMMEDIATE")

        pings = [daemon.wait_for_notification("WATCHDOG=1") for _ in range(30)]  # some may be from before the lock

        assert len(pings) == 30
        holder.execute("ROLLBACK")
        holder.close()
        emitted = call_command(folder, "--json", "emit", "greet", "--wait", "60").json
        assert emitted["status"] == "DONE"


BROKEN_ENGINE_APP = """
from craftcore import App
from craftcore.engine.feeder import Feeder
from craftcore.errors import StorageError

async def broken(self):
    raise {error}

Feeder.feed = broken
app = App()
"""


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (
            "ZeroDivisionError('ouch')",
            70,
            "craftcore: the engine ended without being asked to: an error of craftcore, "
            "ZeroDivisionError: ouch. Running then: nothing. ",
        ),
        ("StorageError('the disk is gone')", 74, "craftcore: the disk is gone"),
    ],
)
def test_engine_error_is_a_single_line_and_a_bug_has_its_traceback_in_the_log(folder, error, code, line):
    (folder / "app.py").write_text(BROKEN_ENGINE_APP.format(error=error))

    ended = craftcore(folder, "run", "app:app")

    assert ended.code == code
    assert ended.err.splitlines()[-1].startswith(line)
    assert ("Traceback" in ended.err) == (code == 70)
    assert sum(text.startswith("craftcore: ") for text in ended.err.splitlines()) == 1


def test_killed_daemon_leaves_its_work_to_the_next(folder):
    with a_daemon(folder, "app:app") as daemon:
        daemon.ready()
        emitted = call_command(folder, "--json", "emit", "slow").json
        until(lambda: "slow begins" in read_trace(folder))
        daemon.kill()
    explanation = call_command(folder, "trigger", "why", emitted["id"])
    text = " ".join(explanation.out.split())
    assert re.search(
        r"cut off: attempt 1, started [\d.]+ s ago, ended with the daemon of epoch 1; due when a daemon starts:", text
    )
    (folder / "go").touch()

    assert craftcore(folder, "run", "app:app", "--until-idle").code == 0

    assert statuses(folder) == {"slow": ("DONE", "succeeded")}


def test_status_is_sent_again_when_changed(folder):
    with a_daemon(folder, "app:app") as daemon:
        daemon.ready()
        with Producer(folder / "agent.db") as producer:
            producer.emit("slow")

        assert daemon.wait_for_notification("STATUS=running 1").startswith("STATUS=running 1, due 0")


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        (Condition(running=0, due=None, settled={}), "running 0"),
        (
            Condition(running=2, due=14, settled={"DONE": 3, "PENDING": 1, "DEAD": 1}),
            "running 2, due 14; settled DEAD 1, DONE 3",
        ),
        (Condition(running=0, due=1, settled={}, held="it was restored"), "held: it was restored; running 0, due 1"),
        (Condition(running=0, due=1, settled={}, storage_full=True), "disk full, claiming nothing; running 0, due 1"),
        (
            Condition(running=0, due=1, settled={}, lock_wait=2.0),
            "waiting for another process that holds the write lock; running 0, due 1",
        ),
        (Condition(running=0, due=1, settled={}, lock_wait=0.2), "running 0, due 1"),
        (
            Condition(running=0, due=1, settled={}, checkpoint_failed=True),
            "checkpoints fail: the database file cannot be written; running 0, due 1",
        ),
        (
            Condition(running=0, due=1, settled={}, flush_seconds=5.0),
            "slow disk: a flush takes about 5 s; running 0, due 1",
        ),
    ],
)
def test_status_line_begins_with_the_problem(condition, text):
    assert status_text(condition) == text


def test_changed_settings_are_named():
    fresh = Config(log=LogSettings(level="debug"), retry=RetrySettings(max_attempts=3))

    assert list_changed_keys(Config(), fresh) == ["retry.max_attempts", "log.level"]
