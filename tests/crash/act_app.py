"""The workflows and actions of the campaigns of irreversible actions: one for each policy and kind of provider.

The payload of a task names its faults as `how@where`. The faults are arguments of the act, and therefore equal at every
entry. The n-th fault within a call applies to the n-th call. A fault around a call applies once, after the faults
before it in the plan.

The events are written to the file that all lives share (`task_app.EventLog`):

    fault     a fault occurs                          answered    a person's answer, and the number of effects before
    got       the result of an act in its workflow    impossible  an impossible state that a boot found
    refused   a person's answer that came too late
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import anyio
from anyio import from_thread

from craftcore import (
    ActivityUnknown,
    App,
    Call,
    Continue,
    Done,
    Fail,
    NoEffect,
    OnUnknown,
    TaskContext,
)
from craftcore.errors import ConfigInvalid, StateRefused
from craftcore.failpoints import Failpoint, arm
from tests.crash.act_client import Reply, Request, send, send_in_thread
from tests.crash.act_provider import CAN_RECONCILE, DEDUPLICATING, SLOW_SECONDS, WINDOWS, Kind, Provider, ProviderFault
from tests.crash.act_time import LoopTime, ShiftedClock
from tests.crash.task_app import PATIENT, SHORT_WAIT, EventLog, read_events

TIMEOUT = 100.0
TURN_TIMEOUT = 300.0
"""The timeout of an attempt. Both timeouts are longer than any test: the time of the event loop jumps to them."""

SHIFT = 600.0
"""The shift of the clock after a fault, in seconds: longer than the short window, and within the long one."""

CRASH, TIME_OUT, CANCEL, RESET, STOP = HOW = ("crash", "timeout", "cancel", "reset", "stop")
"""The kinds of faults. `cancel`: a person cancels the task. `stop`: the engine stops, and continues later."""

BEFORE, CALLED, HALF, EFFECT, REPLY, AFTER = WHERE = ("before", "called", "half", "effect", "reply", "after")
"""The places of faults: before INTENT, after INTENT, half sent, effect, reply, after DONE."""

IGNORED, LATE = "ignored", "late"
"""Places at which the provider has the whole request, and causes no effect, or causes it after the caller left."""

WRITTEN, REWRITTEN = "written", "rewritten"
"""Places at which INTENT is written to disk: at the first flush, or at the next one, which repeats a call."""

REFUSED, BUSY, ANSWERED = "refused", "busy", "answered"
"""Not faults of the connection: the provider answers with an error, for good or for now."""

GAVE_UP = "gave up"


class Fault(NamedTuple):
    """The kind of a fault, and its place."""

    how: str
    where: str

    @classmethod
    def from_text(cls, text: str) -> Fault:
        how, _, where = text.partition("@")
        return cls(how, where)

    def __str__(self) -> str:
        return f"{self.how}@{self.where}"

    @property
    def provider_fault(self) -> ProviderFault:
        """Return the fault of the provider's request that causes this fault."""
        if self.how in (REFUSED, BUSY):
            return {REFUSED: ProviderFault.REFUSE, BUSY: ProviderFault.BUSY}[self.how]
        if self.how == RESET:
            return {EFFECT: ProviderFault.RESET_AFTER, REPLY: ProviderFault.RESET_IN_REPLY}.get(
                self.where, ProviderFault.RESET_BEFORE
            )
        return {EFFECT: ProviderFault.HOLD, IGNORED: ProviderFault.IGNORE, LATE: ProviderFault.LATE}.get(
            self.where, ProviderFault.NONE
        )


NO_FAULT = Fault("", "")

FAILPOINTS = {
    **{Fault(how, at): Failpoint.WRITER_FLUSHING for how in (TIME_OUT, CANCEL, STOP) for at in (WRITTEN, REWRITTEN)},
    Fault(CRASH, BEFORE): Failpoint.WRITER_FLUSHING,
    Fault(CRASH, CALLED): Failpoint.INTENT_COMMITTED,
    Fault(CRASH, REPLY): Failpoint.PROVIDER_ANSWERED,
    Fault(CRASH, AFTER): Failpoint.ACTIVITY_SETTLED,
}
"""The failpoint of each fault at a place that the engine itself passes."""


