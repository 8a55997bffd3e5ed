"""The workflows and actions of the campaigns of irreversible actions: one for each policy and kind of provider.

The payload of a task names its faults as `how@where`. The faults are part of the arguments of the act, and so the same
at every entry. The n-th fault within a call applies to the n-th call. A fault around a call applies once, after the
faults before it in the plan.

The events are written to the file that all lives share (`task_app.Seen`):

    suffers   a fault occurs                          answered    a person's answer, and the effects counted before it
    got       the result of an act in its workflow    impossible  an impossible state that a boot found
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
from tests.crash.act_client import Reply, Request, ask, ask_in_thread
from tests.crash.act_provider import ANSWERS, DROP_A_SECOND, SLOWLY, WINDOWS, Harm, Kind, Provider
from tests.crash.act_time import LoopTime, World
from tests.crash.task_app import A_MOMENT, PATIENT, Seen, lines_of

TIMEOUT = 100.0
TURN_TIMEOUT = 300.0
"""Of a call, and of an attempt. They end when the loop's time jumps; by itself it does not come so far."""

LATER = 600.0
"""How much later it is after a fault: beyond one window, and within the other."""

CRASH, TIME_OUT, CANCEL, RESET, STOP = HOW = ("crash", "timeout", "cancel", "reset", "stop")
"""`cancel`: a person cancels the task. `stop`: the engine is stopped, and goes on later."""

BEFORE, CALLED, HALF, EFFECT, REPLY, AFTER = WHERE = ("before", "called", "half", "effect", "reply", "after")
"""Before INTENT; after INTENT; request half sent; effect done and no reply; reply and no DONE; after DONE."""

IGNORED, LATE = "ignored", "late"
"""The whole request is there, and nothing is done; or it is done when the caller has gone."""

WRITTEN, REWRITTEN = "written", "rewritten"
"""While INTENT is on its way to disk; the next time that anything is, which is that of a call that a policy makes
again."""

REFUSED, BUSY, ANSWERED = "refused", "busy", "answered"
"""No faults: the provider answers, and says no, for good or for now."""

GAVE_UP = "gave up"


class Fault(NamedTuple):
    """What happens, and where."""

    how: str
    where: str

    @classmethod
    def of(cls, text: str) -> Fault:
        how, _, where = text.partition("@")
        return cls(how, where)

    def __str__(self) -> str:
        return f"{self.how}@{self.where}"

    @property
    def harm(self) -> Harm:
        """What the provider is to do for it."""
        if self.how in (REFUSED, BUSY):
            return {REFUSED: Harm.REFUSE, BUSY: Harm.BUSY}[self.how]
        if self.how == RESET:
            return {EFFECT: Harm.RESET_AFTER, REPLY: Harm.RESET_IN_REPLY}.get(self.where, Harm.RESET_BEFORE)
        return {EFFECT: Harm.HOLD, IGNORED: Harm.IGNORE, LATE: Harm.LATE}.get(self.where, Harm.NONE)


NOTHING = Fault("", "")

ARMED = {
    **{Fault(how, at): Failpoint.WRITER_FLUSHING for how in (TIME_OUT, CANCEL, STOP) for at in (WRITTEN, REWRITTEN)},
    Fault(CRASH, BEFORE): Failpoint.WRITER_FLUSHING,
    Fault(CRASH, CALLED): Failpoint.INTENT_COMMITTED,
    Fault(CRASH, REPLY): Failpoint.PROVIDER_ANSWERED,
    Fault(CRASH, AFTER): Failpoint.ACTIVITY_SETTLED,
}
"""Those of the places that the engine itself passes."""


