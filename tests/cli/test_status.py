"""`craftcore status`, `release`, `db`, `init` and `check`: the state of the engine and the suggested remedies."""

from __future__ import annotations

import os
import tomllib

import pytest

from craftcore.config import Config
from craftcore.daemon.lock import DaemonLock
from craftcore.engine import boot
from craftcore.storage.restored_work import begin_doubt, end_doubt
from tests.support.fake_payments import LOST, Bank
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.idle_database import a_task, at_rest
from tests.support.processes import APP, craftcore
from tests.support.trigger_steps import BROKEN, claim_one, emit, run_one, start_one


@pytest.fixture
def core(database):
    core = VirtualCore(database, VirtualClock(now=1_700_000_000.0))
    yield core
    core.close()


@pytest.fixture
def lock(database):
    """Hold the lock as a daemon, in this process."""
    with DaemonLock.acquire(database, pid=os.getpid(), host="here", now=1_700_000_000.0) as lock:
        yield lock


def hold(core, reason):
    core.do(lambda tx: tx.run("INSERT INTO facts VALUES ('held', :reason)", reason=reason))


# status


def test_status_prints_the_verdict_first(cli, core, database):
    emit(core)

    lines = cli("status").out.splitlines()

    assert lines[0] == f"down: no daemon runs on {database}; 1 due. Start one: craftcore run MODULE:APP"
    assert "triggers  due 1, later 0" in lines, "no work runs without a daemon"


def test_status_notes_that_restored_work_is_in_doubt_and_stays_healthy(cli, core, lock):
    core.do(begin_doubt, 3, None)
    now = core.clock.now()

    [line] = [line for line in cli("status").out.splitlines() if line.startswith("restored")]
    assert line.endswith("may have been done before (see: craftcore release --help)")
    document = cli("--json", "status").json
    assert (document["health"], document["restored_at"]) == ("healthy", now)
    core.do(end_doubt)
    assert "restored" not in cli("status").out
    assert cli("--json", "status").json["restored_at"] is None


def test_status_names_the_running_daemon(cli, core, lock):
    document = cli("--json", "status").json

    assert (document["ok"], document["verdict"]) == (True, "healthy: 0 at work, 0 due")
    assert document["daemon"] == {
        "running": True,
        "booting": False,
        "stuck": False,
        "pid": os.getpid(),
        "host": "here",
        "started_at": 1_700_000_000.0,
        "started_at_iso": "2023-11-14T22:13:20.000Z",
    }
    assert f"daemon    pid {os.getpid()} on here, since 2023-11-14 22:13:20Z" in cli("status").out


def test_status_counts_triggers_by_state(cli, core, lock):
    emit(core, max_attempts=1)
    run_one(core, BROKEN)
    emit(core)
    start_one(core)
    emit(core)
    claim_one(core)
    emit(core, at=1_700_000_001.0)
    emit(core, at=4e9)

    document = cli("--json", "status").json

    assert document["counts"] == {
        "due": 1,
        "limited": 0,
        "later": 1,
        "held": 0,
        "claimed": 1,
        "running": 1,
        "cut_off": 0,
        "dead": 1,
    }
    assert document["oldest_due_at"] == 1_700_000_001.0
    assert "dead      1 (see: craftcore dead list)" in cli("status").out


def test_status_counts_cut_off_work_while_no_daemon_runs(cli, core):
    emit(core)
    start_one(core)

    dead = cli("status").out

    see = "craftcore inspect --list --status incomplete"
    assert f"cut off   1 of those due ran when the daemon ended (see: {see})\n" in dead
    assert "triggers  due 1, later 0\n" in dead
    assert "; 1 due. Start one" in dead
    assert "oldest    due since " in dead
    with DaemonLock.acquire(core.database.path, pid=os.getpid(), host="here", now=0.0):
        alive = cli("status").out
        assert "cut off" not in alive
        assert "triggers  due 0, later 0, claimed 0, running 1\n" in alive


