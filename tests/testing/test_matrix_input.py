"""Invalid input of a crash matrix: it is refused before the first run, with the reason and a remedy."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import anyio
import pytest

from craftcore import App, Call, TaskContext
from craftcore.errors import InvalidInput
from craftcore.testing import Lab, ScenarioEnd, crash_matrix, happens_once

app = App("counts")


@app.workflow("count")
async def count(ctx: TaskContext) -> int:
    return await ctx.step("count", len, "abc")


async def count_once(lab: Lab) -> Any:
    return await lab.result(await lab.emit("count"))


def forget_async(lab: Lab) -> int:
    return 3


async def yields(lab: Lab) -> AsyncIterator[int]:
    yield 1


async def takes_no_lab() -> None: ...


async def checks_later(ending: ScenarioEnd) -> None: ...


def takes_two(ending: ScenarioEnd, more: int) -> None: ...


WRONG_SCENARIOS: list[Any] = [
    (forget_async, r"the scenario forget_async is not async: it returned 3\. Declare it with async def"),
    (yields, "the scenario yields yields: give an async function of one lab"),
    (takes_no_lab, "the scenario takes_no_lab cannot be called with a lab alone: give an async function"),
    (None, "the scenario is None, which cannot be called: give an async function"),
]

WRONG_OPTIONS: list[Any] = [
    ({"invariants": None}, "invariants is None: give a list of functions of one ScenarioEnd, or leave it out"),
    ({"invariants": happens_once("mail")}, "invariants is mail happens once: give a list"),
    ({"invariants": "mail"}, "invariants is 'mail': give a list"),
    ({"invariants": [happens_once("mail"), None]}, "invariant 2 is None, which cannot be called"),
    ({"invariants": [checks_later]}, "invariant 1, checks_later, is async: make it a plain function"),
    ({"invariants": [takes_two]}, "invariant 1, takes_two, does not take one argument"),
    ({"backend": "curio"}, "backend is 'curio': give asyncio or trio"),
    ({"backend": None}, "backend is None: give asyncio or trio"),
    ({"jobs": "2"}, "jobs is '2': give how many crashes run at once"),
    ({"jobs": 1.5}, r"jobs is 1\.5: give how many crashes run at once"),
    ({"at": ["step.ran:1"]}, r"at is \['step\.ran:1'\]: give crash points as one text, as in 'step\.ran:1'"),
    ({"progress": 3}, "progress is 3: give a function"),
]


@pytest.mark.parametrize(("scenario", "text"), WRONG_SCENARIOS)
def test_scenario_that_cannot_be_played_is_refused(scenario: Any, text: str):
    with pytest.raises(InvalidInput, match=f"^{text}"):
        crash_matrix(app, scenario)


@pytest.mark.parametrize(("options", "text"), WRONG_OPTIONS)
def test_option_of_another_type_is_refused(options: Any, text: str):
    with pytest.raises(InvalidInput, match=f"^{text}"):
        crash_matrix(app, count_once, **options)


def test_backend_that_is_not_installed_is_refused(monkeypatch: pytest.MonkeyPatch):
    def run(*args: Any, backend: str) -> None:
        raise LookupError(f"No such backend: {backend}")

    monkeypatch.setattr(anyio, "run", run)
    with pytest.raises(InvalidInput, match="backend is trio, which is not installed: pip install trio"):
        crash_matrix(app, count_once, backend="trio")


@pytest.mark.parametrize("scenario", [lambda lab: count_once(lab), partial(count_once)])
def test_function_that_returns_an_awaitable_is_a_scenario(scenario: Any):
    assert crash_matrix(app, scenario, iter([happens_once("mail", times=0)]), at="step.ran:1").reached == 1


@pytest.mark.parametrize(("action", "times"), [(None, 1), ("", 1), ("mail", -1), ("mail", "1")])
def test_promise_of_no_count_is_refused(action: Any, times: Any):
    with pytest.raises(InvalidInput, match=r"^happens_once: (action|times) is "):
        happens_once(action, times)


WRONG_PROVIDERS: list[Any] = [
    ("bank.chrage", {}, "there is no such action; there are bank.charge, command.run, email.send, "),
    ("bank.charge", {"colour": 1}, "there is no option 'colour'; there are returns, dedupes, delay, "),
    ("bank.charge", {"resets_after": "1"}, "resets_after is '1': give a number of calls, 0 or more"),
    ("bank.charge", {"fails_before": 0.5}, r"fails_before is 0\.5: give a number of calls"),
    ("bank.charge", {"resets_before": -1}, "resets_before is -1: give a number of calls"),
    ("bank.charge", {"delay": "5s"}, "delay is '5s': give seconds, 0 or more"),
    ("bank.charge", {"acts_late": float("nan")}, "acts_late is nan: give seconds, 0 or more"),
    ("bank.charge", {"dedupes": 1}, "dedupes is 1: give True or False"),
]


@app.action("bank.charge", irreversible=True)
async def charge(call: Call) -> None: ...


@pytest.mark.anyio
@pytest.mark.parametrize(("action", "options", "text"), WRONG_PROVIDERS)
async def test_provider_that_takes_no_call_is_refused(craftcore_lab: Any, action: str, options: Any, text: str):
    async with craftcore_lab(app) as lab:
        with pytest.raises(InvalidInput, match=f"^provider '{action}': {text}"):
            lab.provider(action, **options)
