"""`craftcore reload`: the daemon reads its settings again, and what came of it."""

from __future__ import annotations

import signal
import time
from dataclasses import asdict

import click

from craftcore.cli.base import WriteCommand
from craftcore.cli.exit_codes import NO_SUCH, PROBLEM, SETTINGS, TRY_LATER
from craftcore.cli.output import Output
from craftcore.cli.session import Session
from craftcore.config import Config
from craftcore.daemon.config_reload import Reloaded, last_reload
from craftcore.daemon.lock_owner import open_daemon_process
from craftcore.errors import ConfigInvalid, StillWaiting
from craftcore.serialization.time_text import add_iso_times

PATIENCE_SECONDS = 30.0
POLL_SECONDS = 0.02


@click.command(
    cls=WriteCommand,
    touches="Signals the daemon of this database, and waits up to 30 s for its answer.",
    exits={
        PROBLEM: "no daemon runs here, or the engine is in a program of its own",
        NO_SUCH: None,
        TRY_LATER: "the daemon has not answered",
        SETTINGS: "there are mistakes in the settings; nothing was changed",
    },
    examples=("craftcore reload",),
    see=("craftcore check", "craftcore status", "docs/how-to/deploy-with-systemd.md#changed-settings"),
)
@click.pass_obj
def reload(session: Session) -> int:
    """Let the daemon read its settings again.

    Its own file, the one it was started with. Schedules of the file, the log level and the retry defaults count at
    once; whatever else has changed waits for the next start, and is named. With a mistake in them nothing changes, and
    each mistake is a line.
    """
    from craftcore.services import Services

    core = Services(session.path, Config(), read_only=True)  # what the settings of this shell say is of no matter here
    with core.reading():
        pass  # where there is no database, that is what is said, and not that no daemon runs on it
    with open_daemon_process(core.database.path) as daemon:
        asked = core.clock.boot_time()
        signal.pidfd_send_signal(daemon, signal.SIGHUP)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            with core.reading() as reader:
                reloaded = last_reload(reader)
            if reloaded is not None and reloaded.began >= asked:
                break
            if time.monotonic() > deadline:
                raise StillWaiting(
                    f"the daemon received SIGHUP, and has not answered in {PATIENCE_SECONDS:.0f} s; see its log"
                )
            time.sleep(POLL_SECONDS)
    if session.json:
        session.out.document({"ok": not reloaded.refused, **add_iso_times(asdict(reloaded))})
    else:
        _say(session.out, reloaded)
    return ConfigInvalid.exit_code if reloaded.refused else 0


def _say(out: Output, reloaded: Reloaded) -> None:
    for mistake in reloaded.refused:
        out.line(f"FAIL  {mistake}", style="bad")
    if reloaded.refused:
        out.line("nothing was changed: the daemon goes on with the settings as they were")
        return
    if reloaded.applied:
        out.line(f"changed, and counts now: {', '.join(reloaded.applied)}", style="good")
    if reloaded.at_next_start:
        out.line(f"changed, and waits for the next start: {', '.join(reloaded.at_next_start)}", style="warn")
    if not reloaded.applied and not reloaded.at_next_start:
        out.line("read again: nothing has changed")
