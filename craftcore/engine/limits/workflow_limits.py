"""Limits: how many more triggers of each limited workflow may be claimed now. Those by key are in `key_limits`.

    concurrency    counts every claim, running or not
    rate           counts what started within `per`, and every claim that has not started: its token is kept for it

So a rate holds however long a claim waits for its start. Places need no bookkeeping: each look counts what is held.
Moments are those of `Clock.boot_time`: a change of the wall clock gives no token and takes none.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence

from craftcore.engine.limits.key_limits import KeyLimits
from craftcore.registry.workflow import Workflow
from craftcore.triggers.claim_candidate_store import Budget
from craftcore.triggers.model import Claim, NewTrigger


class Limits:
    """The limits of an app's workflows, and when those with a rate were started.

    They count the triggers that name a workflow, and those that name none but have a source of that workflow. They
    do not count the triggers that a router sends to a workflow: those are known too late.
    """

    def __init__(self, workflows: Iterable[Workflow], by_source: Mapping[str, str]) -> None:
        limited = [workflow for workflow in workflows if workflow.is_limited]
        self.keys = KeyLimits(limited, by_source)
        self._all = frozenset(workflow.name for workflow in limited)
        limited = [workflow for workflow in limited if workflow.limit_by is None]
        self._names = frozenset(workflow.name for workflow in limited)
        self._every_source = by_source
        self._by_source = {source: name for source, name in by_source.items() if name in self._names}
        self._concurrency = {workflow.name: workflow.concurrency for workflow in limited if workflow.concurrency}
        self.rates = {workflow.name: workflow.rate for workflow in limited if workflow.rate}
        """The rate of each workflow that has one as a whole."""
        self._starts = {name: deque[float](maxlen=rate.count) for name, rate in self.rates.items()}

    def __bool__(self) -> bool:
        return bool(self._all)

    def is_limited(self, workflow: str | None) -> bool:
        """Return whether a workflow has a limit, as a whole or by key."""
        return workflow in self._all

    def workflow_of(self, trigger: Claim | NewTrigger) -> str | None:
        """Return the limited workflow that a trigger will run; None when what it runs has no limit."""
        name = self.find_workflow(trigger)
        return name if name in self._all else None

    def find_workflow(self, trigger: Claim | NewTrigger) -> str | None:
        """Return the workflow that a trigger will run; None when the router decides it."""
        return trigger.workflow if trigger.workflow is not None else self._every_source.get(trigger.source)

    def is_slot_freed(self, claim: Claim) -> bool:
        """Return whether the end of this one makes a place for another of its workflow."""
        return self.workflow_of(claim) in self._concurrency or self.keys.is_waited_for(claim)

    def note_started(self, claims: Sequence[Claim], at: float) -> None:
        for claim in claims:
            if (starts := self._starts.get(self.workflow_of(claim) or "")) is not None:
                starts.append(at)
        self.keys.note_started(claims, at)

    def remember(self, starts: Iterable[tuple[str, float]]) -> None:
        """Count starts before this engine: (workflow, moment) of each, in any order."""
        for name, at in sorted(starts, key=lambda start: start[1]):
            if name in self._starts:
                self._starts[name].append(at)

    def budget(self, held: Collection[Claim], running: Collection[Claim], now: float) -> Budget | None:
        """Return what a look that begins now may claim; None when nothing is limited. `running` are among those
        held."""
        if not self._names:
            return None
        claimed = self._count(held)
        waiting = claimed - self._count(running)
        places = {name: most - claimed[name] for name, most in self._concurrency.items()}
        for name, rate in self.rates.items():
            starts = self._starts[name]
            while starts and starts[0] + rate.seconds <= now:
                starts.popleft()
            tokens = rate.count - len(starts) - waiting[name]
            places[name] = min(tokens, places.get(name, tokens))
        return Budget({name: max(0, left) for name, left in places.items()}, self._by_source)

    def close_workflows(self, budget: Budget | None, closed: Collection[str]) -> Budget | None:
        """Return the budget with no place for these workflows."""
        if not closed:
            return budget
        places = {**(budget.places if budget is not None else {}), **dict.fromkeys(closed, 0)}
        by_source = {source: name for source, name in self._every_source.items() if name in places}
        return Budget(places, by_source, closed)

    def next_token(self, held: Collection[Claim], running: Collection[Claim]) -> float:
        """Return when a workflow without a token gets one back, as of the last `budget`; infinity when none is on its
        way. It may have passed since: the token was not offered yet."""
        if not self.rates:
            return math.inf
        waiting = self._count(held) - self._count(running)
        moments = [math.inf]
        for name, rate in self.rates.items():
            starts = self._starts[name]
            last = len(starts) + waiting[name] - rate.count  # once this one no longer counts there is a token
            if 0 <= last < len(starts):
                moments.append(starts[last] + rate.seconds)
        return min(moments)

    def _count(self, claims: Collection[Claim]) -> Counter[str]:
        return Counter(name for claim in claims if (name := self.workflow_of(claim)) is not None)
