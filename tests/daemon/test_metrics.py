"""The metrics of running engines, scraped over real sockets."""

from __future__ import annotations

import re
import shlex
import shutil
import stat
import subprocess
import sys
import threading

import anyio
import pytest

from craftcore import App, Fail, Snooze, TriggerSource
from craftcore.config import Config
from craftcore.daemon.lifespan import running
from craftcore.daemon.metrics import endpoint
from craftcore.daemon.metrics.counters import SCHEDULES_MAX, Counters
from craftcore.daemon.metrics.http_server import MetricsServer
from craftcore.daemon.metrics.prometheus import render
from craftcore.engine import scheduler
from craftcore.errors import CannotCreate, ConfigInvalid
from craftcore.triggers.backoff import RetryPolicy
from craftcore.triggers.listing_store import OLDEST_READY
from tests.support.code_blocks import PAGES
from tests.support.engine_harness import Lab, lab
from tests.support.fakes import NEW_YEAR, VirtualClock, VirtualCore, a_trigger
from tests.support.log_capture import capture_logs
from tests.support.metrics_client import Scrape, free_port, listening, scrape, scraped
from tests.support.populated_database import NOON, a_world
from tests.support.processes import APP, PATIENCE, a_daemon, craftcore, environment
from tests.support.trigger_steps import emit, start_one
from tests.triggers.test_claim_plans import fill

SOCKET = "unix:metrics.sock"
TWICE = RetryPolicy(max_attempts=2, base=0, cap=0)


def build_app(clock: VirtualClock) -> App:
    """Build an app whose runs take two seconds of the virtual clock and end in each possible way."""
    app = App("counted")
    again: list[str] = []

    @app.workflow("works", sources=[TriggerSource.MESSAGE])
    async def works() -> None:
        clock.advance(2)

    @app.workflow("fails")
    async def fails() -> None:
        raise Fail("VALIDATION_ERROR", "it never will")

    @app.workflow("breaks", retry=TWICE)
    async def breaks() -> None:
        raise RuntimeError("it broke")

    @app.workflow("snoozes")
    async def snoozes() -> None:
        if not again:
            again.append("again")
            raise Snooze(until=clock.now() + 3600)

    @app.workflow("hangs")
    async def hangs() -> None:
        await anyio.sleep_forever()

    return app


async def wait_for_all_settled(harness: Lab) -> None:
    await harness.until(lambda: not harness.rows("SELECT 1 FROM triggers WHERE settled_at IS NULL"))


@pytest.mark.anyio
@pytest.mark.parametrize("over", ["unix", "tcp", "tcp6"])
async def test_scrape_has_the_counts_so_far(tmp_path, clock, over):
    app, port = build_app(clock), free_port()
    listen, address = {
        "unix": (SOCKET, tmp_path / "metrics.sock"),
        "tcp": (f"127.0.0.1:{port}", ("127.0.0.1", port)),
        "tcp6": (f"[::1]:{port}", ("::1", port)),
    }[over]
    async with lab(app, tmp_path, listening(listen), clock) as harness:
        before = await scrape(address)
        assert before.all("craftcore_attempts_total") == {}

        await harness.settled((await app.emit("works", at=NEW_YEAR - 7)).id)
        snoozing = await app.emit("snoozes")
        await harness.until(lambda: harness.trigger(snoozing.id)["reason"] == "snoozed")
        clock.advance(hours=1)
        harness.engine.feeder.ring()
        for name in (snoozing.id, (await app.emit("fails")).id, (await app.emit("breaks")).id):
            await harness.settled(name)
        await harness.idle()
        hanging = await app.emit("hangs")
        await harness.until(lambda: harness.engine.running == 1)
        busy = await scrape(address)
        await harness.engine.client.cancel(hanging.id)
        await harness.settled(hanging.id)
        await harness.idle()
        found = await scrape(address)
        group = harness.engine.writer.group_commit
        flushed, pieces, size = group.commits, group.items, harness.path.stat().st_size

    assert busy.all("craftcore_triggers", "state") == {
        ("due",): 0,
        ("limited",): 0,
        ("later",): 0,
        ("held",): 0,
        ("claimed",): 0,
        ("running",): 1,
        ("dead",): 1,
    }
    assert found.all("craftcore_attempts_total", "workflow", "outcome") == {
        ("works", "done"): 1,
        ("fails", "failed"): 1,
        ("breaks", "retried"): 1,
        ("breaks", "dead"): 1,
        ("snoozes", "released"): 1,
        ("snoozes", "done"): 1,
        ("hangs", "cancelled"): 1,
    }
    assert found.value("craftcore_wait_seconds_sum", workflow="works") == 7
    assert found.value("craftcore_run_seconds_sum", workflow="works") == 2
    assert found.value("craftcore_run_seconds_count", workflow="breaks") == 2
    buckets = {
        le: count
        for (workflow, le), count in found.all("craftcore_run_seconds_bucket", "workflow", "le").items()
        if workflow == "works"
    }
    assert (buckets["1.0"], buckets["5.0"], buckets["+Inf"]) == (0, 1, 1)
    assert found.value("craftcore_flush_seconds_count") == found.value("craftcore_flush_pieces_count") == flushed
    assert found.value("craftcore_flush_pieces_sum") == pieces
    assert found.value("craftcore_database_read") == 1
    assert found.value("craftcore_epoch") == 1
    assert found.value("craftcore_database_bytes") == size > 0
    assert 0 < (found.value("craftcore_wal_in_use_bytes") or 0) <= (found.value("craftcore_wal_bytes") or 0)
    assert [value for (name, _), value in found.samples.items() if name == "craftcore_build_info"] == [1]


