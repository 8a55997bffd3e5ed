"""Tables of the results: medians with their spread, and the ratios with their floors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles

from benchmarks.peers.promises import VERDICTS, Promise, Samples
from benchmarks.peers.systems import PLOTTED_ONLY, WORKS

NOT_OFFERED = "-"


@dataclass(slots=True)
class Results:
    """`rates`: per system and work, one for each round; for a latency, those of all rounds. `reasons`: why a system
    has no result for a work, or, with the work None, for any."""

    rates: Samples = field(default_factory=dict)
    reasons: dict[tuple[str, str | None], str] = field(default_factory=dict)

    def add(self, system: str, work: str, found: float | list[float]) -> None:
        """Add the result of a round."""
        self.rates.setdefault((system, work), []).extend(found if isinstance(found, list) else [found])

    def fail(self, system: str, work: str | None, reason: str) -> None:
        """Note the first reason for which a result is missing."""
        self.reasons.setdefault((system, work), reason)


def table(results: Results, systems: Sequence[str], works: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a table in Markdown: a row for each system and a column for each work."""
    shown = [work for work in works if work not in PLOTTED_ONLY]
    yield "| system | " + " | ".join(WORKS[work].title for work in shown) + " |"
    yield "|---|" + "---:|" * len(shown)
    for system in systems:
        yield f"| {system} | " + " | ".join(cell(results, system, work) for work in shown) + " |"


def cell(results: Results, system: str, work: str) -> str:
    """Return the median and the spread of a work, `failed`, or a dash where the system does not offer it."""
    found = results.rates.get((system, work))
    if found:
        return latency_text(found) if WORKS[work].kind == "latency" else rate_text(found)
    failed = (system, work) in results.reasons or (system, None) in results.reasons
    return "failed" if failed else NOT_OFFERED


def rate_text(found: Sequence[float]) -> str:
    """Return a median and its spread: `1,200 (900 to 1,300)`."""
    return f"{median(found):,.0f} ({min(found):,.0f} to {max(found):,.0f})"


def latency_text(found: Sequence[float]) -> str:
    """Return the 50th and the 99th percentile in milliseconds: `2.1, p99 8.0`."""
    return f"{median(found) * 1000:.1f}, p99 {percentile(found, 99) * 1000:.1f}"


def percentile(found: Sequence[float], number: int) -> float:
    """Return a percentile; of a single value, that value."""
    return quantiles(found, n=100, method="inclusive")[number - 1] if len(found) > 1 else found[0]


def against_craftcore(results: Results, systems: Sequence[str], works: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a table of craftcore's median divided by that of each system: above 1, craftcore is faster."""
    shown = [work for work in works if work not in PLOTTED_ONLY and WORKS[work].kind != "latency"]
    ours = {work: results.rates.get(("craftcore", work)) for work in shown}
    yield "| craftcore / | " + " | ".join(WORKS[work].title for work in shown) + " |"
    yield "|---|" + "---:|" * len(shown)
    for system in systems:
        theirs = [(ours[work], results.rates.get((system, work))) for work in shown]
        if system != "craftcore":
            cells = [f"{median(one) / median(other):.2f}" if one and other else NOT_OFFERED for one, other in theirs]
            yield f"| {system} | " + " | ".join(cells) + " |"


def promise_lines(promises: Sequence[Promise], samples: Samples) -> Iterator[str]:
    """Yield the lines of a table of ratios, those that miss their floor first."""
    yield "| ratio | result | floor | aim | |"
    yield "|---|---:|---:|---:|---|"
    judged = [(promise, promise.ratio(samples)) for promise in promises]
    for promise, found in sorted(judged, key=lambda pair: rank(*pair)):
        result = f"{found[0]:.2f} ({found[1]:.2f} to {found[2]:.2f})" if found else NOT_OFFERED
        bounds = f"{bound_text(promise, promise.floor)} | {bound_text(promise, promise.aim)}"
        yield f"| {promise.title} | {result} | {bounds} | {promise.verdict(found[0]) if found else 'not measured'} |"


def bound_text(promise: Promise, bound: float | None) -> str:
    """Return a bound in words; a dash for None."""
    return NOT_OFFERED if bound is None else f"{'at most' if promise.at_most else 'at least'} {bound:g}"


def rank(promise: Promise, found: tuple[float, float, float] | None) -> int:
    """Return the place of a ratio in the table: misses first, what was not measured last."""
    return VERDICTS.index(promise.verdict(found[0])) if found else len(VERDICTS)


def reason_lines(results: Results) -> Iterator[str]:
    """Yield a line for each result that is missing, with the reason."""
    for (system, work), reason in results.reasons.items():
        what = f"{system}, {WORKS[work].title}" if work in WORKS else system if work is None else f"{system}, {work}"
        yield f"{what}: {reason}"
