"""`command.run`: a program as a workflow, without writing Python, in either of two ways.

At least once: a program that did not end well is run again, after a crash, a timeout or a failure. Irreversible, under
the ledger: a program that may have done something is not run again, unless a person says so.

cannot be started    FAILED   for good (no such program), or for now (no memory, no process): nothing happened
exits with 0         DONE
exits otherwise      UNKNOWN  unless `no_effect_exit_codes` says that this code proves that nothing happened
is killed, or out of time, or lost with the daemon: UNKNOWN
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import msgspec

from craftcore.actions.process.program import CommandFailed, Programs, is_timeout, refusal
from craftcore.activities.model import ActionTerms, OnUnknown
from craftcore.engine.turn.context import TaskContext
from craftcore.outcome_exceptions import NoEffect
from craftcore.registry.action import Action
from craftcore.registry.call import Call

COMMAND = "command.run"
"""The name under which the daemon declares both, workflow and action."""

KEY_VARIABLE = "CRAFTCORE_IDEMPOTENCY_KEY"
ATTEMPT_VARIABLE = "CRAFTCORE_ATTEMPT"
"""The environment variables of a call, by which a program can detect a repetition."""

STOPPING_SECONDS = 30.0
"""How much longer than its program a call may take, beside the grace: to start it, end it, and hear its last words."""


class _Asked(msgspec.Struct):
    irreversible: bool = False


_decode_asked = msgspec.json.Decoder(_Asked).decode


def is_irreversible(payload_json: str) -> bool:
    """Return whether a payload of `command.run` asks for the ledger. One that is refused later does not."""
    try:
        return _decode_asked(payload_json).irreversible
    except msgspec.MsgspecError:
        return False


def command_action(programs: Programs) -> Action:
    """Return the action `command.run`: the arguments are those of the workflow, but `irreversible`, which it always
    is."""

    async def run_once(
        call: Call,
        *,
        argv: list[str],
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout: float | None = None,
        stdin: str | None = None,
        no_effect_exit_codes: list[int] | None = None,
    ) -> dict[str, object]:
        without_effect = _exit_codes(no_effect_exit_codes)
        own = {KEY_VARIABLE: call.key, ATTEMPT_VARIABLE: str(call.attempt)}
        try:
            return await programs.run(argv, cwd, env, timeout, stdin, own=own)
        except CommandFailed as failed:
            if failed.details["exit_code"] in without_effect:
                message = f"{failed.message} (a code that says: nothing happened)"
                raise NoEffect(message, code=failed.code) from failed
            raise

    def terms_of(arguments: Mapping[str, Any]) -> ActionTerms:
        given = arguments.get("timeout")  # one that is none is refused when it is called
        limit = given if is_timeout(given) else programs.timeout
        return ActionTerms(on_unknown=OnUnknown.ASK, timeout=limit + programs.grace + STOPPING_SECONDS)

    return Action(COMMAND, run_once, ActionTerms(on_unknown=OnUnknown.ASK), terms_of=terms_of)


def command_run(programs: Programs, action: Action) -> Callable[..., Coroutine[Any, Any, dict[str, object]]]:
    """Return the workflow `command.run`: a task, in the ledger, where `is_irreversible(payload)`; else neither."""

    async def run_command(
        ctx: TaskContext | None,
        argv: list[str],
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout: float | None = None,
        stdin: str | None = None,
        irreversible: bool = False,
        no_effect_exit_codes: list[int] | None = None,
    ) -> dict[str, object]:
        if not irreversible:
            if no_effect_exit_codes is not None:
                raise refusal('no_effect_exit_codes is for an irreversible command: add "irreversible": true')
            return await programs.run(argv, cwd, env, timeout, stdin)
        assert ctx is not None, "a program that must not run twice is run by a task"
        arguments = {
            "argv": argv,
            "cwd": cwd,
            "env": env,
            "timeout": timeout,
            "stdin": stdin,
            "no_effect_exit_codes": no_effect_exit_codes,
        }
        given: dict[str, Any] = {name: value for name, value in arguments.items() if value is not None}
        done: dict[str, object] = await ctx.act(action, **given)
        return done

    return run_command


def _exit_codes(given: Any) -> list[int]:
    """Raise Fail for an invalid list of exit codes. 0 is not allowed: it is the code of success."""
    if given is None:
        return []
    if not isinstance(given, list) or not all(type(code) is int and 1 <= code <= 255 for code in given):
        raise refusal("no_effect_exit_codes must be a list of exit codes, 1 to 255")
    return given