@pytest.mark.anyio
async def test_undeclared_workflows_are_counted_together(tmp_path, clock):
    core = VirtualCore(tmp_path / "agent.db", clock)
    for number in range(3):
        core.do(core.triggers.emit, a_trigger(workflow=f"made.up.{number}"))
    core.close()
    async with lab(build_app(clock), tmp_path, listening(SOCKET), clock) as harness:
        await wait_for_all_settled(harness)
        await harness.idle()
        found = await scrape(tmp_path / "metrics.sock")

    assert found.all("craftcore_attempts_total", "workflow", "outcome") == {("other", "failed"): 3}
    assert set(found.all("craftcore_wait_seconds_count", "workflow")) == {("other",)}


@pytest.mark.anyio
async def test_attempts_of_a_schedule_are_counted_by_its_id(tmp_path, clock):
    app = build_app(clock)
    app.schedule("first", "on startup", workflow="works")
    async with lab(app, tmp_path, listening(SOCKET), clock) as harness:
        await app.emit("works")
        await wait_for_all_settled(harness)
        found = await scrape(tmp_path / "metrics.sock")

    assert found.all("craftcore_schedule_attempts_total", "schedule", "outcome") == {("first", "done"): 1}


def test_schedules_beyond_the_limit_are_counted_together(clock):
    counters = Counters(set(), clock)
    for number in range(SCHEDULES_MAX + 3):
        counters.count_scheduled(f"s{number}", "done")
    counters.count_scheduled("s0", "failed")

    labels = {
        sample.labels["schedule"]
        for family in counters.registry.collect()
        for sample in family.samples
        if "schedule" in sample.labels
    }
    assert labels == {*(f"s{number}" for number in range(SCHEDULES_MAX)), "other"}


@pytest.mark.anyio
async def test_late_occurrence_is_counted_with_its_lateness(tmp_path, clock, monkeypatch):
    monkeypatch.setattr(scheduler, "RECHECK_SECONDS", 3600.0)
    app = build_app(clock)
    app.schedule("hourly", "every 1h", workflow="works")
    async with lab(app, tmp_path, listening(SOCKET), clock) as harness:
        clock.advance(hours=1, seconds=20)
        harness.engine.scheduler.ring()
        await harness.until(lambda: harness.engine.counts["DONE"] == 1)
        found = await scrape(tmp_path / "metrics.sock")

    assert found.value("craftcore_schedule_lateness_seconds_count") == 1
    assert found.value("craftcore_schedule_lateness_seconds_sum") in (20, 22)  # the run may have started by then


