"""The workflow of a gate: it lets the entries of tasks pass in their order, within its limit."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy

with workflow.unsafe.imports_passed_through():
    from craftcore.temporal.workflow import gate_rules
    from craftcore.temporal.workflow.commands import send_signal, sleep_until
    from craftcore.temporal.workflow.gate_messages import (
        GATE,
        LOOK,
        Announcement,
        EnterCall,
        GateStart,
        GateState,
        LeaveCall,
        Passed,
    )

LOOK_TIMEOUT = timedelta(seconds=60)


@workflow.defn(name=GATE)
class GateWorkflow:
    """Lets tasks pass. It ends by itself, and is started again by a caller that finds it gone."""

    @workflow.init
    def __init__(self, start: GateStart, carried: GateState | None) -> None:
        self._start = start
        self._state = carried or GateState(limit=start.limit)
        self._signals = 0
        self._has_changed = True
        self._is_over = False
        self._timers: dict[str, asyncio.Task[None]] = {}

    @workflow.run
    async def run(self, start: GateStart, carried: GateState | None) -> None:
        """Answer until nothing came for long, in run after run."""
        self._watch("idle", self._end_when_idle)
        while not self._is_over:
            self._has_changed = False
            answers = gate_rules.let_pass(self._state)
            await asyncio.gather(*(self._answer(holder, answer) for holder, answer in answers))
            self._watch("tokens", self._return_tokens)
            self._watch("check", self._check)
            if self._has_changed:
                continue
            if self._signals >= start.run_signals_max or workflow.info().is_continue_as_new_suggested():
                workflow.continue_as_new(args=[start, self._state])
            await workflow.wait_condition(lambda: self._has_changed or self._is_over)

    async def _answer(self, holder: str, answer: Passed) -> None:
        if not await send_signal(holder, "passed", answer):
            gate_rules.forget(self._state, holder, workflow.time())
            self._has_changed = True

    def _watch(self, name: str, watch: Any) -> None:
        """Run this beside the others, unless it runs."""
        if name not in self._timers or self._timers[name].done():
            made: Coroutine[Any, Any, None] = watch()
            self._timers[name] = asyncio.create_task(made)

    async def _return_tokens(self) -> None:
        while self._state.starts:
            await sleep_until(self._state.starts[0] + self._state.limit.rate_seconds)
            gate_rules.return_token(self._state)
            self._has_changed = True

    async def _check(self) -> None:
        """Look whether those that others wait for are alive."""
        while not gate_rules.is_empty(self._state):
            await asyncio.sleep(self._start.check_seconds)
            if unsure := gate_rules.list_unsure(self._state):
                await self._forget_dead(unsure)

    async def _end_when_idle(self) -> None:
        """End after an idle time in which nothing came, when nothing that lives is remembered."""
        while True:
            before = self._signals
            await asyncio.sleep(self._start.idle_seconds)
            if self._signals != before or not gate_rules.is_empty(self._state):
                continue
            await self._forget_dead(gate_rules.list_remembered(self._state))
            if self._signals == before and not gate_rules.list_remembered(self._state):
                self._is_over = True
                return

    async def _forget_dead(self, holders: list[str]) -> None:
        if not holders:
            return
        ended: list[str] = await workflow.execute_local_activity(
            LOOK,
            holders,
            result_type=list[str],
            start_to_close_timeout=LOOK_TIMEOUT,
            retry_policy=RetryPolicy(maximum_interval=LOOK_TIMEOUT),
        )
        for holder in holders:
            if holder in ended:
                gate_rules.forget(self._state, holder, workflow.time())
                self._has_changed = True
            else:
                gate_rules.note_alive(self._state, holder)

    def _note_signal(self) -> None:
        self._signals += 1
        self._has_changed = True

    @workflow.signal
    def announce(self, call: Announcement) -> None:
        """Keep the order of a trigger that is about to be emitted."""
        gate_rules.announce(self._state, call)
        self._note_signal()

    @workflow.signal
    def withdraw(self, holder: str, mark: str) -> None:
        """Forget a trigger that was announced and not emitted."""
        gate_rules.withdraw(self._state, holder, mark)
        self._note_signal()

    @workflow.signal
    def enter(self, call: EnterCall) -> None:
        """Let a task wait for its entry."""
        gate_rules.enter(self._state, call, workflow.time())
        self._note_signal()

    @workflow.signal(name="started")
    def note_start(self, holder: str, entry: int) -> None:
        """Count the start of an entry."""
        gate_rules.note_start(self._state, holder, entry, workflow.time())
        self._note_signal()

    @workflow.signal
    def leave(self, call: LeaveCall) -> None:
        """Free what a task holds."""
        gate_rules.leave(self._state, call, workflow.time())
        self._note_signal()

    @workflow.query
    def view(self) -> GateState:
        """Return who is inside, who waits and who lives."""
        return self._state