def test_hold_is_the_first_line_of_status_until_release(cli, core, lock):
    hold(core, "it was restored\x1b[2J")

    assert cli("status").out.startswith(
        "degraded: everything is held: it was restored\\x1b[2J. Look at it, then: craftcore release\n"
    )

    assert cli("release").out == "released; it was held because it was restored\\x1b[2J\n"
    assert cli("release").out == "nothing was held\n"
    assert cli("--json", "release").json == {"released": False, "reason": None, "doubt_ended": False}
    assert cli("--json", "status").json["held"] is None


def test_status_shows_whether_the_last_daemon_ended_in_order(cli, core):
    def boot_engine(tx):
        process = boot.Process(boot_id="b", machine_boot_id=None, pid=1, host="h", version="1")
        return boot.boot(
            tx, core.claims, core.acts, core.resume_contract, process, ["greet"], new_database_id="d", last_seen=None
        ).epoch

    epoch = core.do(boot_engine)
    assert "epoch     1, started" in cli("status").out
    assert "died" in cli("status").out

    core.do(boot.end, core.claims, core.acts, epoch)
    assert "ended in order" in cli("status").out


# Irreversible actions


def test_status_counts_actions_in_doubt_with_the_oldest_until_resolved(cli, clock, database):
    bank = Bank(database, clock)
    assert bank.pay()
    assert cli("--json", "status").json["in_doubt"] == {"count": 0, "oldest": None}
    assert "in doubt" not in cli("status").out
    first = bank.pay(LOST)
    clock.advance(minutes=30)
    second = bank.pay(LOST)

    def line():
        return [line for line in cli("status").out.splitlines() if line.startswith("in doubt")]

    in_doubt = cli("--json", "status").json["in_doubt"]
    assert (in_doubt["count"], in_doubt["oldest"]["key"]) == (2, f"activity:{first}:1.1")
    assert line() == [
        "in doubt  2 irreversible, undecided; the oldest bank.pay, called 30 min ago "
        f"(see: craftcore activity show activity:{first}:1.1)"
    ]
    cli("activity", "resolve", first, "--give-up")
    assert (
        "in doubt  1 irreversible, undecided; the oldest bank.pay, called 0.0 s ago (see: craftcore activity show "
        f"activity:{second}:1.1)" in cli("status").out
    )
    cli("activity", "resolve", second, "--resend")
    assert line() == []


# Tasks


async def nothing(app):
    """Do nothing: the engine runs the due work."""


def test_status_counts_tasks_and_omits_the_line_without_tasks(cli, clock, database):
    a_task(database, "plain", clock)
    assert cli("--json", "status").json["tasks"] == {"running": 0, "waiting": 0, "questions": 0, "held": 0}
    assert not any(line.startswith("tasks ") for line in cli("status").out.splitlines())

    for workflow in ("ask", "nap", "count", "shaky"):
        a_task(database, workflow, clock)

    document = cli("--json", "status").json
    assert document["tasks"] == {"running": 1, "waiting": 2, "questions": 1, "held": 0}
    assert document["restart"] is None
    lines = cli("status").out.splitlines()
    assert "tasks     running 1, waiting 2, questions 1 (see: craftcore inbox list)" in lines


def test_status_shows_tasks_resumed_by_the_last_start(cli, clock, database):
    def interrupted():
        """Run a task whose daemon is killed meanwhile, and return its id."""
        task_id = a_task(database, "wait", clock)
        core = VirtualCore(database, clock)
        core.do(core.tasks.signal, task_id, "approved")
        start_one(core)
        core.do(lambda tx: tx.run("UPDATE epochs SET ended_at = NULL"))
        core.close()
        return task_id

    old = interrupted()
    clock.advance(hours=30)
    at_rest(database, nothing, clock)
    restart = cli("--json", "status").json["restart"]
    assert (restart["resumed"], restart["stale"], restart["tasks"]) == (0, 1, [old])
    assert (restart["at"], restart["at_iso"]) == (clock.now(), "2026-11-22T18:00:00.000Z")
    stale = "restart   resumed 0; stale 1, which were interrupted too long ago to go on unasked"
    assert f"{stale} (see: craftcore inbox list)" in cli("status").out.splitlines()

    fresh = interrupted()
    at_rest(database, nothing, clock)
    assert cli("--json", "status").json["restart"]["tasks"] == [fresh]
    assert "restart   resumed 1" in cli("status").out.splitlines()

    at_rest(database, nothing, clock)
    assert cli("--json", "status").json["restart"] is None, "the last start found no running task"