@pytest.mark.anyio
async def test_manual_or_startup_occurrence_is_not_late(tmp_path, clock):
    app = build_app(clock)
    app.schedule("first", "on startup", workflow="works")
    app.schedule("hourly", "0 * * * *", workflow="hangs")
    core = VirtualCore(tmp_path / "agent.db", clock)
    async with lab(app, tmp_path, listening(SOCKET), clock) as harness:
        await harness.until(lambda: harness.engine.counts["DONE"] == 1)
        core.do(core.schedules.backfill, "hourly", NEW_YEAR - 2 * 3600, NEW_YEAR - 3600)
        harness.engine.ring(schedules=True)
        await harness.until(lambda: harness.engine.running == 1)
        await harness.engine.client.cancel(harness.rows("SELECT id FROM triggers WHERE status = 'CLAIMED'")[0]["id"])
        await harness.until(lambda: len(harness.rows("SELECT 1 FROM triggers WHERE workflow = 'hangs'")) == 2)
        await harness.until(
            lambda: len(harness.rows("SELECT 1 FROM triggers WHERE started_at AND settled_at IS NULL")) == 1
        )
        await harness.until(lambda: harness.engine.running == 1)
        found = await scrape(tmp_path / "metrics.sock")
        harness.engine.stop_now()

    assert found.value("craftcore_schedule_lateness_seconds_count") == 0


@pytest.mark.anyio
async def test_engines_in_a_process_have_separate_counters(tmp_path, clock):
    folders = [tmp_path / "one", tmp_path / "two"]
    apps = [build_app(clock), build_app(clock)]
    async with lab(apps[0], folders[0], listening(SOCKET), clock) as one:
        async with lab(apps[1], folders[1], listening(SOCKET), clock) as two:
            for _ in range(3):
                await one.settled((await apps[0].emit("works")).id)
            await two.settled((await apps[1].emit("fails")).id)
            await one.idle()
            await two.idle()
            found = [await scrape(folder / "metrics.sock") for folder in folders]

    assert [each.all("craftcore_attempts_total", "workflow", "outcome") for each in found] == [
        {("works", "done"): 3},
        {("fails", "failed"): 1},
    ]


@pytest.mark.anyio
async def test_metrics_socket_of_another_engine_is_not_taken_over(tmp_path, clock):
    shared = listening(f"unix:{tmp_path}/shared.sock")
    async with lab(build_app(clock), tmp_path / "one", shared, clock):
        with pytest.raises(CannotCreate, match=r"another process listens at .*shared\.sock"):
            async with lab(build_app(clock), tmp_path / "two", shared, clock):
                raise AssertionError

        assert (await scrape(tmp_path / "shared.sock")).value("craftcore_database_read") == 1


@pytest.mark.anyio
async def test_metrics_without_the_extra_refuse_to_start_with_the_install_command(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)

    with pytest.raises(ConfigInvalid, match=r"metrics\.listen needs .*pip install 'craftcore\[metrics\]'"):
        async with running(App(), tmp_path / "agent.db", listening(SOCKET)):
            raise AssertionError
    async with running(App(), tmp_path / "agent.db", Config()):
        pass  # without `listen` the extra is not needed

    assert not (tmp_path / "metrics.sock").exists()


@pytest.mark.anyio
async def test_engine_error_is_reported_as_without_metrics(tmp_path, clock):
    with pytest.raises(LookupError, match="of the program"):
        async with lab(build_app(clock), tmp_path, listening(SOCKET), clock):
            raise LookupError("of the program")

    assert not (tmp_path / "metrics.sock").exists()