@dataclass(slots=True)
class ActRunner:
    """The acts of the workflows and the functions of the actions in the current life, with their faults."""

    log: EventLog = field(init=False)
    provider: Provider = field(init=False)
    clock: ShiftedClock = field(init=False)
    loop_time: LoopTime = field(init=False)
    stop: Callable[[], None] = field(init=False)
    kill: Callable[[str], None] = field(init=False)
    start_soon: Callable[..., object] = field(init=False)
    app: App = field(init=False)
    _occurred: set[tuple[str, str]] = field(init=False)

    def attach(
        self,
        log: EventLog,
        provider: Provider,
        clock: ShiftedClock,
        loop_time: LoopTime,
        *,
        stop: Callable[[], None],
        kill: Callable[[str], None],
        start_soon: Callable[..., object],
    ) -> None:
        """Use the resources of this life from now on. `stop` stops it in order, and `kill` kills it."""
        self.log, self.provider, self.clock, self.loop_time = log, provider, clock, loop_time
        self.stop, self.kill, self.start_soon = stop, kill, start_soon
        self._occurred = {(task, fault) for _, _, task, fault in _read_faults(log)}

    async def act(
        self, ctx: TaskContext, action: str, text: str, plan: Sequence[str] = (), *, key: str | None = None
    ) -> Any:
        """Perform one act, with the faults before and after it."""
        faults = [*map(Fault.from_text, plan)]
        calls = [str(fault) for fault in faults if fault.where not in (BEFORE, AFTER) and fault not in FAILPOINTS]
        for fault in faults:
            if (fault.where == BEFORE or fault in FAILPOINTS) and self._begin_fault(ctx.task_id, fault, faults):
                if fault in FAILPOINTS:
                    arm(
                        FAILPOINTS[fault],
                        self._failpoint_action(ctx.task_id, fault),
                        at_pass=1 + (fault.where == REWRITTEN),
                    )
                else:
                    await self._inject(ctx.task_id, action, fault)
        try:
            result = await ctx.act(action, key=key, task=ctx.task_id, text=text, faults=calls)
        except ActivityUnknown:
            result = GAVE_UP
        except Fail:
            result = REFUSED
        self.log.write("got", ctx.task_id, ctx.turn, text, result)
        for fault in faults:
            if fault.where == AFTER and fault not in FAILPOINTS and self._begin_fault(ctx.task_id, fault, faults):
                await self._inject(ctx.task_id, action, fault)
        return result

    async def call(self, call: Call, kind: Kind, task: str, text: str, faults: Sequence[str]) -> Any:
        """Call the provider for an action."""
        fault = Fault.from_text(faults[call.attempt - 1]) if call.attempt <= len(faults) else NO_FAULT
        self._begin_fault(task, fault)
        provider = self.provider
        if fault.where == CALLED:
            if fault.how != RESET:
                await self._inject(task, kind, fault)
            provider = Provider(port=provider.reset_port, reset_port=provider.reset_port)

        async def processing() -> None:
            await self._inject(task, kind, fault)

        try:
            reply = await send(provider.port, self._request(call, kind, text, task, fault), processing)
        except BaseException:
            self._pass_time(kind)
            raise
        if fault.where == REPLY and fault.how != RESET:
            await self._inject_at_return(task, kind, fault)
        return _result_of(reply)

    def call_in_thread(self, call: Call, kind: Kind, task: str, text: str, faults: Sequence[str]) -> Any:
        """Call the provider for a plain action, whose call can only crash, lose its connection or be refused."""
        fault = Fault.from_text(faults[call.attempt - 1]) if call.attempt <= len(faults) else NO_FAULT
        if fault.how not in (CRASH, RESET, REFUSED, BUSY):
            fault = NO_FAULT
        self._begin_fault(task, fault)
        reply = send_in_thread(
            self.provider.port, self._request(call, kind, text, task, fault), partial(self.kill, str(fault))
        )
        return _result_of(reply)

    async def reconcile(self, call: Call, kind: Kind) -> Any:
        """Return the answer of the provider to the query whether the effect of the call occurred."""
        request = Request(path="/seen", kind=kind, headers=call.headers, clock=self.clock.now())
        reply = await send(self.provider.port, request)
        if not reply.body["known"]:
            return None
        ref = reply.body["ref"]
        return NoEffect("the provider has no effect with this key") if ref is None else Done(ref)

    def _request(self, call: Call, kind: Kind, text: str, task: str, fault: Fault) -> Request:
        return Request(
            path="/send",
            kind=kind,
            headers=call.headers,
            clock=self.clock.now(),
            fault=fault.provider_fault,
            body={"task": task, "text": text},
            is_half=fault.where == HALF,
        )

    def _begin_fault(self, task: str, fault: Fault, plan: Sequence[Fault] = ()) -> bool:
        """Return whether the fault occurs now, and log it. A fault occurs once, after those before it in the plan."""
        before = plan[: plan.index(fault)] if plan else ()
        if fault is NO_FAULT or (task, str(fault)) in self._occurred:
            return False
        if any((task, str(earlier)) not in self._occurred for earlier in before):
            return False
        self._occurred.add((task, str(fault)))
        self.log.write("fault", task, str(fault))
        return True

    def _failpoint_action(self, task: str, fault: Fault) -> Callable[[], None]:
        """Return the function that causes the fault at a failpoint. The thread of the writer may call it."""
        token = anyio.lowlevel.current_token()
        match fault.how:
            case "timeout":
                return partial(self.loop_time.jump, 2 * TURN_TIMEOUT)
            case "cancel":
                return partial(from_thread.run_sync, self._cancel_soon, task, token=token)
            case "stop":
                return partial(from_thread.run_sync, self.stop, token=token)
        return partial(self.kill, str(fault))

    async def _inject(self, task: str, kind: str, fault: Fault) -> None:
        """Inject the fault and wait until it ends the call: the function never returns."""
        match fault.how:
            case "crash":
                self.kill(str(fault))
            case "timeout":
                self._pass_time(kind)
                self.loop_time.jump(2 * (TURN_TIMEOUT if fault.where in (BEFORE, AFTER) else TIMEOUT))
            case "cancel":
                await self._cancel(task)
            case "stop":
                self.stop()
            case "reset":
                raise ConnectionResetError("the connection was reset")
            case how:
                raise AssertionError(how)
        await anyio.sleep_forever()

    async def _inject_at_return(self, task: str, kind: str, fault: Fault) -> None:
        """Inject the fault between the reply and DONE: the function of the action has its result, and returns it."""
        match fault.how:
            case "timeout":
                self._pass_time(kind)
                self.loop_time.jump(2 * TIMEOUT)
            case "cancel":
                with anyio.CancelScope(shield=True):
                    await self._cancel(task)
            case "stop":
                self.stop()

    async def _cancel(self, task: str) -> None:
        with suppress(StateRefused):  # the task has ended in the meantime
            await self.app.cancel_task(task)

    def _cancel_soon(self, task: str) -> None:
        self.start_soon(self._cancel, task)

    def _pass_time(self, kind: str) -> None:
        """Set the clock forward, so that the window of a provider with a short window ends."""
        if Kind.BEYOND in kind:
            self.clock.advance(SHIFT)


