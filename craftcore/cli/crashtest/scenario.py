"""The scenario of `craftcore crashtest`, made of its options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from craftcore.cli.payload import read_json
from craftcore.errors import InvalidInput, WorkFailed
from craftcore.registry.registry import Registry
from craftcore.testing.crash_life import Scenario
from craftcore.testing.lab import Lab
from craftcore.testing.provider import NETWORKED, Provider, make_default_returns, require_action, require_option


def make_scenario(
    app: Registry,
    workflow: str,
    payload: Mapping[str, Any],
    advance: float | None,
    answers: Sequence[tuple[str, str]],
    providers: Sequence[ProviderOption],
    *,
    until_waiting: bool,
) -> Scenario:
    """Return the scenario that emits the workflow, lets time pass, answers questions, and waits for the result;
    `until_waiting`: until its task waits for an event, a message or an answer.

    Raises InvalidInput for a provider of an action that the app lacks.
    """
    options = _list_options(app, providers)

    async def scenario(lab: Lab) -> Any:
        for action, given in options.items():
            lab.provider(action, **given)
        work = await lab.emit(workflow, payload)
        if advance is not None:
            await lab.advance(advance)
        for question, choice in answers:
            await lab.answer(choice, question=question)
        if until_waiting:
            return await lab.run_until_waiting(work)
        try:
            return await lab.result(work)
        except WorkFailed as failed:  # it must fail after a crash as it does without one
            return str(failed.code)

    return scenario


def read_answer(text: str) -> tuple[str, str]:
    """Read TEXT=CHOICE. Raises InvalidInput."""
    question, sign, choice = text.rpartition("=")
    if not sign or not choice:
        raise InvalidInput(f"answer {text!r:.80}: write TEXT=CHOICE, such as 'Renew=yes'")
    return question, choice


def read_provider(text: str) -> ProviderOption:
    """Read ACTION[:OPTION=JSON]. Raises InvalidInput."""
    action, _, option = text.partition(":")
    if not action:
        raise InvalidInput(f"provider {text!r:.80}: write ACTION or ACTION:OPTION=JSON")
    if not option:
        return ProviderOption(action, None, None)
    name, _, value = option.partition("=")
    given = read_json(value) if value else True
    require_option(action, name)
    Provider(action, **{name: given})
    return ProviderOption(action, name, given)


class ProviderOption(NamedTuple):
    """A provider for an action, with an option of Provider and its value; None: without one."""

    action: str
    option: str | None
    value: Any


def _list_options(app: Registry, given: Sequence[ProviderOption]) -> dict[str, dict[str, Any]]:
    """Return the options of each stand-in. Irreversible actions have one without being named."""
    found: dict[str, dict[str, Any]] = {
        name: {"dedupes": action.terms.idempotent_provider}
        for name, action in app.actions.items()
        if action.terms.irreversible and name not in NETWORKED
    }
    for action, option, value in given:
        require_action(action, app.actions)
        options = found.setdefault(action, {})
        if option is not None:
            options[option] = value
    for action, options in found.items():
        if "returns" not in options:
            options["returns"] = make_default_returns(action, app.actions)
    return found
