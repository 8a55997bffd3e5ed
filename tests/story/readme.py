"""What the README asks its reader to type, where, and what it says will be seen then."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")

BLOCK = re.compile(r"(?:<!-- ([a-z-]+) -->\n)?```sh\n(.*?)```", re.DOTALL)
"""A block of shell lines, and the comment before it that names it."""


@dataclass
class Step:
    """A line to type, in which terminal, and what will be seen."""

    terminal: int
    line: str
    seen: list[str] = field(default_factory=list)


def block(name: str) -> list[Step]:
    """The lines of the block of that name. In it `# terminal N` says where, and `#> …` what will be seen.

    A block that does not say where is for the terminal in which no daemon runs.
    """
    [text] = [text for found, text in BLOCK.findall(README) if found == name]
    return list(_steps(text))


def program(word: str) -> str:
    """The Python program in which that word is."""
    [text] = [text for text in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if word in text]
    return str(text)


def shown(wanted: str) -> re.Pattern[str]:
    """The line of a screen that the README means: `…` is what nobody can foretell, a space may be several."""
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
