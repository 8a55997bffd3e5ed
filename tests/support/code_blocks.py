"""Code blocks of the documents, and their command lines."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from craftcore.cli.root import root

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = {path.name: path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("*.md"))} | {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in sorted(DOCS.rglob("*.md"))
}
"""The text of each page, by its path in the repository."""


_BLOCK = re.compile(r"(?:^<!-- (.+?) -->\n)?^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A code block of a page. `name` is in the comment above it. `language` is "" for a picture or plain lines."""

    page: str
    line: int
    name: str | None
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def first(self) -> str:
        """Return the first line of the block."""
        return self.text.partition("\n")[0]

    @property
    def is_picture(self) -> bool:
        return self.language == "" and bool(re.search("[─│▶▼◀┌└]", self.text))


def all_blocks() -> list[Block]:
    return [block for page, text in PAGES.items() for block in blocks_of(page, text)]


def blocks_of(page: str, text: str) -> Iterator[Block]:
    for found in _BLOCK.finditer(text):
        name, language, inside = found.groups()
        line = text.count("\n", 0, found.start(2)) + 1
        yield Block(page=page, line=line, name=name, language=language, text=inside)


def typed(block: Block) -> Iterator[list[str]]:
    """Yield the words of each typed line. In a plain block, the text after a wide gap is an explanation."""
    for line in block.text.replace("\\\n", " ").splitlines():
        plain = re.split(r"\s{3,}", line)[0] if block.language == "" else line
        if words := shlex.split(plain, comments=True):
            yield words


def commands(group: click.Command = root, path: str = "craftcore") -> dict[str, click.Command]:
    """Return every command by its whole name."""
    if not isinstance(group, click.Group):
        return {path: group}
    found: dict[str, click.Command] = {}
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        found.update(commands(command, f"{path} {name}"))
    return found


COMMANDS = commands()
FOR_ALL = {option for parameter in root.params for option in parameter.opts} | {"--help", "-h", "--version"}
TAKES_VALUE = {
    option
    for parameter in root.params
    if isinstance(parameter, click.Option) and not parameter.is_flag
    for option in parameter.opts
}


def options_of(command: click.Command) -> set[str]:
    """Return the options of a command, without those that all commands have."""
    on = {option for parameter in command.params if isinstance(parameter, click.Option) for option in parameter.opts}
    off = {option for parameter in command.params for option in parameter.secondary_opts}
    return {option for option in on | off if option.startswith("-")} - FOR_ALL


def mistake(words: list[str]) -> str | None:
    """Return the mistake in a typed `craftcore …`, or None for an existing command with existing options."""
    rest = list(words[1:])
    path = "craftcore"
    while rest and path not in COMMANDS:
        word = rest.pop(0)
        if word in TAKES_VALUE:
            rest[:1] = []
        elif word in FOR_ALL:
            continue
        elif any(f"{name} ".startswith(f"{path} {word} ") for name in COMMANDS):
            path = f"{path} {word}"
        else:
            return f"{path} {word}: there is no such command"
    if path not in COMMANDS:
        return None if len(path.split()) > 1 or len(words) > 1 else "which command?"  # a group, or `craftcore --help`
    known = options_of(COMMANDS[path]) | FOR_ALL
    for word in rest:
        if word == "--":
            break
        if re.match(r"--?[a-z]", word) and word.partition("=")[0] not in known:
            return f"{path} has no option {word}"
    return None
