"""`craftcore web`: the page for people."""

from __future__ import annotations

import os
import sys

import click

from craftcore.cli.base import Command
from craftcore.cli.exit_codes import CANNOT_CREATE, SETTINGS
from craftcore.cli.session import Session
from craftcore.config.references import ENDPOINT_SAID, endpoint
from craftcore.diagnostics.text.printable import Verbatim
from craftcore.errors import ConfigInvalid


def _check_address(context: click.Context, option: click.Parameter, given: str | None) -> str | None:
    if given is not None and endpoint(given) is None:
        raise click.BadParameter(f"{given!r:.80} is not {ENDPOINT_SAID}")
    return given


@click.command(
    cls=Command,
    touches="Reads beside a daemon, or without one. Operator actions write in one commit each; `craftcore audit` shows "
    "the person.",
    exits={
        SETTINGS: "the settings are wrong, a library is missing, or no one could log in; every mistake is a line",
        CANNOT_CREATE: "it cannot listen at that address",
    },
    examples=("craftcore web", "craftcore web --listen unix:web.sock", "craftcore web --read-only"),
    see=("craftcore top", "craftcore inbox list", "craftcore systemd install", "docs/how-to/answer-from-a-phone.md"),
)
@click.option(
    "--listen",
    metavar="ADDRESS",
    callback=_check_address,
    help='Where: "127.0.0.1:PORT" or "unix:PATH". Default: web.listen.',
)
@click.pass_obj
def web(session: Session, /, listen: str | None) -> None:
    """Serve the page for people, until SIGTERM or Ctrl-C.

    The page lists open questions and actions in doubt, and shows tasks, schedules and what needs a person. In a
    terminal it prints a link that logs you in once. Others log in with a token of [[web.person]], or through a proxy.

    It is a process of its own: it runs beside a daemon, and also without one.
    """
    from craftcore.daemon.process_one import work_below_process_one

    work_below_process_one()
    config = session.load_config()
    try:
        from craftcore.web.server import open_services, serve
    except ImportError as error:
        raise ConfigInvalid(f"craftcore web needs {error.name}: pip install 'craftcore[web]'") from error
    from craftcore.daemon import logging
    from craftcore.daemon.sd_notify import Notifier

    journal = logging.is_journal_stream(sys.stderr, os.environ)
    logging.configure(config.log.level, config.log.format, stream=sys.stderr, under_systemd=journal)

    def announce(place: str, link: str | None) -> None:
        if session.json:
            session.out.document({"listening": place, "link": link})
        elif link is not None:
            session.out.line("", Verbatim(link))  # a folded link leads nowhere

    notifier = Notifier.from_environment(os.environ)
    services = open_services(session.path, config, read_only=session.is_read_only)
    serve(services, listen, notifier, read_only=session.is_read_only, announce=announce)