@dataclass(slots=True)
class Deeds:
    """What workflows and actions do, in the life that is lived."""

    seen: Seen = field(init=False)
    provider: Provider = field(init=False)
    world: World = field(init=False)
    loop: LoopTime = field(init=False)
    stop: Callable[[], None] = field(init=False)
    die: Callable[[str], None] = field(init=False)
    begin: Callable[..., object] = field(init=False)
    app: App = field(init=False)
    _suffered: set[tuple[str, str]] = field(init=False)

    def live(
        self,
        seen: Seen,
        provider: Provider,
        world: World,
        loop: LoopTime,
        *,
        stop: Callable[[], None],
        die: Callable[[str], None],
        begin: Callable[..., object],
    ) -> None:
        """A life begins. `stop` ends it in order, `die` in no order at all. `begin`: to begin something beside."""
        self.seen, self.provider, self.world, self.loop = seen, provider, world, loop
        self.stop, self.die, self.begin = stop, die, begin
        self._suffered = {(task, fault) for what, _, task, fault in _suffered(seen)}

    async def act(
        self, ctx: TaskContext, action: str, text: str, plan: Sequence[str] = (), *, key: str | None = None
    ) -> Any:
        """One act, and the faults before and after it."""
        faults = [*map(Fault.of, plan)]
        calls = [str(fault) for fault in faults if fault.where not in (BEFORE, AFTER) and fault not in ARMED]
        for fault in faults:
            if (fault.where == BEFORE or fault in ARMED) and self._strikes(ctx.task_id, fault, faults):
                if fault in ARMED:
                    arm(ARMED[fault], self._deadly(ctx.task_id, fault), at_pass=1 + (fault.where == REWRITTEN))
                else:
                    await self._suffer(ctx.task_id, action, fault)
        try:
            result = await ctx.act(action, key=key, of=ctx.task_id, text=text, faults=calls)
        except ActivityUnknown:
            result = GAVE_UP
        except Fail:
            result = REFUSED
        self.seen.line("got", ctx.task_id, ctx.turn, text, result)
        for fault in faults:
            if fault.where == AFTER and fault not in ARMED and self._strikes(ctx.task_id, fault, faults):
                await self._suffer(ctx.task_id, action, fault)
        return result

    async def call(self, call: Call, kind: Kind, of: str, text: str, faults: Sequence[str]) -> Any:
        """The function of an action."""
        fault = Fault.of(faults[call.attempt - 1]) if call.attempt <= len(faults) else NOTHING
        self._strikes(of, fault)
        provider = self.provider
        if fault.where == CALLED:
            if fault.how != RESET:
                await self._suffer(of, kind, fault)
            provider = Provider(port=provider.slammed, slammed=provider.slammed)

        async def processing() -> None:
            await self._suffer(of, kind, fault)

        try:
            reply = await ask(provider.port, self._request(call, kind, text, of, fault), processing)
        except BaseException:
            self._later(kind)
            raise
        if fault.where == REPLY and fault.how != RESET:
            await self._suffer_at_return(of, kind, fault)
        return _judged(reply)

    def call_in_thread(self, call: Call, kind: Kind, of: str, text: str, faults: Sequence[str]) -> Any:
        """The function of a plain action, which can crash, and lose its connection."""
        fault = Fault.of(faults[call.attempt - 1]) if call.attempt <= len(faults) else NOTHING
        if fault.how not in (CRASH, RESET, REFUSED, BUSY):
            fault = NOTHING
        self._strikes(of, fault)
        reply = ask_in_thread(
            self.provider.port, self._request(call, kind, text, of, fault), partial(self.die, str(fault))
        )
        return _judged(reply)

    async def look(self, call: Call, kind: Kind) -> Any:
        """The function that reconciles."""
        request = Request(path="/seen", kind=kind, headers=call.headers, clock=self.world.now())
        reply = await ask(self.provider.port, request)
        if not reply.body["known"]:
            return None
        ref = reply.body["ref"]
        return NoEffect("the provider has not done it") if ref is None else Done(ref)

    def _request(self, call: Call, kind: Kind, text: str, of: str, fault: Fault) -> Request:
        return Request(
            path="/send",
            kind=kind,
            headers=call.headers,
            clock=self.world.now(),
            harm=fault.harm,
            body={"of": of, "text": text},
            half=fault.where == HALF,
        )

    def _strikes(self, task: str, fault: Fault, plan: Sequence[Fault] = ()) -> bool:
        """Whether it does now: each does once, and after those that come before it in the plan."""
        before = plan[: plan.index(fault)] if plan else ()
        if fault is NOTHING or (task, str(fault)) in self._suffered:
            return False
        if any((task, str(one)) not in self._suffered for one in before):
            return False
        self._suffered.add((task, str(fault)))
        self.seen.line("suffers", task, str(fault))
        return True

    def _deadly(self, task: str, fault: Fault) -> Callable[[], None]:
        """What is to be done where it is armed: in the writer's thread, perhaps, which must not wait for the loop."""
        token = anyio.lowlevel.current_token()
        match fault.how:
            case "timeout":
                return partial(self.loop.jump, 2 * TURN_TIMEOUT)
            case "cancel":
                return partial(from_thread.run_sync, self._begin_to_cancel, task, token=token)
            case "stop":
                return partial(from_thread.run_sync, self.stop, token=token)
        return partial(self.die, str(fault))

    async def _suffer(self, task: str, kind: str, fault: Fault) -> None:
        """What happens to it happens here."""
        match fault.how:
            case "crash":
                self.die(str(fault))
            case "timeout":
                self._later(kind)
                self.loop.jump(2 * (TURN_TIMEOUT if fault.where in (BEFORE, AFTER) else TIMEOUT))
            case "cancel":
                await self._cancel(task)
            case "stop":
                self.stop()
            case "reset":
                raise ConnectionResetError("the connection is gone")
            case how:
                raise AssertionError(how)
        await anyio.sleep_forever()

    async def _suffer_at_return(self, task: str, kind: str, fault: Fault) -> None:
        """Its function has what it wanted, and returns it; nobody knows of it yet."""
        match fault.how:
            case "timeout":
                self._later(kind)
                self.loop.jump(2 * TIMEOUT)
            case "cancel":
                with anyio.CancelScope(shield=True):
                    await self._cancel(task)
            case "stop":
                self.stop()

    async def _cancel(self, task: str) -> None:
        with suppress(StateRefused):  # it has ended meanwhile
            await self.app.cancel_task(task)

    def _begin_to_cancel(self, task: str) -> None:
        self.begin(self._cancel, task)

    def _later(self, kind: str) -> None:
        """What is in doubt is so for a while: beyond one of the windows, and within the other."""
        if Kind.BEYOND in kind:
            self.world.pass_by(LATER)