@pytest.mark.anyio
async def test_engine_continues_when_its_metrics_end(tmp_path, clock, monkeypatch):
    def raise_error(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(MetricsServer, "service_actions", raise_error)
    app = build_app(clock)
    with capture_logs() as logs:
        async with lab(app, tmp_path, listening(SOCKET), clock) as harness:
            await harness.until(lambda: any(line["event"] == "metrics.stopped" for line in logs))
            assert (await harness.settled((await app.emit("works")).id))["status"] == "DONE"


def count_above(found: Scrape, histogram: str, bound: str) -> float:
    """Return the number of values above a bound of the histogram."""
    count, at_most = found.value(f"{histogram}_count"), found.value(f"{histogram}_bucket", le=bound)
    assert count is not None
    assert at_most is not None
    return count - at_most


@pytest.mark.anyio
async def test_blocked_loop_shows_in_the_lag_histogram(tmp_path, clock, monkeypatch):
    monkeypatch.setattr(endpoint, "LAG_SECONDS", 0.01)
    socket_path = tmp_path / "metrics.sock"
    async with lab(build_app(clock), tmp_path, listening(SOCKET), clock):
        await anyio.sleep(0.02)
        threading.Event().wait(0.3)  # blocks the loop
        with anyio.fail_after(PATIENCE):
            while not (late_count := count_above(await scrape(socket_path), "craftcore_loop_lag_seconds", "0.25")):
                continue

    assert late_count >= 1


def test_daemon_listens_beside_its_database_for_its_owner_only(tmp_path):
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "craftcore.toml").write_text('[metrics]\nlisten = "unix:metrics.sock"\n')
    socket_path = tmp_path / "metrics.sock"
    with a_daemon(tmp_path, "app:app", CRAFTCORE_CONFIG="craftcore.toml") as daemon:
        daemon.ready()
        assert stat.S_IMODE(socket_path.stat().st_mode) == 0o600
        assert craftcore(tmp_path, "emit", "greet", "--wait", "60").code == 0

        ran = anyio.run(scrape, socket_path)

        assert ran.value("craftcore_attempts_total", workflow="greet", outcome="done") == 1
        daemon.kill()
    assert socket_path.exists()
    with a_daemon(tmp_path, "app:app", CRAFTCORE_CONFIG="craftcore.toml") as daemon:
        daemon.ready()  # the socket file of the killed daemon is replaced

        assert anyio.run(scrape, socket_path).value("craftcore_epoch") == 2


@pytest.mark.skipif(shutil.which("curl") is None, reason="the page asks with curl, which is not here")
def test_metrics_page_settings_and_command_give_a_scrape(tmp_path):
    page = PAGES["docs/reference/metrics.md"]
    [settings] = re.findall(r"```toml\n(\[metrics\]\n.*?)```", page, re.DOTALL)
    [command] = re.findall(r"^curl .*$", page, re.MULTILINE)
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "craftcore.toml").write_text(settings)
    with a_daemon(tmp_path, "app:app", CRAFTCORE_CONFIG="craftcore.toml") as daemon:
        daemon.ready()

        line = command.replace("~/.local/state/craftcore", str(tmp_path))
        asked = subprocess.run(shlex.split(line), capture_output=True, text=True, timeout=PATIENCE)

    assert scraped(asked.stdout.encode()).value("craftcore_epoch") == 1


def test_check_finds_that_the_extra_is_missing(tmp_path):
    (tmp_path / "craftcore.toml").write_text('[metrics]\nlisten = "unix:metrics.sock"\n')
    (tmp_path / "prometheus_client.py").write_text("raise ImportError")

    env = environment(CRAFTCORE_CONFIG="craftcore.toml", PYTHONPATH=f"{tmp_path}:{sys.path[0]}")
    check = [sys.executable, "-m", "craftcore", "--db", "agent.db", "check"]

    checked = subprocess.run(check, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=PATIENCE)

    assert checked.returncode == 78
    assert "FAIL  config: metrics.listen needs prometheus-client" in checked.stdout


# Database values in a scrape


def of_a_running_engine(core: VirtualCore) -> Scrape:
    """Return a scrape for which the claims are of this engine."""
    counters = Counters(set(), core.clock)
    counters.on_booted()
    return scraped(render(core, counters))