# db


def test_stats_show_the_size_of_each_table_and_index(cli, core):
    emit(core)

    document = cli("--json", "db", "stats").json

    assert document["rows"] == {"triggers": 1, "executions": 0, "event_rows": 0, "epochs": 0}
    sizes = {row["name"]: row["bytes"] for row in document["sizes"]}
    assert sizes["triggers"] > 0
    assert sizes["triggers_pending"] > 0
    unaccounted = document["pages"] - document["free_pages"] - sum(sizes.values()) // document["page_size"]
    assert unaccounted in (0, 1), "only a page of the incremental vacuum is not counted"
    assert "triggers_pending" in cli("db", "stats").out


def test_migrate_reports_nothing_to_apply_and_is_refused_beside_a_daemon(cli, core, database):
    assert cli("db", "migrate").out == "up to date: nothing to apply\n"
    assert cli("--json", "db", "migrate").json == {"applied": []}

    with DaemonLock.acquire(database, pid=os.getpid(), host="here", now=0.0):
        refused = cli("db", "migrate")

    assert (refused.code, f"pid {os.getpid()} on here" in refused.err) == (75, True)


def test_release_without_a_daemon_has_a_notice(cli, core):
    hold(core, "it was restored")

    assert cli("release").out.splitlines() == [
        "released; it was held because it was restored",
        "no daemon runs; it goes on with the next one: craftcore run MODULE:APP",
    ]


# init and check


def test_init_writes_a_project_that_passes_check(cli, tmp_path):
    made = cli("init", "new")

    assert (made.code, made.err) == (0, "")
    assert "cd new" in made.out
    assert Config.load(tmp_path / "new" / "craftcore.toml") == Config()
    assert tomllib.loads((tmp_path / "new" / "craftcore.toml").read_text())["daemon"]["concurrency"] == 16
    checked = craftcore(tmp_path / "new", "--config", "craftcore.toml", "check", "app:app")
    assert (checked.code, "app:app declares greet, report" in checked.out) == (0, True)


@pytest.mark.parametrize("name", ["app.py", "craftcore.toml"])
def test_init_overwrites_nothing_and_writes_all_or_nothing(cli, tmp_path, name):
    (tmp_path / name).write_text("mine")

    refused = cli("init")

    assert (refused.code, "is not overwritten; nothing was written" in refused.err) == (73, True)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "mine"


def test_check_lists_every_problem_at_once(tmp_path):
    (tmp_path / "app.py").write_text("import nonsense_module")
    (tmp_path / "bad.toml").write_text("[log]\nlevle = 1")
    (tmp_path / "agent.db").write_text("This is not a database. " * 100)
    (tmp_path / "agent.db").chmod(0o644)

    found = craftcore(tmp_path, "--config", "bad.toml", "check", "app:app")

    assert found.code == 78
    failed = [line for line in found.out.splitlines() if line.startswith("FAIL")]
    assert [line.split()[1] for line in failed] == ["config:", "app:", "database:", "permissions:"]
    assert (tmp_path / "agent.db").stat().st_mode & 0o777 == 0o644


def test_check_exits_1_for_a_problem_outside_the_settings(cli, core, database):
    assert cli("check").code == 0
    database.chmod(0o640)

    found = cli("--json", "check")

    assert (found.code, found.json["ok"]) == (1, False)
    [bad] = [one for one in found.json["checks"] if not one["ok"]]
    assert bad["check"] == "permissions"
    assert "mode 640" in bad["message"]


