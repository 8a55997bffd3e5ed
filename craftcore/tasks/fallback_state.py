"""Which of several agents a task's turn goes on with: one that fails is followed by the next, until something has been
done to the world."""

from __future__ import annotations

from collections.abc import Sequence

from craftcore.storage.transaction import Transaction
from craftcore.tasks.agent_store import AgentStore
from craftcore.tasks.model import Task


class Agents:
    """Each method is a rule over a transaction it is given."""

    def __init__(self) -> None:
        self._agents = AgentStore()

    def choose(self, tx: Transaction, task: Task, agents: Sequence[str]) -> None:
        """A router chose which are tried, and in which order; it holds for all of the task."""
        self._agents.set(tx, task.seq, agents, None)

    def fall_back(self, tx: Transaction, task: Task, agents: Sequence[str], agent: str) -> bool:
        """The turn goes on with this agent, and goes on with it after a crash or a wait. False, and nothing written,
        once an irreversible action of the task has begun: another agent knows nothing of it, and might do it again."""
        if self._agents.has_acted(tx, task.id):
            return False
        self._agents.set(tx, task.seq, agents, agent)
        return True

    def start_over(self, tx: Transaction, task: Task) -> None:
        """What is tried again is tried with the first agent, unless one that came later has begun an irreversible
        action: only that one can find out about it."""
        if not self._agents.has_acted(tx, task.id):
            self._agents.start_over(tx, task.seq)

    def keep(self, tx: Transaction, task: Task, agents: Sequence[str], agent: str) -> None:
        """The next turn begins with the agent whose state it takes; those that failed before it are not tried again."""
        self._agents.set(tx, task.seq, agents[agents.index(agent) :], None)
