"""`craftcore temporal setup`: what a namespace needs before the first worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from craftcore.cli.exit_codes import PROBLEM
from craftcore.cli.session import Session
from craftcore.cli.temporal.cluster_calls import call_cluster
from craftcore.cli.temporal.cluster_options import ClusterWriteCommand

if TYPE_CHECKING:
    from craftcore.temporal.cluster_connection import Client


@click.command(
    cls=ClusterWriteCommand,
    exits={PROBLEM: "the cluster refused, or has an attribute of that name and another type"},
    examples=(
        "craftcore temporal setup",
        "craftcore temporal setup --address host:7233 --namespace agents",
    ),
    see=("craftcore temporal check", "docs/how-to/run-on-temporal.md"),
)
@click.pass_obj
def setup(session: Session) -> None:
    """Register the search attributes in a namespace.

    Lists of tasks, questions and doubts need five of them. An administrator of the namespace runs this once. A second
    run changes nothing. The namespace must exist.
    """

    async def register_all(client: Client) -> list[str]:
        from craftcore.temporal.attribute_setup import register

        return await register(client)

    added = call_cluster(session, register_all)
    if session.json:
        session.out.document({"registered": added})
        return
    session.out.line(f"registered: {', '.join(added)}" if added else "nothing to do: all attributes are registered")
