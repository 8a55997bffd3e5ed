"""`craftcore run`: the daemon, in the foreground."""

from __future__ import annotations

import click

from craftcore.cli.root import Changing
from craftcore.cli.session import Session


@click.command(cls=Changing)
@click.argument("app", metavar="[MODULE:APP]", required=False)
@click.option("--until-idle", is_flag=True, help="Leave when nothing is claimed and nothing due; 4 if work failed.")
@click.option("--paused", is_flag=True, help="Accept triggers but claim none, until the next start without this.")
@click.pass_obj
def run(session: Session, app: str | None, until_idle: bool, paused: bool) -> int:
    """Run the daemon, until SIGTERM or Ctrl-C.

    MODULE:APP names the App, looked for in the current directory first. Without one there is the ready-made workflow
    command.run, which every app has.
    """
    session.load_config()  # a mistake in it is told before an app's import may take its time
    from craftcore.app import App
    from craftcore.daemon import main
    from craftcore.daemon.app_import import import_app

    return main.run(
        App() if app is None else import_app(app),
        session.path,
        session.load_config,
        paused=paused,
        until_idle=until_idle,
    )