def _suffered(seen: Seen) -> list[list[Any]]:
    return [line for line in lines_of(seen.path) if line[0] == "suffers"] if seen.path.exists() else []


def _judged(reply: Reply) -> Any:
    """What a function ends with by the provider's answer."""
    match reply.status:
        case 200:
            return reply.body["ref"]
        case 422:
            raise Fail("REFUSED", "the provider refuses")
        case 503:
            raise NoEffect("the provider is busy")
        case status:
            raise ConnectionError(f"the provider said {status}")


# Declared


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
    if kind not in (Kind.UNSURE, Kind.SLOW) or policy is OnUnknown.RECONCILE  # to any other it is like others
]
"""Every one that might be declared."""


def declare(app: App, deeds: Deeds, pair: Pair) -> None:
    """Raises ConfigInvalid for what contradicts itself."""
    policy, kind = pair
    terms: dict[str, Any] = {
        "irreversible": True,
        "on_unknown": policy,
        "idempotent_provider": kind in DROP_A_SECOND,
        "idempotency_window": WINDOWS.get(kind),
        "timeout": TIMEOUT,
        "settle_after": 2 * SLOWLY if kind is Kind.SLOW else 0.0,
    }

    @app.action(pair.action, **terms)
    async def send(call: Call, *, of: str, text: str, faults: Sequence[str]) -> Any:
        return await deeds.call(call, kind, of, text, faults)

    @app.action(f"{pair.action}.plain", **terms)
    def plain(call: Call, *, of: str, text: str, faults: Sequence[str]) -> Any:
        return deeds.call_in_thread(call, kind, of, text, faults)

    for action in (send, plain):
        if policy is OnUnknown.RECONCILE and kind in ANSWERS:

            @action.reconcile
            async def seen(call: Call, *, of: str, text: str, faults: Sequence[str]) -> Any:
                return await deeds.look(call, kind)


def an_app(deeds: Deeds) -> App:
    """Every action that may be declared, and workflows that take it."""
    app = deeds.app = App("acting")
    for pair in PAIRS:
        with suppress(ConfigInvalid):
            declare(app, deeds, pair)
    app.actions = {name: action for name, action in app.actions.items() if not action.lacks_reconciler}

    @app.workflow("single", retry=PATIENT, timeout=TURN_TIMEOUT)
    async def single(ctx: TaskContext, action: str, text: str, faults: list[str]) -> Any:
        return await deeds.act(ctx, action, text, faults)

    @app.workflow("twins", retry=PATIENT, timeout=TURN_TIMEOUT)
    async def twins(ctx: TaskContext, action: str, text: str, faults: list[str]) -> Any:
        """The same text twice, and on purpose."""
        return [await deeds.act(ctx, action, text, faults) for _ in range(2)]

    @app.workflow("crowd", retry=PATIENT, timeout=TURN_TIMEOUT)
    async def crowd(ctx: TaskContext, text: str, acts: list[tuple[str, list[str]]]) -> Any:
        """Several at once, the first of them twice under the same key: that is one."""
        results: dict[str, Any] = {}

        async def one(n: int, action: str, faults: list[str]) -> None:
            results[f"{n}"] = await deeds.act(ctx, action, f"{text} {n}", faults, key=f"{n}")

        async with anyio.create_task_group() as beside:
            for n, (action, faults) in [*enumerate(acts), (0, acts[0])]:
                beside.start_soon(one, n, action, faults)
        return results

    @app.workflow("turns", retry=PATIENT, timeout=TURN_TIMEOUT)
    async def turns(ctx: TaskContext, action: str, text: str, faults: list[str]) -> Any:
        """An act, a sleep and another; in the next turn one more, and one that every turn takes under the same key."""
        results = [await deeds.act(ctx, action, f"{text} {ctx.turn}", faults)]
        await ctx.sleep(A_MOMENT)
        results.append(await deeds.act(ctx, action, f"{text} once", [], key="once"))
        if ctx.turn == 1:
            return Continue(results)
        return [*(ctx.state or []), *results]

    return app


ACTS = {"single": 1, "twins": 2, "turns": 3}
"""How many rows a task of each workflow has, when it is DONE. A crowd says so in its payload."""