def test_gauges_show_the_state_of_the_database(tmp_path):
    a_world(tmp_path / "agent.db")
    core = VirtualCore(tmp_path / "agent.db", VirtualClock(now=NOON + 60))
    with core.reading() as reader:
        [dead] = reader.fetch_tuples("SELECT count(*) FROM triggers WHERE status = 'DEAD'")
        [questions] = reader.fetch_tuples("SELECT count(*) FROM questions WHERE status = 'OPEN'")

    found = of_a_running_engine(core)

    assert found.value("craftcore_held") == 1
    assert found.value("craftcore_schedules_held") == 0
    assert found.value("craftcore_safe_mode") == 0
    assert found.value("craftcore_activities_unknown") == 1
    assert found.value("craftcore_triggers", state="dead") == dead[0] > 0
    assert found.value("craftcore_questions_open") == questions[0] > 0
    assert found.value("craftcore_triggers", state="due") == 1
    assert found.value("craftcore_ready_age_seconds") == 60
    assert (found.value("craftcore_epoch") or 0) > 1


def test_claimed_unstarted_trigger_counts_as_waiting(core, clock):
    core.do(core.triggers.emit, a_trigger())
    clock.advance(30)
    core.do(core.claims.claim, epoch=1, limit=1)

    found = of_a_running_engine(core)

    assert found.value("craftcore_triggers", state="claimed") == 1
    assert found.value("craftcore_ready_age_seconds") == 30


def test_oldest_ready_trigger_is_found_by_live_indexes(core):
    with core.reading() as reader:
        plan = [row["detail"] for row in reader.fetch_all("EXPLAIN QUERY PLAN " + OLDEST_READY, now=0.0, claims_live=1)]

    touched = [step for step in plan if "triggers" in step]
    assert len(touched) == 2
    assert all("USING" in step and ("triggers_pending" in step or "triggers_claimed" in step) for step in touched)


def test_scrape_before_the_boot_counts_work_of_a_killed_daemon_as_due(core, clock):
    emit(core)
    start_one(core)
    clock.advance(7)
    counters = Counters({"greet"}, clock)

    before = scraped(render(core, counters))
    counters.on_booted()
    after = scraped(render(core, counters))

    found = [each.all("craftcore_triggers", "state") for each in (before, after)]
    assert [(one["due",], one["claimed",], one["running",]) for one in found] == [(1, 0, 0), (0, 0, 1)]
    assert [each.value("craftcore_ready_age_seconds") for each in (before, after)] == [7, 0]
    assert set(found[0]) == set(found[1])


def test_scrape_without_a_readable_database_has_the_counters(tmp_path, clock):
    core = VirtualCore(tmp_path / "agent.db", clock)
    counters = Counters({"greet"}, clock)
    counters.on_flushed(3, 0.001)
    core.database.path.write_bytes(b"no database" * 1000)

    found = scraped(render(core, counters))

    assert found.value("craftcore_database_read") == 0
    assert found.value("craftcore_ready_age_seconds") is None
    assert found.value("craftcore_flush_pieces_sum") == 3


def test_scrape_of_a_removed_database_has_the_counters(tmp_path, clock):
    core = VirtualCore(tmp_path / "agent.db", clock)
    core.close()
    counted = Counters({"greet"}, clock)
    core.database.path.unlink()

    found = scraped(render(core, counted))

    assert found.value("craftcore_database_read") == 0
    assert found.value("craftcore_database_bytes") == 0


def test_gauges_that_take_too_long_are_left_out(tmp_path, clock):
    core = VirtualCore(tmp_path / "agent.db", clock)
    with core.transaction() as tx:
        fill(tx, "many-", fire_at=NEW_YEAR - 100, many=20_000)
    counted = Counters({"greet"}, clock)

    assert scraped(render(core, counted)).value("craftcore_triggers", state="due") == 20_000
    assert scraped(render(core, counted, within=0.0)).value("craftcore_database_read") == 0


def test_metric_names_are_all_documented(core, clock):
    counters = Counters({"greet"}, clock)
    text = render(core, counters).decode()
    documented, _, _ = PAGES["docs/reference/metrics.md"].partition("## Workers of a cluster")

    names = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")}
    assert len(names) == 24
    assert [name for name in sorted(names) if f"`{name}`" not in documented] == []
    assert [name for name in re.findall(r"\| `?(craftcore_\w+)", documented) if name not in names] == []
