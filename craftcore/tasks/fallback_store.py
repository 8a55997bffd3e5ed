"""Fallback of a task: which of several agents its turn goes on with.

An agent that fails is followed by the next, until an irreversible action of the task has begun.
"""

from __future__ import annotations

from collections.abc import Sequence

from craftcore.serialization.canonical import canonicalize
from craftcore.storage.transaction import Reader, Transaction
from craftcore.tasks.model import Task


class FallbackStore:
    """Rules over two columns of `tasks`: the agents in their order, and the one that runs."""

    def choose(self, tx: Transaction, task: Task, agents: Sequence[str]) -> None:
        """Store the agents that a router chose, in their order. They hold for all of the task."""
        self._set(tx, task.seq, agents, None)

    def fall_back(self, tx: Transaction, task: Task, agents: Sequence[str], agent: str) -> bool:
        """Let the turn go on with this agent, also after a crash or a wait.

        Return False, and write nothing, once an irreversible action of the task has begun: another agent does not know
        it, and might repeat it.
        """
        if self.has_acted(tx, task.id):
            return False
        self._set(tx, task.seq, agents, agent)
        return True

    def start_over(self, tx: Transaction, task: Task) -> None:
        """Let the next attempt begin with the first agent, unless a later one has begun an irreversible action: only
        that agent can find out about it."""
        if not self.has_acted(tx, task.id):
            tx.run("UPDATE tasks SET agent = NULL WHERE seq = :seq", seq=task.seq)

    def keep(self, tx: Transaction, task: Task, agents: Sequence[str], agent: str) -> None:
        """Let the next turn begin with the agent whose state it takes. Those that failed before are not tried again."""
        self._set(tx, task.seq, agents[agents.index(agent) :], None)

    def has_acted(self, tx: Reader, task_id: str) -> bool:
        """Return whether an irreversible action of this task was ever begun."""
        found = tx.fetch_value(
            """
            SELECT EXISTS (
                SELECT 1
                  FROM activity_log
                 WHERE idem_key >= :low
                   AND idem_key < :high
                   AND task_id = :task_id
            )
            """,  # by the index of the keys; a task whose id is longer by a colon and more has keys in there, too
            low=f"activity:{task_id}:",
            high=f"activity:{task_id};",
            task_id=task_id,
        )
        return bool(found)

    def _set(self, tx: Transaction, task_seq: int, agents: Sequence[str], agent: str | None) -> None:
        tx.run(
            "UPDATE tasks SET agents_json = :agents, agent = :agent WHERE seq = :seq",
            agents=canonicalize(list(agents)),
            agent=agent,
            seq=task_seq,
        )
