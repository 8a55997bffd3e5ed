"""`craftcore temporal check`: everything that would keep an app from running well on a cluster, all at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from craftcore.cli.exit_codes import NO_SUCH, PROBLEM
from craftcore.cli.session import Session
from craftcore.cli.temporal.cluster_calls import call_cluster
from craftcore.cli.temporal.cluster_options import ClusterCommand, read_cluster_settings, require_extra
from craftcore.errors import ConfigInvalid, CraftcoreError
from craftcore.serialization.time_text import format_span

if TYPE_CHECKING:
    from craftcore.temporal.cluster_connection import Client


@click.command(
    cls=ClusterCommand,
    touches="Only reads on the cluster; imports the app and uses no database.",
    exits={PROBLEM: "the namespace lacks search attributes", NO_SUCH: "no such namespace"},
    examples=("craftcore temporal check app:app", "craftcore temporal check app:app --address host:7233 --json"),
    see=("craftcore temporal setup", "craftcore check", "docs/how-to/run-on-temporal.md"),
)
@click.argument("app", metavar="MODULE:APP")
@click.pass_obj
def check(session: Session, app: str) -> int:
    """Find what an app cannot keep on a cluster.

    Looks at the app, the connection, the namespace and its search attributes, and lists every problem. A warning names
    what is weaker on a cluster, or fails there in a turn. Calls are found in the source of a workflow itself only.
    """
    settings, config = read_cluster_settings(session), session.load_config()
    failed: list[CraftcoreError] = []
    rows: list[tuple[str, str]] = []
    warnings: list[str] = []

    def fail(error: CraftcoreError) -> None:
        failed.append(error)
        rows.extend(("FAIL", line) for line in error.message.splitlines())

    try:
        warnings += _check_app(app)
        rows.append(("ok", f"app: {app}"))
    except CraftcoreError as error:
        fail(error)

    async def look(client: Client) -> tuple[list[str], float]:
        from craftcore.temporal.attribute_setup import list_missing, read_retention

        return await list_missing(client), await read_retention(client)

    try:
        missing, retention = call_cluster(session, look)
        rows.append(("ok", f"connection: {settings.address}, namespace {settings.namespace}"))
        if missing:
            rows.append(("FAIL", f"search attributes missing: {', '.join(missing)}. Run craftcore temporal setup"))
        else:
            rows.append(("ok", "search attributes: all are registered"))
        if retention < config.retention.keys:
            warnings.append(
                f"the namespace keeps ended tasks for {format_span(retention)}, and dedup keys of scope ever as long: "
                f"retention.keys is {format_span(config.retention.keys)}"
            )
    except CraftcoreError as error:
        fail(error)
    problems = [text for mark, text in rows if mark == "FAIL"]
    if session.json:
        session.out.document({"ok": not problems, "problems": problems, "warnings": warnings})
    else:
        for mark, text in rows:
            session.out.line(f"{mark:<4}  {text}", style="good" if mark == "ok" else "bad")
        for text in warnings:
            session.out.line(f"warn  {text}", style="warn")
    if failed:
        return max(error.exit_code for error in failed)
    return PROBLEM if problems else 0


def _check_app(named: str) -> list[str]:
    """Return the warnings of an app. Raises ConfigInvalid for one that a worker refuses."""
    from craftcore.daemon.app_loader import import_app

    require_extra()
    from craftcore.temporal.app_check import list_changes, list_refused_calls
    from craftcore.temporal.worker import list_unsupported

    app = import_app(named)
    if unsupported := list_unsupported(app):
        raise ConfigInvalid("\n".join(f"app: {line}" for line in unsupported))
    return [*list_refused_calls(app), *list_changes(app)]
