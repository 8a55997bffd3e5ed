"""`craftcore top`: what happens here, as it happens."""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import Any

import click

from craftcore.cli.base import Command
from craftcore.cli.damaged_list import say_damaged
from craftcore.cli.exit_codes import OF_A_LIST, SETTINGS
from craftcore.cli.session import Session
from craftcore.cli.status.status import with_verdict
from craftcore.cli.top.model import Rates, View, rates, view
from craftcore.diagnostics.top import Snapshot, read_top
from craftcore.errors import ConfigInvalid, InvalidInput
from craftcore.serialization.time_text import parse_duration
from craftcore.storage.damaged_rows import Damaged

SHORTEST, LONGEST = 0.1, 3600.0


@click.command(
    cls=Command,
    exits={**OF_A_LIST, SETTINGS: "it needs rich: pip install 'craftcore[top]'; --json does without"},
    examples=("craftcore top", "craftcore top --interval 10s", "craftcore top --once"),
    see=("craftcore status", "craftcore trigger list", "docs/how-to/monitor.md#top"),
)
@click.option("--interval", metavar="DURATION", default="2s", show_default=True, help="How often it looks: 0.1s to 1h.")
@click.option("--once", is_flag=True, help="Print one frame and leave, as where there is no terminal.")
@click.pass_obj
def top(session: Session, interval: str, once: bool) -> int:
    """Watch what runs and what comes.

    It shows running and next triggers, open questions, failures, dead letters, actions in doubt, and rates, again and
    again. `q` or Ctrl-C leaves. --json is one look, whose "rates" are null.
    """
    seconds = parse_duration(interval)
    if not SHORTEST <= seconds <= LONGEST:
        raise InvalidInput(f"interval {interval!r:.80} is not between {SHORTEST:g} and {LONGEST:,.0f} seconds")
    looks = Sampler(session)
    if session.json:
        session.out.document(looks.document())
        return say_damaged(session, looks.damaged)
    _require_rich()
    if once or not _is_watched():
        _print(looks.view())
        return say_damaged(session, looks.damaged)
    from craftcore.cli.top.screen import show

    show(looks.view, seconds)
    return 0


class Sampler:
    """Looks, one after the other: how fast things go is known from the second on."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._before: Snapshot | None = None
        self._looked_at = 0.0

    def view(self) -> View:
        """Look, for people."""
        found, moved = self._look()
        return view(_with_verdict(found), moved)

    def document(self) -> dict[str, object]:
        """Look, for programs. `rates` null: not known by one look."""
        found, moved = self._look()
        return {**_with_verdict(found), "rates": None if moved is None else moved._asdict()}

    @property
    def damaged(self) -> list[Damaged]:
        """The values that the last snapshot could not read."""
        return [] if self._before is None else self._before.damaged

    def _look(self) -> tuple[Snapshot, Rates | None]:
        before, looked_at = self._before, self._looked_at
        self._before, self._looked_at = found, now = read_top(self._session.core(), before), time.monotonic()
        return found, None if before is None else rates(before.ended, found.ended, found.failed, now - looked_at)


def _with_verdict(found: Snapshot) -> dict[str, Any]:
    status = with_verdict(found.status)
    return {**found.document, "verdict": status["verdict"], "reasons": status["reasons"]}


def _print(seen: View) -> None:
    from craftcore.cli.top.layout import frame

    for line in frame(seen, shutil.get_terminal_size((80, 24)).columns):
        print(line.text)


def _is_watched() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "")


def _require_rich() -> None:
    try:
        import rich  # noqa: F401
    except ImportError as error:
        raise ConfigInvalid("top needs rich: pip install 'craftcore[top]'; top --json does without") from error
