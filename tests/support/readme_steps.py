"""The commands of the README and the first tutorial, their terminals, and their expected output."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.support.code_blocks import all_blocks

FOLLOWED = ("README.md", "docs/tutorial/first-workflow.md")
BLOCKS = [one for page in FOLLOWED for one in all_blocks() if one.page == page]
SHELL_BLOCKS = [one for one in BLOCKS if one.language == "sh"]
"""The blocks of shell lines. The comment above a block names it."""


@dataclass
class Step:
    """A line to type, its terminal, and its expected output."""

    terminal: int
    line: str
    seen: list[str] = field(default_factory=list)


def block(name: str) -> list[Step]:
    """Return the steps of the named block. `# terminal N` sets the terminal, and `#> …` is the expected output.

    A block without a terminal is for the terminal in which no daemon runs.
    """
    [found] = [one for one in SHELL_BLOCKS if one.name == name]
    return list(_steps(found.text))


def program(word: str) -> str:
    """Return the Python program that contains that word."""
    [found] = [one for one in BLOCKS if one.language == "python" and word in one.text]
    return found.text


def shown(wanted: str) -> re.Pattern[str]:
    """Return the pattern of a line on the screen. `…` matches any text, and a space matches several."""
    of_any_width = {"…": ".*?", " ": " +"}
    parts = [of_any_width.get(part[:1], re.escape(part)) for part in re.split("(…| +)", wanted) if part]
    return re.compile(f"^.*{''.join(parts)}.*$", re.MULTILINE)


def _steps(text: str) -> Iterator[Step]:
    terminal, step = 2, None
    for line in filter(None, text.splitlines()):
        if header := re.match(r"# terminal (\d)", line):
            terminal = int(header[1])
        elif line.startswith("#> "):
            assert step is not None, line
            step.seen.append(line.removeprefix("#> "))
        else:
            if step is not None:
                yield step
            step = Step(terminal, line)
    assert step is not None, text
    yield step
