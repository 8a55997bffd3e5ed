"""Fixtures for every test. The tools behind them are in `tests/support`."""

from __future__ import annotations

import compileall
import contextlib
import gc
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from hashlib import sha256
from importlib import import_module
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings

from tests.support import log_capture
from tests.support.cells import SEED
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.processes import PATIENCE
from tests.support.run_costs import RunCosts
from tests.support.skips import is_permitted

# Each run has the same examples and no deadline, so that a slow machine or a new example fails no unrelated change.
# `--hypothesis-profile=default` searches for new examples. A property that needs more than fifty sets its own number.
settings.register_profile(
    "same everywhere",
    max_examples=50,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("same everywhere")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a background job; the programs of tests would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


ON_BOTH_LOOPS = {
    "daemon/test_doorbell",
    "daemon/test_embedded",
    "daemon/test_signals",
    "daemon/test_watchdog",
    "engine/test_act_fail_closed",
    "engine/test_act_interruptions",
    "engine/test_blocked_loop",
    "engine/test_callables",
    "engine/test_deadlines",
    "engine/test_due_emits",
    "engine/test_exclusive_run",
    "engine/test_feeder",
    "engine/test_internal_errors",
    "engine/test_loop_end",
    "engine/test_main_path",
    "engine/test_other_loops",
    "engine/test_router",
    "engine/test_stopping",
    "engine/test_turn_emits",
    "engine/test_turns",
    "engine/test_unawaited_calls",
    "engine/test_waits",
    "engine/test_worker_processes",
    "storage/test_checkpoints",
    "storage/test_writer",
    "storage/test_writer_faults",
}
"""Modules that test the bridge to the event loop, cancellation, suspension and the end of an engine.

All other asynchronous tests run on asyncio only, and with `-m campaign` on trio, unless they name their loops.
"""

HERE = Path(__file__).parent

SHARED_MEMORY = Path("/dev/shm")
SPACE_NEEDED = 2 << 30


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Put the files of the tests into memory if there is space, because a flush costs milliseconds on a disk.

    The bytecode of craftcore is compiled once, because each program of a test would need half a second for it. Programs
    write no bytecode: Python would not notice an app that a test changes within a second. The bytecode of pytest has
    rewritten asserts and is stored, because it takes 40 seconds of processor to make and two to read.
    """
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    os.environ.pop("PYTEST_ADDOPTS", None)  # a run of pytest that a test starts must not inherit the options
    sys.dont_write_bytecode = False
    if config.option.seed is not None:
        os.environ[SEED] = config.option.seed
    config.pluginmanager.register(RunCosts(config))
    if hasattr(config, "workerinput"):
        return
    compileall.compile_dir(HERE.parent / "craftcore", quiet=2)
    if config.option.basetemp is not None:
        return
    if SHARED_MEMORY.is_dir() and shutil.disk_usage(SHARED_MEMORY).free > SPACE_NEEDED:
        temporary = tempfile.mkdtemp(prefix="craftcore-tests-", dir=SHARED_MEMORY)
        config.option.basetemp = temporary
        config.add_cleanup(lambda: shutil.rmtree(temporary, ignore_errors=True))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--costs", action="store_true", help="print the seconds of processor of each folder, and fail on too many"
    )
    parser.addoption("--shuffle", metavar="WORD", help="run the files, and the tests of each, in a random order")
    parser.addoption(
        "--seed", metavar="WORD", help="draw the cells of large matrices by this word, as `-m acceptance` runs them"
    )


def pytest_xdist_auto_num_workers() -> int:
    """Return the number of workers of `-n auto`: two for each core, because workers wait at times.

    Each worker collects the tests, which takes ten seconds of processor.
    """
    return 2 * len(os.sched_getaffinity(0))


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Import the test files, in each worker from another file on. So the workers rewrite the asserts of a file once.

    The collection reports an import that fails.
    """
    worker = getattr(session.config, "workerinput", None)
    if worker is None or session.config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    files = sorted(HERE.rglob("test_*.py"))
    first = len(files) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
    for path in files[first:] + files[:first]:
        with contextlib.suppress(Exception):
            import_module(".".join(path.relative_to(HERE.parent).with_suffix("").parts))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Collect the tests without the garbage collector, which would scan all of them repeatedly."""
    gc.disable()
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish() -> None:
    """Freeze the collected objects, which each full garbage collection would scan."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark most tests on trio as campaigns, and shuffle the tests with `--shuffle`."""
    for item in items:
        callspec = getattr(item, "callspec", None)
        is_on_trio = callspec is not None and callspec.params.get("anyio_backend") == "trio"
        if is_on_trio and not _is_on_both_loops(item.path) and not _names_its_loops(item):
            item.add_marker(pytest.mark.campaign)
    if config.option.shuffle is not None:  # the order must be the same in each worker
        places = {item.nodeid: sha256(f"{config.option.shuffle} {item.nodeid}".encode()).digest() for item in items}
        files = {item.path: sha256(f"{config.option.shuffle} {item.path}".encode()).digest() for item in items}
        items.sort(key=lambda item: (files[item.path], places[item.nodeid]))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a test that is skipped for a reason that is not permitted."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if not is_permitted(reason):
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid} may not be skipped for this reason (tests/support/skips.py): {reason}"
    return report


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test marked `anyio` for each event loop, and only for asyncio if the others would be deselected."""
    fixtures = metafunc._arg2fixturedefs.get("anyio_backend", ())
    if not fixtures or fixtures[-1].func is not _anyio_backend:
        return  # the test has no event loop, or its own fixture
    if any("anyio_backend" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")):
        return  # the test names its loops
    is_alone = "not campaign" in metafunc.config.option.markexpr and not _is_on_both_loops(metafunc.definition.path)
    metafunc.parametrize("anyio_backend", ["asyncio"] if is_alone else ["asyncio", "trio"], indirect=True)


def _is_on_both_loops(path: Path) -> bool:
    return path.relative_to(HERE).with_suffix("").as_posix() in ON_BOTH_LOOPS


def _names_its_loops(item: pytest.Item) -> bool:
    """Return whether a mark of the test itself, not of its module, names its event loops."""
    return any(mark.name == "parametrize" and "anyio_backend" in mark.args[0] for mark in item.own_markers)


def _anyio_backend(request: pytest.FixtureRequest) -> str:
    """Return the event loop of a test marked `anyio`."""
    backend: str = request.param
    return backend


anyio_backend = pytest.fixture(_anyio_backend, name="anyio_backend")


@pytest.fixture(autouse=True)
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an engine wait for slow flushes when it stops, and let the function of a transaction take as long.

    A daemon would stop waiting after a few seconds.
    """
    monkeypatch.setattr("craftcore.engine.engine.DRAIN_SECONDS", PATIENCE)
    monkeypatch.setattr("craftcore.storage.user_sql.guard.APART_SECONDS", PATIENCE)


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    """Restore the configuration of logging, which is shared by all tests of a process."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    log_capture.reset()
    if structlog.is_configured():
        structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def core(tmp_path: Path, clock: VirtualClock) -> Iterator[VirtualCore]:
    core = VirtualCore(tmp_path / "agent.db", clock)
    yield core
    core.close()
