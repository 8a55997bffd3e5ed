"""Rows of many starts of a daemon."""

from __future__ import annotations

from tests.support.fakes import VirtualCore

START = """
INSERT INTO epochs (epoch, boot_id, pid, host, version, started_at, ended_at)
VALUES (:epoch, 'b' || :epoch, 1, 'here', '1', :now, CASE WHEN :ended THEN :now END)
"""


def insert_starts(core: VirtualCore, number: int, *, ended: bool = True) -> None:
    """Insert the rows of starts with epochs 1 to `number`."""
    core.do(
        lambda tx: [tx.run(START, epoch=epoch, now=core.clock.now(), ended=ended) for epoch in range(1, number + 1)]
    )
