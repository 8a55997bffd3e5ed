"""The output of a program that `command.run` ran, as text: JSON would escape each line break of it."""

from __future__ import annotations

from typing import Any

from craftcore.cli.output import Output

STREAMS = ("stdout", "stderr")
_HOLDERS = ("payload", "error", "details")
"""Where a response has the result of a program: `payload` when it went well, `error.details` when it did not."""


def split_output(value: Any) -> tuple[Any, dict[str, str]]:
    """Return a result or response without the output of its program, and that output by its stream.

    Both as they are, and {}, when no program ran.
    """
    if not isinstance(value, dict):
        return value, {}
    if "exit_code" in value and all(isinstance(value.get(name), str) for name in STREAMS):
        rest = {name: inner for name, inner in value.items() if name not in STREAMS}
        return rest, {name: value[name] for name in STREAMS if value[name]}
    for name in _HOLDERS:
        inner, texts = split_output(value.get(name))
        if texts:
            return {**value, name: inner}, texts
    return value, {}


def print_output(out: Output, texts: dict[str, str]) -> None:
    """Print each stream under its name."""
    for name, text in texts.items():
        out.line(f"  {name}")
        out.quote(text)
