"""The only SQL of triggers outside a claim's life: accept, replace, supersede, look up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from craftcore.storage.damaged_rows import model_of, model_reader
from craftcore.storage.transaction import BulkStatement, Reader, Row, Transaction
from craftcore.triggers.model import Claim, NewTrigger, Trigger

_ACCEPTED = NewTrigger._fields[: NewTrigger._fields.index("at_given") + 1]
_LEASE = ("seq", "status", "claimed_epoch", "lease_token", "lease_until")


INSERT = BulkStatement(
    f"INSERT INTO triggers ({', '.join(_ACCEPTED)}) VALUES {{rows}}",  # noqa: S608 - the columns of the model
    width=len(_ACCEPTED),
    most=128,
)
INSERT_CLAIMED = BulkStatement(
    f"INSERT INTO triggers ({', '.join(_ACCEPTED + _LEASE)}) VALUES {{rows}}",  # noqa: S608 - the columns of the model
    width=len(_ACCEPTED + _LEASE),
)

INSERT_SCHEDULED = f"""
INSERT INTO triggers ({", ".join(_ACCEPTED)}, schedule_id, nominal_at, not_before)
VALUES (:{", :".join(_ACCEPTED)}, :schedule_id, :nominal_at, :not_before)
"""  # noqa: S608 - the columns of the model


class TriggerStore:
    """Rows of `triggers`. Holds nothing; every method runs on the transaction it is given."""

    def insert_all(self, tx: Transaction, rows: Iterable[NewTrigger]) -> None:
        """Insert accepted triggers as PENDING."""
        tx.execute_many(INSERT, [row[: len(_ACCEPTED)] for row in rows])

    def insert_claimed(
        self, tx: Transaction, rows: Sequence[NewTrigger], *, epoch: int, token: str, lease_until: float
    ) -> list[Claim]:
        """Insert plain triggers that are due as CLAIMED; their claims, in order.

        `seq` is assigned here, under the write lock, because RETURNING promises no order.
        """
        first: int = tx.fetch_value("SELECT coalesce(max(seq), 0) + 1 FROM triggers")
        claims = [_claim_of(row, seq, token) for seq, row in enumerate(rows, first)]
        lease = ("CLAIMED", epoch, token, lease_until)
        values = [(*row[: len(_ACCEPTED)], claim.seq, *lease) for claim, row in zip(claims, rows, strict=True)]
        tx.execute_many(INSERT_CLAIMED, values)
        return claims

    def insert_scheduled(
        self, tx: Transaction, row: NewTrigger, *, schedule_id: str, nominal_at: float, not_before: float | None
    ) -> None:
        """Insert one trigger of a schedule as PENDING. A statement of its own: no other emit pays for its columns."""
        tx.run(INSERT_SCHEDULED, **row._asdict(), schedule_id=schedule_id, nominal_at=nominal_at, not_before=not_before)

    def find_id(self, tx: Reader, trigger_id: str) -> Row | None:
        """Return what `emit` must know of the trigger with this id; None when there is none."""
        return tx.fetch_one(
            "SELECT id, workflow, status, due_at, payload_json, stripped_at, dedup_scope FROM triggers WHERE id = :id",
            id=trigger_id,
        )

    def find_trace(self, tx: Reader, trigger_id: str) -> Row | None:
        """Return the same of a trigger whose row retention removed, as far as its task or its last record tells; None
        when neither is there."""
        return tx.fetch_one(
            """
            SELECT :id AS id,
                   workflow,
                   status,
                   created_at AS due_at,
                   '{}' AS payload_json,
                   created_at AS stripped_at,
                   NULL AS dedup_scope
              FROM (SELECT workflow,
                           CASE status WHEN 'FAILED' THEN 'FAILED' ELSE 'DONE' END AS status,
                           created_at,
                           0 AS rank
                      FROM tasks
                     WHERE id = :id
                     UNION ALL
                    SELECT workflow, CASE status WHEN 'error' THEN 'FAILED' ELSE 'DONE' END, created_at, 1
                      FROM executions
                     WHERE id >= 'exec-' || :id || '.'
                       AND id < 'exec-' || :id || '/'
                       AND trigger_id = :id)
             ORDER BY rank, created_at DESC
             LIMIT 1
            """,
            id=trigger_id,
        )

    def find_key(self, tx: Reader, dedup_key: str) -> Row | None:
        """Return what `emit` must know of the trigger that holds this dedup key, itself or by the live task that it
        created; None when it is free."""
        return tx.fetch_one(
            """
            SELECT id, workflow, status, due_at, payload_json, stripped_at, dedup_scope
              FROM triggers
             WHERE dedup_key = :key
               AND dedup_key IS NOT NULL
               AND (dedup_scope = 'ever' OR status IN ('PENDING', 'CLAIMED'))
             UNION ALL
            SELECT tasks.id,
                   tasks.workflow,
                   coalesce(triggers.status, 'DONE'),
                   coalesce(triggers.due_at, tasks.created_at),
                   coalesce(triggers.payload_json, '{}'),
                   CASE WHEN triggers.id IS NULL THEN tasks.created_at ELSE triggers.stripped_at END,
                   'active'
              FROM tasks
              LEFT JOIN triggers ON triggers.id = tasks.id
             WHERE tasks.dedup_key = :key
               AND tasks.dedup_key IS NOT NULL
               AND tasks.status IN ('RUNNING', 'WAITING')
             LIMIT 1
            """,
            key=dedup_key,
        )

    def has_due(self, tx: Reader, session_id: str, now: float) -> bool:
        """Return whether a trigger of this session is due and not claimed."""
        found: int | None = tx.fetch_value(
            """
            SELECT 1
              FROM triggers
             WHERE session_id = :session_id
               AND session_id IS NOT NULL
               AND status IN ('PENDING', 'CLAIMED')
               AND +status = 'PENDING'
               AND due_at <= :now
             LIMIT 1
            """,
            session_id=session_id,
            now=now,
        )
        return found is not None

    def replace(self, tx: Transaction, trigger_id: str, row: NewTrigger) -> bool:
        """Give an unstarted trigger a new payload, time and priority. False when it was started or settled."""
        return tx.run_one(
            """
            UPDATE triggers
               SET payload_json  = :payload_json,
                   fire_at       = :fire_at,
                   due_at        = :fire_at,
                   expires_at    = :expires_at,
                   priority      = :priority,
                   description   = :description,
                   workflow      = :workflow,
                   status        = 'PENDING',
                   not_before    = NULL,
                   claimed_epoch = NULL,
                   lease_token   = NULL,
                   lease_until   = NULL,
                   updated_at    = :now
             WHERE id = :id
               AND status IN ('PENDING', 'CLAIMED')
               AND started_at IS NULL
            """,
            id=trigger_id,
            payload_json=row.payload_json,
            fire_at=row.fire_at,
            expires_at=row.expires_at,
            priority=row.priority,
            description=row.description,
            workflow=row.workflow,
        )

    def supersede(self, tx: Transaction, row: NewTrigger) -> list[str]:
        """Settle the session's older unstarted triggers of the same source; their ids."""
        rows = tx.fetch_all(
            """
            UPDATE triggers
               SET status        = 'DONE',
                   reason        = 'superseded',
                   superseded_by = :id,
                   claimed_epoch = NULL,
                   lease_token   = NULL,
                   lease_until   = NULL,
                   settled_at    = :now,
                   updated_at    = :now
             WHERE session_id = :session_id
               AND source = :source
               AND status IN ('PENDING', 'CLAIMED')
               AND started_at IS NULL
               AND id <> :id
            RETURNING id
            """,
            id=row.id,
            session_id=row.session_id,
            source=row.source,
            now=tx.now,
        )
        return [superseded["id"] for superseded in rows]

    def get(self, tx: Reader, trigger_id: str) -> Trigger | None:
        """Return the whole row; None when there is none."""
        row = tx.fetch_one("SELECT * FROM triggers WHERE id = :id", id=trigger_id)
        return trigger_of(row) if row else None

    def insert_again(self, tx: Transaction, trigger_id: str, new_id: str, payload_json: str) -> bool:
        """Insert as PENDING what another trigger was when it was accepted, but for its dedup key. False when that is
        gone."""
        return tx.run_one(
            """
            INSERT INTO triggers (
                id, source, session_id, task_id, workflow, lane, fire_at, due_at, expires_at, priority, description,
                payload_json, max_attempts, created_at, updated_at
            )
            SELECT :new_id, source, session_id, task_id, workflow, coalesce(session_id, task_id), fire_at, fire_at,
                   expires_at, priority, description, :payload, max_attempts, :now, :now
              FROM triggers
             WHERE id = :id
            """,
            id=trigger_id,
            new_id=new_id,
            payload=payload_json,
        )

    def live_ids(self, tx: Reader) -> list[str]:
        """Return the ids of all that is not settled."""
        return [row["id"] for row in tx.fetch_all("SELECT id FROM triggers WHERE status IN ('PENDING', 'CLAIMED')")]


@model_reader
def trigger_of(row: Row) -> Trigger:
    """Return the model of a full row."""
    return model_of(Trigger, row)


def _claim_of(row: NewTrigger, seq: int, token: str) -> Claim:
    return Claim(
        seq=seq,
        id=row.id,
        lease_token=token,
        source=row.source,
        workflow=row.workflow,
        lane=row.lane,
        session_id=row.session_id,
        task_id=row.task_id,
        priority=row.priority,
        fire_at=row.fire_at,
        due_at=row.due_at,
        expires_at=row.expires_at,
        description=row.description,
        payload_json=row.payload_json,
        attempts=0,
        starts=0,
        crash_count=0,
        max_attempts=row.max_attempts,
    )
