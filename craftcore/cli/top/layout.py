"""From a view to lines that fit a terminal, cell by cell: a letter of Chinese takes two. It needs rich, of the extra
`top`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size

from craftcore.cli.top.model import Section, View, fit_to_terminal

GAP = "  "
WIDEST = 400
"""No cell of a table is wider, however wide the terminal."""


class Line(NamedTuple):
    """`style` is good, bad, warn, bold, dim or nothing."""

    text: str
    style: str = ""


def frame(whole: View, width: int, height: int | None = None, footer: str = "") -> list[Line]:
    """Return lines of at most `width` cells, at most `height` of them; None: all."""
    shown = whole if height is None else fit_to_terminal(whole, height - bool(footer))
    lines = [Line(shown.verdict, "good" if shown.ok else "bad"), *map(Line, shown.facts)]
    for section in shown.sections:
        lines += [Line(""), Line(_title(section), section.style or "bold")]
        lines += map(Line, _table(section, width))
    if footer:
        lines.append(Line(footer, "dim"))
    if height is not None:
        lines = lines[:height]
    return [Line(cut(text, width).rstrip(), style) for text, style in lines]


def cut(text: str, width: int) -> str:
    """Return at most `width` cells of a text, with a mark where something is missing."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, width - 1) + "…" if width > 0 else ""


def _title(section: Section) -> str:
    return section.title if section.count is None else f"{section.title} {section.count:,}"


def _table(section: Section, width: int) -> Iterator[str]:
    widths = _widths(section.rows, section.gives, width)
    for row in section.rows:
        yield GAP.join(_cell(cell, wide) for cell, wide in zip(row, widths, strict=True))


def _widths(rows: Sequence[Sequence[str]], gives: int, width: int) -> list[int]:
    widths = [min(WIDEST, max(map(cell_len, column))) for column in zip(*rows, strict=True)]
    too_much = sum(widths) + len(GAP) * (len(widths) - 1) - width
    widths[gives] = max(min(8, widths[gives]), widths[gives] - max(0, too_much))
    return widths


def _cell(text: str, wide: int) -> str:
    return set_cell_size(cut(text, wide), wide)
