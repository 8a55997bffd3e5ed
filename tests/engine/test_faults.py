"""Faults of the engine while it handles one trigger: only that trigger fails, in every function of the engine."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FunctionType
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest

from craftcore import App, Continue, RetryPolicy, Route, TaskContext, TriggerSpec
from craftcore.clock import SystemClock
from craftcore.daemon.lifespan import running
from craftcore.engine.runner import Runner
from craftcore.errors import EngineCrashed
from craftcore.storage.repeated_reads import RepeatedReads
from tests.support.cells import some_cells
from tests.support.engine_harness import look, settings
from tests.support.faults import Fault, Recording, When
from tests.support.log_capture import capture_logs
from tests.support.made_schema import create_schema
from tests.support.processes import PATIENCE

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited"),  # the error was raised before the first await
]

HEALTHY = 3
SESSION = "session"
"""The session of the routed victim and of the healthy trigger behind it."""

STARTS_MAX = 8
"""Two shared crashes, one crash alone, which quarantines the trigger, and a start for the rest; the same for its child.
An error before an attempt begins charges no crash and leads to safe mode."""

FAULTS: list[tuple[float, When]] = [(1, "before"), (math.inf, "before"), (1, "after"), (math.inf, "after")]
"""How often a function raises, and whether before or after its work."""

MAIN_PATH = {
    f"craftcore.engine.{name}"
    for name in ["router_call", "attempt_commits", "consumer", "feeder", "claim_window", "runner"]
}

LIVE_TRIGGERS = "SELECT id, status FROM triggers WHERE status IN ('PENDING', 'CLAIMED')"
LIVE_TASK = "SELECT 1 FROM tasks WHERE id = :id AND status IN ('RUNNING', 'WAITING')"


class OneSessionRouter:
    async def route(self, trigger: Any, context: Any) -> Route:
        return Route(workflow="routed", session_id=f"of-{trigger.id}")


def build_app() -> App:
    app = App(router=OneSessionRouter())
    twice = RetryPolicy(max_attempts=2, base=0, cap=0)

    @app.workflow("healthy")
    async def healthy(n: int) -> int:
        await anyio.lowlevel.checkpoint()
        return n

    @app.workflow("returns", retry=twice)
    async def returns() -> dict[str, int]:
        return {"n": 1}

    @app.workflow("plain", retry=twice)
    def plain() -> None:
        return None

    @app.workflow("raises", retry=twice)
    async def raises() -> None:
        raise ValueError("no")

    @app.workflow("falls", retry=twice, fallback=["returns"])
    async def falls() -> None:
        raise ValueError("no")

    @app.workflow("routed", retry=twice)
    async def routed() -> None:
        return None

    @app.workflow("task", retry=twice)
    async def task(ctx: TaskContext[int]) -> Any:
        await ctx.step("one", str, ctx.turn)
        await ctx.note("here")
        await ctx.act(pay)
        await ctx.emit("healthy", {"n": 1})
        return Continue(1) if ctx.turn == 1 else "done"

    @app.workflow("waits", retry=twice)
    async def waits(ctx: TaskContext) -> None:
        child = await ctx.start_child("healthy", {"n": 1})
        await child.result()
        await ctx.sleep(0)

    @app.action("pay", irreversible=True)
    async def pay(call: Any) -> str:
        return "paid"

    return app


SCENARIOS = ("returns", "plain", "raises", "falls", None, "task", "waits")


async def functions_of(scenario: str | None, folder: Path, concurrency: int = 4) -> list[FunctionType]:
    """Return the engine functions that handle the trigger of a scenario in a run without errors."""
    with Recording() as recording:
        faulty_run = FaultyRun(scenario, folder, concurrency)
        await faulty_run.start(lambda: setattr(recording, "name", faulty_run.victim))
    assert faulty_run.crashes == 0
    [victim] = look(faulty_run.path, "SELECT status FROM triggers WHERE id = 'victim'")
    assert victim["status"] == ("DEAD" if scenario == "raises" else "DONE")
    return recording.functions()


class FaultyRun:
    """A database with a victim of faults among healthy triggers, and the starts of its engine."""

    def __init__(self, scenario: str | None, folder: Path, concurrency: int = 4) -> None:
        self.path = folder / "agent.db"
        self._settings = settings(shutdown_grace=1, concurrency=concurrency)
        self.victim = "victim"
        self.crashes = 0
        self._workflow = scenario
        self._database = RepeatedReads(self.path, SystemClock())
        create_schema(self.path)
        self._specs: list[TriggerSpec] | None = [
            TriggerSpec(workflow="healthy", payload={"n": 1}, id="healthy-1"),
            TriggerSpec(workflow=scenario, id=self.victim, session_id=None if scenario else SESSION),
            *(TriggerSpec(workflow="healthy", payload={"n": n}, id=f"healthy-{n}") for n in range(2, HEALTHY + 1)),
            TriggerSpec(workflow="healthy", payload={"n": 0}, id="healthy-behind", session_id=SESSION),
        ]

    async def start(self, begun: Callable[[], None], ending: Callable[[], None] = lambda: None) -> bool:
        """Start the engine once. Return whether it had settled all triggers when it ended."""
        try:
            async with running(build_app(), self.path, self._settings, held_back=True) as engine:
                if self._specs is not None:
                    await engine.client.emit_many(self._specs)
                    self._specs = None
                begun()
                engine.begin()
                with anyio.fail_after(PATIENCE):
                    while self.live():  # noqa: ASYNC110 - a table has no event to wait on
                        await anyio.sleep(0.002)
                ending()
                self._database.close_readers()  # the last connection of the engine then checkpoints the WAL
        except EngineCrashed:
            self.crashes += 1
        finally:
            ending()
            self._database.close_readers()
        return not look(self.path, LIVE_TRIGGERS)

    def live(self) -> list[dict[str, Any]]:
        with self._database.reading() as reader:
            return reader.fetch_all(LIVE_TRIGGERS)

    def violation(self) -> str | None:
        """Return the first violated expectation after all triggers are settled, or None."""
        rows = {row["id"]: row for row in look(self.path, "SELECT * FROM triggers")}
        failed = [id for id, row in rows.items() if id.startswith("healthy") and row["status"] != "DONE"]
        if failed:
            return f"healthy triggers did not end as DONE: {failed}"
        asked = look(self.path, "SELECT 1 FROM questions WHERE status = 'OPEN'")  # for example about an act in doubt
        if not asked and look(self.path, LIVE_TASK, id=self.victim):
            return "the task is live and nothing continues it"
        if rows[self.victim]["status"] in ("FAILED", "DEAD") and not rows[self.victim]["error_message"]:
            return "the trigger failed without an error message"
        return None


async def verdict(
    scenario: str | None, fn: FunctionType, times: float, folder: Path, when: When = "before", concurrency: int = 4
) -> str | None:
    """Return the violation that one fault caused, or None."""
    faulty_run = FaultyRun(scenario, folder, concurrency)
    with Fault(fn, faulty_run.victim, times, when).installed() as fault:
        for _ in range(STARTS_MAX):
            try:
                is_over = await faulty_run.start(
                    lambda: setattr(fault, "armed", True), lambda: setattr(fault, "armed", False)
                )
            except TimeoutError:
                return f"stalled: {faulty_run.live()}"
            if is_over:
                return faulty_run.violation()
    if look(faulty_run.path, "SELECT 1 FROM triggers WHERE status = 'CLAIMED' AND started_at IS NOT NULL"):
        return f"not settled after {STARTS_MAX} starts: {faulty_run.live()}"
    return None if look(faulty_run.path, "SELECT 1 FROM facts WHERE name = 'safe_mode'") else "no safe mode"


async def violations_of(
    cases: Iterable[tuple[str | None, FunctionType, float, When]], folder: Path, concurrency: int = 4
) -> dict[str, str]:
    """Return the faults that caused a violation, with the violation of each."""
    violations: dict[str, str] = {}
    for number, (scenario, fn, times, when) in enumerate(cases):
        (case_folder := folder / f"{number}").mkdir()
        with capture_logs():  # hides hundreds of expected tracebacks
            violation = await verdict(scenario, fn, times, case_folder, when, concurrency)
        if violation is not None:
            violations[f"{scenario}: {times} x {when} {fn.__module__}.{fn.__qualname__}"] = violation
    return violations


@pytest.mark.campaign
@pytest.mark.parametrize("concurrency", [4, 1])
@pytest.mark.parametrize(("times", "when"), FAULTS)
@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_fault_in_any_function_with_a_trigger_fails_only_that_trigger(
    tmp_path, scenario, times, when, concurrency
):
    """Each function of each scenario meets each fault: about 5,000 faults on each event loop."""
    found = await functions_of(scenario, tmp_path, concurrency)

    assert await violations_of(((scenario, fn, times, when) for fn in found), tmp_path, concurrency) == {}


async def test_fault_in_a_commit_that_settles_and_starts_fails_only_its_trigger(tmp_path):
    """With a concurrency of 1 the commit of a settle also starts the next trigger.

    Each function of this commit meets each fault, and the functions around it a tenth of them. The campaign has all.
    """
    (known := tmp_path / "known").mkdir()
    shared = {f"craftcore.engine.{name}" for name in ("attempt_commits", "consumer")}
    found = [fn for fn in await functions_of("returns", known, 1) if fn.__module__ in shared]
    cases = {
        f"{fn.__qualname__} {times} {when}": ("returns", fn, times, when) for fn in found for times, when in FAULTS
    }
    chosen = [*(name for name in cases if ".settle_and_start " in name), *some_cells(list(cases))[::2]]

    assert {"AttemptCommits.settle_and_start", "AttemptBatches.settle_and_start"} <= {fn.__qualname__ for fn in found}
    assert await violations_of((cases[name] for name in dict.fromkeys(chosen)), tmp_path, 1) == {}


async def test_fault_campaign_reports_a_failed_healthy_trigger_as_harm(tmp_path):
    """An error of one trigger that reaches another appears in the result of the campaign."""
    faulty_run = FaultyRun("returns", tmp_path)
    with Fault(cast(FunctionType, Runner.run), "healthy-1", math.inf).installed() as fault:
        assert await faulty_run.start(lambda: setattr(fault, "armed", True))

    assert fault.raised == 1
    assert faulty_run.violation() == "healthy triggers did not end as DONE: ['healthy-1']"


async def test_fault_sample_of_each_engine_module_fails_only_that_trigger(tmp_path, anyio_backend_name):
    """One function of each module that handles a trigger meets one of the faults.

    Each event loop runs half of the cases and all cases of the main path. The campaign runs on trio.
    """
    steps: dict[str, list[tuple[str | None, FunctionType]]] = {}
    for scenario in SCENARIOS:
        (known := tmp_path / f"of {scenario}").mkdir()
        for fn in await functions_of(scenario, known):
            steps.setdefault(fn.__module__, []).append((scenario, fn))
    sample = [(*steps[name][7 * n % len(steps[name])], *FAULTS[n // 2 % 4]) for n, name in enumerate(sorted(steps))]
    half = range(anyio_backend_name == "trio", len(sample), 2)
    cases = [case for n, case in enumerate(sample) if n in half or case[1].__module__ in MAIN_PATH]

    assert await violations_of(cases, tmp_path) == {}
    assert {fn.__module__ for _, fn, _, _ in cases} >= MAIN_PATH
