"""The screen of `craftcore top`: it reads, draws and waits for a key, until the user leaves. It needs rich, of the
extra `top`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.live import Live
from rich.text import Text

from craftcore.cli.top.keyboard import GONE, KEY, RESIZED, Keyboard
from craftcore.cli.top.layout import Line, frame
from craftcore.cli.top.model import View

FOOTER = "q leaves"
STYLES = {"good": "green", "bad": "bold red", "warn": "yellow", "bold": "bold", "dim": "dim"}


def show(look: Callable[[], View], interval: float) -> None:
    """Draw a new look every `seconds`, until `q` or Ctrl-C. Then restore the terminal."""
    console = Console(highlight=False, soft_wrap=False)
    live = Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
    try:
        with Keyboard() as keyboard, live:
            while _show(look(), interval, keyboard, console, live):
                continue
    except KeyboardInterrupt:
        return


def _show(seen: View, interval: float, keyboard: Keyboard, console: Console, live: Live) -> bool:
    """Show one look until the next is due. Return False when the user wants to leave."""
    fresh_until = time.monotonic() + interval
    drawn_for: os.terminal_size | None = None
    while (left := fresh_until - time.monotonic()) > 0 or drawn_for is None:
        size = os.get_terminal_size(sys.stdout.fileno())
        if size != drawn_for:
            console.size = (max(1, size.columns), max(1, size.lines))
            live.update(_text(frame(seen, size.columns, size.lines, FOOTER)), refresh=True)
            drawn_for = size
        what, key = keyboard.wait(max(0.0, left))
        if what == GONE or (what == KEY and "q" in key.lower()):
            return False
        if what == RESIZED:
            continue
    return True


def _text(lines: Sequence[Line]) -> Text:
    text = Text(no_wrap=True, overflow="crop", end="")
    for number, line in enumerate(lines):
        text.append("\n" * bool(number))
        text.append(line.text, style=STYLES.get(line.style, ""))
    return text