def test_check_before_the_first_start_creates_nothing(cli, tmp_path):
    (tmp_path / "app.py").write_text(APP)

    found = cli("check", "--db", str(tmp_path / "state" / "agent.db"))

    assert found.code == 0
    assert "is not there yet" in found.out
    assert not (tmp_path / "state").exists()


ACTIONS = """
from craftcore import App, OnUnknown

app = App()

@app.action("send_email")
async def send(call): ...

@app.action("sms.preview", irreversible=False)
async def preview(call): ...

@app.action("pay", irreversible=True)
async def pay(call): ...

@app.action("weather")
async def weather(call): ...
"""

UNRECONCILED = (
    ACTIONS
    + """
@app.action("wire", irreversible=True, on_unknown=OnUnknown.RECONCILE)
async def wire(call): ...

@app.action("ship", irreversible=True, on_unknown="reconcile")
async def ship(call): ...
"""
)


CHECKED = """
from craftcore import App

app = App()

def find_wide_tools():
    yield "tool search may write, and is no action"
    yield "tool mail may write, and is no action"

def fail():
    raise LookupError("no tools")

app.checks += [find_wide_tools, fail, lambda: ()]
"""


def test_check_prints_the_sentences_of_the_checks_of_an_app(tmp_path):
    (tmp_path / "app.py").write_text(CHECKED)

    found = craftcore(tmp_path, "--json", "check", "app:app")

    assert (found.code, found.json["ok"]) == (0, True)
    first, second, failed = found.json["warnings"]
    assert (first, second) == ("tool search may write, and is no action", "tool mail may write, and is no action")
    assert failed.startswith("<function fail at 0x")
    assert failed.endswith("> of app.checks failed: LookupError: no tools")


def test_check_warns_of_an_action_without_an_irreversible_setting(tmp_path):
    (tmp_path / "app.py").write_text(ACTIONS)

    found, document = craftcore(tmp_path, "check", "app:app"), craftcore(tmp_path, "--json", "check", "app:app")

    assert (found.code, document.code, document.json["ok"]) == (0, 0, True)
    assert [line for line in found.out.splitlines() if line.startswith("warn")] == [
        "warn  action send_email: after a crash it may be done again: say irreversible=True, or irreversible=False "
        "where that does no harm"
    ]
    assert document.json["warnings"] == [line[6:] for line in found.out.splitlines() if line.startswith("warn")]
    assert "app:app declares no workflow, and the actions send_email, sms.preview, pay, weather" in found.out


def test_check_refuses_reconcile_actions_without_a_reconciler(tmp_path):
    (tmp_path / "app.py").write_text(UNRECONCILED)

    found = craftcore(tmp_path, "check", "app:app")

    assert found.code == 78
    assert [line for line in found.out.splitlines() if line.startswith("FAIL")] == [
        "FAIL  app: action wire: on_unknown=RECONCILE, and no reconcile of it is declared",
        "FAIL  app: action ship: on_unknown=RECONCILE, and no reconcile of it is declared",
    ]
    refused = craftcore(tmp_path, "run", "app:app", "--until-idle")
    assert (refused.code, "action wire: on_unknown=RECONCILE" in refused.err) == (78, True)
    assert not (tmp_path / "agent.db").exists(), "the command created a database"


FALLING_BACK = """
from craftcore import App

app = App()

@app.workflow("tidy", fallback=["command.run", "email.send", "http.request"])
def tidy(argv: list[str]): ...
"""


def test_check_resolves_fallback_names_like_the_daemon(tmp_path):
    (tmp_path / "app.py").write_text(FALLING_BACK)

    assert craftcore(tmp_path, "run", "app:app", "--until-idle").code == 0
    assert craftcore(tmp_path, "check", "app:app").code == 0

    (tmp_path / "app.py").write_text(FALLING_BACK.replace("email.send", "email.sent"))

    found = craftcore(tmp_path, "check", "app:app")
    assert (found.code, "tidy falls back to email.sent" in found.out) == (78, True)
