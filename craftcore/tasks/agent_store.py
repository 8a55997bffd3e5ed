"""The only SQL of which workflow a task's turn is tried with, where it declares or was given more than one."""

from __future__ import annotations

from collections.abc import Sequence

from craftcore.serialization.canonical import canonical
from craftcore.storage.transaction import Reader, Transaction


class AgentStore:
    """Two columns of `tasks`. Holds nothing."""

    def set(self, tx: Transaction, task_seq: int, agents: Sequence[str], agent: str | None) -> None:
        """The order in which agents are tried, and which of them it has come to; None: to the first."""
        tx.run(
            "UPDATE tasks SET agents_json = :agents, agent = :agent WHERE seq = :seq",
            agents=canonical(list(agents)),
            agent=agent,
            seq=task_seq,
        )

    def start_over(self, tx: Transaction, task_seq: int) -> None:
        """The first agent is to be tried next."""
        tx.run("UPDATE tasks SET agent = NULL WHERE seq = :seq", seq=task_seq)

    def has_acted(self, tx: Reader, task_id: str) -> bool:
        """Whether an irreversible action of this task was ever begun, whatever became of it."""
        found: int = tx.value(
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