def _read_faults(log: EventLog) -> list[list[Any]]:
    return [line for line in read_events(log.path) if line[0] == "fault"] if log.path.exists() else []


def _result_of(reply: Reply) -> Any:
    """Return the reference in the reply of the provider, or raise the error for its status."""
    match reply.status:
        case 200:
            return reply.body["ref"]
        case 422:
            raise Fail("REFUSED", "the provider refuses")
        case 503:
            raise NoEffect("the provider is busy")
        case status:
            raise ConnectionError(f"the provider returned {status}")


# Declarations


class Pair(NamedTuple):
    """A policy, and the kind of provider it is declared for."""

    policy: OnUnknown
    kind: Kind

    @property
    def action(self) -> str:
        return f"{self.policy}.{self.kind}".replace(" ", "-")


PAIRS = [
    Pair(policy, kind)
    for policy in OnUnknown
    for kind in Kind
    if kind not in (Kind.UNSURE, Kind.SLOW) or policy is OnUnknown.RECONCILE  # another policy ignores the difference
]
"""Every pair that an app could declare."""


def declare(app: App, runner: ActRunner, pair: Pair) -> None:
    """Declare the actions of the pair. Raise ConfigInvalid for a contradiction."""
    policy, kind = pair
    terms: dict[str, Any] = {
        "irreversible": True,
        "on_unknown": policy,
        "idempotent_provider": kind in DEDUPLICATING,
        "idempotency_window": WINDOWS.get(kind),
        "timeout": TIMEOUT,
        "settle_after": 2 * SLOW_SECONDS if kind is Kind.SLOW else 0.0,
    }

    @app.action(pair.action, **terms)
    async def send(call: Call, *, task: str, text: str, faults: Sequence[str]) -> Any:
        return await runner.call(call, kind, task, text, faults)

    @app.action(f"{pair.action}.plain", **terms)
    def plain(call: Call, *, task: str, text: str, faults: Sequence[str]) -> Any:
        return runner.call_in_thread(call, kind, task, text, faults)

    for action in (send, plain):
        if policy is OnUnknown.RECONCILE and kind in CAN_RECONCILE:

            @action.reconcile
            async def reconcile(call: Call, *, task: str, text: str, faults: Sequence[str]) -> Any:
                return await runner.reconcile(call, kind)


