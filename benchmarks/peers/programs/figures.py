"""Draw the plots of a comparison. Runs in an environment with matplotlib, and prints the names of the files."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from matplotlib import pyplot
from matplotlib.ticker import FuncFormatter, NullFormatter

Results = dict[str, dict[str, list[float]]]

COLORS = {
    "craftcore": "#0b3d91",
    "Huey": "#d55e00",
    "DBOS": "#8a6d00",
    "DBOS tuned": "#e69f00",
    "Procrastinate": "#009e73",
    "persist-queue": "#cc79a7",
    "litequeue": "#56b4e9",
    "APScheduler": "#666666",
}
WIDTHS = (1, 10, 100)
SIZE_INCHES = (7.6, 4.6)
DOTS_PER_INCH = 150


def draw_throughput(results: Results, path: Path) -> bool:
    """Draw items per second against the number of items at once. Return whether there was anything to draw."""
    lines = {
        name: [(width, found[f"plain-{width}"]) for width in WIDTHS if found.get(f"plain-{width}")]
        for name, found in results.items()
    }
    scaled = {name: points for name, points in lines.items() if name in COLORS and len(points) == len(WIDTHS)}
    if not scaled:
        return False
    figure, axes = new_axes("Drain of plain items", "items at once", "items per second")
    for number, (name, points) in enumerate(scaled.items()):
        apart = 1.05 ** (number - len(scaled) / 2)  # the bars of several systems would hide each other
        draw_line(axes, name, [(width * apart, values) for width, values in points])
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(WIDTHS, [str(width) for width in WIDTHS])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(thousands())
    label_ends(axes, {name: (points[-1][0], median(points[-1][1])) for name, points in scaled.items()})
    note = "Median and spread of the rounds. Huey has 10 worker threads at 100. DBOS is called without its queue at 1."
    return save(figure, path, note)


def draw_latency(results: Results, path: Path) -> bool:
    """Draw the share of items whose handler has started by then. Return whether there was anything to draw."""
    found = {name: sorted(works["latency"]) for name, works in results.items() if works.get("latency")}
    if not found:
        return False
    figure, axes = new_axes("Latency of an idle system", "milliseconds from enqueue to handler", "share of items")
    for name, values in sorted(found.items(), key=lambda pair: median(pair[1])):
        shares = [(number + 1) / len(values) for number in range(len(values))]
        label = f"{name}: {milliseconds(median(values))}"
        times = [value * 1000 for value in values]
        axes.step(times, shares, where="post", color=COLORS.get(name), label=label, linewidth=thickness(name))
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(thousands())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:.0%}"))
    axes.legend(
        frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5), title="median", alignment="left"
    )
    return save(figure, path, "One item at a time, producer and consumer in one process.")


def draw_history(results: Results, path: Path) -> bool:
    """Draw items per second against the settled rows. Return whether there was anything to draw."""
    works = results.get("craftcore", {})
    points = sorted((int(work.removeprefix("history-")), works[work]) for work in works if work.startswith("history-"))
    if not points:
        return False
    figure, axes = new_axes("craftcore with a long history", "settled rows in the file", "items per second")
    draw_line(axes, "craftcore", points)
    axes.set_xscale("log")
    axes.set_ylim(bottom=0, top=1.15 * max(max(values) for _, values in points))
    axes.xaxis.set_major_formatter(thousands())
    axes.yaxis.set_major_formatter(thousands())
    return save(figure, path, "From emit to settlement with 100 producers, median and spread of the rounds.")


def draw_line(axes: Any, name: str, points: Sequence[tuple[float, list[float]]]) -> None:
    """Draw medians, with bars from the least to the greatest."""
    middles = [median(values) for _, values in points]
    below = [middle - min(values) for middle, (_, values) in zip(middles, points, strict=True)]
    above = [max(values) - middle for middle, (_, values) in zip(middles, points, strict=True)]
    axes.errorbar(
        [place for place, _ in points],
        middles,
        yerr=[below, above],
        color=COLORS.get(name),
        linewidth=thickness(name),
        marker="o",
        markersize=4,
        elinewidth=1.0,
        capsize=3,
    )


def label_ends(axes: Any, ends: dict[str, tuple[float, float]]) -> None:
    """Write the name of each line at its end, far enough above the name below."""
    lowest = 0.0
    for name, (place, value) in sorted(ends.items(), key=lambda pair: pair[1][1]):
        lowest = max(value, lowest * 1.35)
        axes.annotate(
            name,
            (place, lowest),
            xytext=(18, 0),
            textcoords="offset points",
            color=COLORS.get(name),
            va="center",
            fontsize=9,
            annotation_clip=False,
        )


def new_axes(title: str, below: str, left: str) -> tuple[Any, Any]:
    """Return a figure and its axes."""
    figure, axes = pyplot.subplots(figsize=SIZE_INCHES, layout="constrained")
    axes.set_title(title, loc="left", fontsize=12)
    axes.set_xlabel(below)
    axes.set_ylabel(left)
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes


def save(figure: Any, path: Path, note: str) -> bool:
    """Write the figure with a note below it."""
    figure.supxlabel(note, fontsize=8, color="#555555", x=0.01, ha="left")
    figure.savefig(path, dpi=DOTS_PER_INCH)
    pyplot.close(figure)
    return True


def thickness(name: str) -> float:
    """Return the width of a line in points."""
    return 2.4 if name == "craftcore" else 1.4


def thousands() -> FuncFormatter:
    """Return a formatter that writes 10,000 rather than a power of ten."""
    return FuncFormatter(lambda value, _: f"{value:,.10g}")


def milliseconds(seconds: float) -> str:
    """Return a time in milliseconds, with a digit after the point below ten."""
    return f"{seconds * 1000:.1f} ms" if seconds < 0.01 else f"{seconds * 1000:,.0f} ms"


def main() -> None:
    """Draw what there is."""
    results, output = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), Path(sys.argv[2])
    for name, draw in (("throughput", draw_throughput), ("latency", draw_latency), ("history", draw_history)):
        if draw(results, output / f"{name}.png"):
            print(f"{name}.png")


if __name__ == "__main__":
    main()
