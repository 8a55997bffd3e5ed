"""A world that writes down what it remembers, so that it outlives a killed process."""

from __future__ import annotations

from typing import Any

from craftcore.testing.effect import Effect, LateCall
from craftcore.testing.life_log import ActedLate, Counted, Delayed, LifeLog, Moved, Noted, Record
from craftcore.testing.provider import Provider, make_networked_providers
from craftcore.testing.virtual_clock import NEW_YEAR, VirtualClock
from craftcore.testing.world import World


class LoggedClock(VirtualClock):
    """A clock that writes down each move, once the scenario goes on."""

    def __init__(self, log: LifeLog, *, seed: int) -> None:
        super().__init__(NEW_YEAR, seed=seed)
        self._log = log
        self.is_live = False

    def advance(self, seconds: float = 0.0, *, minutes: float = 0.0, hours: float = 0.0) -> None:
        """Let time pass."""
        super().advance(seconds, minutes=minutes, hours=hours)
        self._note()

    def set_back(self, seconds: float) -> None:
        """Set the wall clock back."""
        super().set_back(seconds)
        self._note()

    def _note(self) -> None:
        if self.is_live:
            self._log.append(Moved(self.now(), self.boot_time()))


class LoggedWorld(World):
    """A world whose effects, counts and late calls are in a log."""

    def __init__(self, log: LifeLog, life: int) -> None:
        self.clock: LoggedClock = LoggedClock(log, seed=life)
        super().__init__(self.clock, make_networked_providers())
        self.life = life - 1
        self._log = log

    def resume(self) -> None:
        """Write down the moves of the clock from now on: everything before is restored."""
        self.clock.is_live = True

    def note(self, effect: Effect, result: Any = None) -> None:
        super().note(effect, result)
        self._log.append(Noted(effect, result))

    def note_provider(self, provider: Provider) -> None:
        self._log.append(Counted(provider.name, provider.counts))

    def note_late(self, call: LateCall) -> None:
        super().note_late(call)
        self._log.append(Delayed(call))

    def act_late(self, now: float) -> None:
        super().act_late(now)
        self._log.append(ActedLate(now))

    def restore(self, record: Record) -> None:
        """Take over what an earlier life wrote down."""
        match record:
            case Moved(now, boot_time):
                self.clock.put(now, boot_time)
            case Noted(effect, result):
                super().note(effect, result)
                if effect.key and (provider := self.providers.get(effect.action)) is not None:
                    provider.remember(effect, result)
            case Counted(action, counts):
                for name, value in counts.items():
                    setattr(self.providers[action], name, value)
            case Delayed(call):
                self.late.append(call)
            case ActedLate(until):
                self.late = [call for call in self.late if call.at > until]