def an_app(runner: ActRunner) -> App:
    """Return an app with every valid action, and workflows that perform it."""
    app = runner.app = App("acting")
    for pair in PAIRS:
        with suppress(ConfigInvalid):
            declare(app, runner, pair)
    app.actions = {name: action for name, action in app.actions.items() if not action.lacks_reconciler}

    @app.workflow("single", retry=PATIENT, timeout=TURN_TIMEOUT)
    async def single(ctx: TaskContext, action: str, text: str, faults: list[str]) -> Any:
        return await runner.act(ctx, action, text, faults)

    @app.workflow("twins", retry=PATIENT, timeout=TURN_TIMEOUT)
    async def twins(ctx: TaskContext, action: str, text: str, faults: list[str]) -> Any:
        """Perform two acts with the same text."""
        return [await runner.act(ctx, action, text, faults) for _ in range(2)]

    @app.workflow("crowd", retry=PATIENT, timeout=TURN_TIMEOUT)
    async def crowd(ctx: TaskContext, text: str, acts: list[tuple[str, list[str]]]) -> Any:
        """Perform several acts at once, the first of them twice under the same key, which makes one act."""
        results: dict[str, Any] = {}

        async def act(n: int, action: str, faults: list[str]) -> None:
            results[f"{n}"] = await runner.act(ctx, action, f"{text} {n}", faults, key=f"{n}")

        async with anyio.create_task_group() as group:
            for n, (action, faults) in [*enumerate(acts), (0, acts[0])]:
                group.start_soon(act, n, action, faults)
        return results

    @app.workflow("turns", retry=PATIENT, timeout=TURN_TIMEOUT)
    async def turns(ctx: TaskContext, action: str, text: str, faults: list[str]) -> Any:
        """Perform an act in each of two turns, and after a sleep one act that both turns share by its key."""
        results = [await runner.act(ctx, action, f"{text} {ctx.turn}", faults)]
        await ctx.sleep(SHORT_WAIT)
        results.append(await runner.act(ctx, action, f"{text} once", [], key="once"))
        if ctx.turn == 1:
            return Continue(results)
        return [*(ctx.state or []), *results]

    return app


ACTS = {"single": 1, "twins": 2, "turns": 3}
"""The number of acts of a task of each workflow, when it is DONE. The payload of a crowd has its number."""
