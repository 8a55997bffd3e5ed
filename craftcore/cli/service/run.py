"""`craftcore run`: the daemon, in the foreground."""

from __future__ import annotations

import click

from craftcore.cli.base import WriteCommand
from craftcore.cli.exit_codes import SETTINGS, TRY_LATER, WORK_FAILED
from craftcore.cli.session import Session


@click.command(
    cls=WriteCommand,
    touches="Works on the database, which it makes, or brings up to date, first. One daemon per database.",
    exits={
        WORK_FAILED: "with --until-idle: something became FAILED or DEAD meanwhile",
        TRY_LATER: "another daemon holds this database; it is named",
        SETTINGS: "the settings or the app are wrong; every mistake is a line",
    },
    examples=(
        "craftcore run app:app",
        "craftcore --db agent.db --config craftcore.toml run app:app",
        "craftcore run app:app --until-idle",
    ),
    see=("craftcore check", "craftcore status", "craftcore systemd install", "docs/explanation/lifecycle.md"),
)
@click.argument("app", metavar="[MODULE:APP]", required=False)
@click.option("--until-idle", is_flag=True, help="Leave when nothing is claimed and nothing due.")
@click.option("--paused", is_flag=True, help="Accept triggers but claim none, until the next start without this.")
@click.pass_obj
def run(session: Session, app: str | None, until_idle: bool, paused: bool) -> int:
    """Run the daemon, until SIGTERM or Ctrl-C.

    MODULE:APP names the App, looked for in the current directory first. Without one there are the workflows that every
    app has: command.run, email.send, http.request. A due trigger of an unknown workflow is FAILED.

    It logs to standard error. The first SIGTERM or Ctrl-C lets what runs finish within
    daemon.shutdown_grace (30 s); the second cancels it and gives its attempts back. SIGHUP is `craftcore reload`.
    """
    from craftcore.daemon.process_one import work_below_process_one

    work_below_process_one()
    session.load_config()  # a mistake in it is told before an app's import may take its time
    from craftcore.daemon import daemon_process
    from craftcore.daemon.app_loader import import_app
    from craftcore.daemon.signals import ignore_at_exit
    from craftcore.registry.registry import Registry

    ignore_at_exit()  # before the exit handlers of the app: the last one to be called is the first one registered
    code = daemon_process.run(
        Registry() if app is None else import_app(app),
        session.path,
        session.load_config,
        paused=paused,
        until_idle=until_idle,
    )
    if session.json:
        session.out.document({"ok": code == 0, "exit_code": code})
    return code
