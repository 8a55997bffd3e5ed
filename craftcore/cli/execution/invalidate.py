"""`craftcore invalidate`: a person says that a record is not to be replayed."""

from __future__ import annotations

import click

from craftcore.cli.base import OperatorCommand
from craftcore.cli.execution.view import told_record
from craftcore.cli.exit_codes import NO_SUCH, PROBLEM
from craftcore.cli.lookup import refuse_bad_reason, the_record
from craftcore.cli.session import Session
from craftcore.executions.invalidation import Invalidation


@click.command(
    "invalidate",
    cls=OperatorCommand,
    exits={PROBLEM: "one of them is invalidated already; none was", NO_SUCH: None},
    examples=('craftcore invalidate exec-01a1fdfa --reason "made with the wrong prices"',),
    see=("craftcore replay", "craftcore audit", "docs/reference/cli.md#replay"),
)
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@click.option("--reason", metavar="TEXT", required=True, help="Why; it stands in the log of what people did.")
@click.pass_obj
def invalidate(session: Session, /, ids: tuple[str, ...], reason: str) -> None:
    """Never replay these executions from now on, without --force.

    The records stay as they are; this cannot be taken back, and is not asked about. All of them, or none.
    """
    refuse_bad_reason(reason)
    core = session.core()
    with session.changing(core) as (tx, did):
        chosen = dict.fromkeys(the_record(tx, given).id for given in ids)
        done = [Invalidation().invalidate(tx, execution_id, did.actor, reason) for execution_id in chosen]
    if session.json:
        session.out.document([told_record(record) for record in done])
        return
    for record in done:
        session.out.line(f"{record.id} is invalidated: it is not replayed any more")
