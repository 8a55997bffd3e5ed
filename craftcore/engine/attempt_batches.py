"""Batches of starts and settles: one commit each. After a fault each member is committed by itself."""

from __future__ import annotations

import anyio

from craftcore.engine.attempt import Attempt
from craftcore.engine.attempt_commits import AttemptCommits, Settled
from craftcore.engine.durable_commit import DurableCommits
from craftcore.engine.events import EngineEvents, announce
from craftcore.engine.exclusive_run import ExclusiveRun
from craftcore.engine.faults import fault, report
from craftcore.engine.limits.shortages import HAND_BACKS_MAX, LOOK_SECONDS, Shortages
from craftcore.triggers.model import Claim


class AttemptBatches:
    """Batches of one engine."""

    def __init__(
        self,
        attempts: AttemptCommits,
        commits: DurableCommits,
        solitude: ExclusiveRun,
        shortages: Shortages,
        events: EngineEvents,
    ) -> None:
        self._shortages = shortages
        self._attempts = attempts
        self._commits = commits
        self._solitude = solitude
        self._events = events
        self.may_have_started = False
        """An error was raised while claims were started, perhaps after their commit: then no attempt holds them."""

    async def start(self, claims: list[Claim]) -> list[Attempt]:
        """Start these claims in one commit. After an error of craftcore each is started alone, and fails alone."""
        try:
            alone, outlived = self._solitude.is_on, self._solitude.outlived
            runs: list[Attempt] = await self._commits.commit(self._attempts.start_all, claims, alone, outlived)
            if outlived is not None:
                self._solitude.note_joined(outlived)
            return runs
        except BaseException as error:
            failed = fault(error, "start")
            self.may_have_started = True
            if self._shortages.note(error) is not None:
                return []  # they are claimed again
            if len(claims) == 1:
                report(claims[0], "start", error)
        if len(claims) > 1:
            return [run for claim in claims for run in await self.start([claim])]
        await self._commits.commit(self._attempts.fail, claims[0], failed)
        announce(self._events, self._events.on_start_failed, claims[0])
        return []

    async def settle_and_start(
        self, runs: list[Attempt], claims: list[Claim]
    ) -> tuple[list[Settled | Exception], list[Attempt]]:
        """Settle these runs and start these claims in one commit. After an error of craftcore each has its own."""
        try:
            found: tuple[list[Settled | Exception], list[Attempt]] = await self._commits.commit(
                self._attempts.settle_and_start, runs, claims
            )
            return found
        except BaseException as error:
            fault(error, "settle")
            self.may_have_started = True
        return await self.settle(runs), await self.start(claims)

    async def settle(self, runs: list[Attempt]) -> list[Settled | Exception]:
        """Settle these runs in one commit. After an error of craftcore each is settled alone: as it ended, else as
        failed, else by the fewest statements. An error in the last of these ends the engine."""
        try:
            return await self._settle_together(runs)
        except BaseException as error:
            failed = fault(error, "settle")
            if len(runs) == 1:
                report(runs[0].claim, "settle", error)
        if len(runs) > 1:
            return [answer for run in runs for answer in await self.settle([run])]
        runs[0].outcome, runs[0].move = failed, None
        try:
            return await self._settle_together(runs)
        except BaseException as error:
            fault(error, "settle")
        return [await self._commits.commit(self._attempts.fail, runs[0].claim, failed)]

    async def _settle_together(self, runs: list[Attempt]) -> list[Settled | Exception]:
        for left in reversed(range(HAND_BACKS_MAX)):
            try:
                answers: list[Settled | Exception] = await self._commits.commit(self._attempts.settle_all, runs)
                return answers
            except BaseException as error:
                if not left or self._shortages.note(error) is None:
                    raise
                await anyio.sleep(LOOK_SECONDS)
        raise AssertionError(runs)
