"""An error of the engine itself about one trigger fails that trigger, and nothing else: wherever the error comes up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from craftcore import App, Continue, RetryPolicy, Route, TaskContext, TriggerSpec
from craftcore.daemon.running import running
from craftcore.errors import EngineCrashed
from tests.engine.faults import Fault, Recording
from tests.engine.lab import look, settings
from tests.processes import PATIENCE

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited"),  # an error came up before it could be
]

HEALTHY = 3
STARTS_MAX = 4
"""Two crashes beside others, one alone, which makes it poison, and a start for what is left."""

STARTS_BEFORE_SAFE_MODE = 7
"""An error before anything starts is nobody's crash: it ends in safe mode."""

ONCE_IN = 24
"""The quick campaign takes each n-th function of each scenario."""


LIVE_TASK = "SELECT 1 FROM tasks WHERE id = :id AND status IN ('RUNNING', 'WAITING')"


class Everywhere:
    async def route(self, trigger: Any, context: Any) -> Route:
        return Route(workflow="routed", session_id=f"of-{trigger.id}")


def app_of() -> App:
    app = App(router=Everywhere())
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


async def functions_of(scenario: str | None, folder: Path) -> list[FunctionType]:
    """Which functions meet the trigger of this scenario, in a run without errors."""
    with Recording() as recording:
        life = Life(scenario, folder)
        await life.start(lambda: setattr(recording, "name", life.victim))
    assert life.crashes == 0
    [victim] = look(life.path, "SELECT status FROM triggers WHERE id = 'victim'")
    assert victim["status"] == ("DEAD" if scenario == "raises" else "DONE")
    return recording.functions()


class Life:
    """A database with one trigger that meets errors, healthy ones before, beside and after it, and its starts."""

    def __init__(self, scenario: str | None, folder: Path) -> None:
        self.path = folder / "agent.db"
        self.victim = "victim"
        self.crashes = 0
        self._workflow = scenario
        self._specs: list[TriggerSpec] | None = [
            TriggerSpec(workflow="healthy", payload={"n": 1}, id="healthy-1"),
            TriggerSpec(workflow=scenario, id=self.victim, session_id=None if scenario else "a-session"),
            *(TriggerSpec(workflow="healthy", payload={"n": n}, id=f"healthy-{n}") for n in range(2, HEALTHY + 1)),
        ]

    async def start(self, begun: Callable[[], None], ending: Callable[[], None] = lambda: None) -> bool:
        """One start of the engine; whether nothing was left to do when it ended."""
        try:
            async with running(app_of(), self.path, settings(shutdown_grace=1), held_back=True) as engine:
                if self._specs is not None:
                    await engine.requests.emit_many(self._specs)
                    self._specs = None
                begun()
                engine.begin()
                with anyio.fail_after(PATIENCE):
                    while self.live():  # noqa: ASYNC110 - a table has no event to wait on
                        await anyio.sleep(0.002)
                ending()
        except EngineCrashed:
            self.crashes += 1
        finally:
            ending()
        return not self.live()

    def live(self) -> list[dict[str, Any]]:
        return look(self.path, "SELECT id, status FROM triggers WHERE status IN ('PENDING', 'CLAIMED')")

    def wrong(self) -> str | None:
        """What is not as it has to be once all is settled."""
        rows = {row["id"]: row for row in look(self.path, "SELECT * FROM triggers")}
        ill = [id for id, row in rows.items() if id.startswith("healthy") and row["status"] != "DONE"]
        if ill:
            return f"{ill} did not end well beside it"
        asked = look(self.path, "SELECT 1 FROM questions WHERE status = 'OPEN'")  # about an act in doubt, say
        if not asked and look(self.path, LIVE_TASK, id=self.victim):
            return "its task lives, and nothing will go on with it"
        if rows[self.victim]["status"] in ("FAILED", "DEAD") and not rows[self.victim]["error_message"]:
            return "it failed and does not say why"
        return None


async def verdict(scenario: str | None, fn: FunctionType, times: float, folder: Path) -> str | None:
    """What one fault led to; None: what it may."""
    life = Life(scenario, folder)
    with Fault(fn, life.victim, times).installed() as fault:
        for _ in range(STARTS_MAX):
            try:
                over = await life.start(lambda: setattr(fault, "armed", True), lambda: setattr(fault, "armed", False))
            except TimeoutError:
                return f"it stalls: {life.live()}"
            if over:
                break
        else:
            return await unblamed(life, fault)
    return life.wrong()


async def unblamed(life: Life, fault: Fault) -> str | None:
    """What is wrong with an engine that ends at each start; nothing, when nothing started and safe mode says so."""
    if any(row["starts"] for row in look(life.path, "SELECT starts FROM triggers")):
        return f"still there after {STARTS_MAX} starts: {life.live()}"
    for _ in range(STARTS_MAX, STARTS_BEFORE_SAFE_MODE):
        await life.start(lambda: setattr(fault, "armed", True), lambda: setattr(fault, "armed", False))
    if look(life.path, "SELECT 1 FROM facts WHERE name = 'safe_mode'"):
        return None
    return f"no safe mode after {STARTS_BEFORE_SAFE_MODE} starts"


async def campaign(folder: Path, step: int, times: float) -> tuple[int, dict[str, str]]:
    """How many faults were injected, and those that did more harm than they may."""
    count, harm = 0, dict[str, str]()
    for scenario in SCENARIOS:
        (known := folder / f"{scenario}").mkdir()
        for fn in (await functions_of(scenario, known))[::step]:
            count += 1
            (here := folder / f"{count}").mkdir()
            if (wrong := await verdict(scenario, fn, times, here)) is not None:
                harm[f"{scenario}: {fn.__module__}.{fn.__qualname__}"] = wrong
    return count, harm


@pytest.mark.campaign
@pytest.mark.parametrize("times", [1, float("inf")], ids=["once", "always"])
async def test_every_function_that_meets_a_trigger_may_fail(tmp_path, times):
    """Each function of each scenario: about 300 faults."""
    _, harm = await campaign(tmp_path, 1, times)

    assert harm == {}


@pytest.mark.parametrize("times", [1, float("inf")], ids=["once", "always"])
async def test_an_error_in_any_step_of_one_trigger_fails_that_trigger_alone(tmp_path, times):
    count, harm = await campaign(tmp_path, ONCE_IN, times)

    assert harm == {}
    assert count >= len(SCENARIOS)
