"""The page of evidence, made of measured rows and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tests.evidence.model import Experiment, Row

INTRODUCTION = """\
# Evidence

This page lists the experiments behind the [guarantees](guarantees.md), with the figures of their last run. It is for
everybody who wants to check the promises before relying on them. A command writes the page from measured results. To
repeat the experiments in a checkout, and to rewrite the page:

```sh
python -m tests.evidence --quick     # ten minutes on two cores
python -m tests.evidence --full      # hours
python -m tests.evidence --full --only triggers --seed 7
```

The command exits with 1 when anything was lost or repeated. The processes are real and end by SIGKILL, at a named point
or at a random moment. Independent checkers compare the database with what the workflows and the provider wrote down.
*Lost* counts accepted work and effects that are gone. *Silently repeated* counts effects, occurrences and settlements
that happened again without a decision. A plain step that was interrupted runs again, as promised, and does not count.
The invariants are those of [`craftcore doctor --invariants`](../how-to/monitor.md#invariants).
"""

LEGEND = """\
The commit is the one that was measured; a `+` means that the checkout had changes. The figures of a small run are not
evidence of rare faults. `--full` makes at least 10,000 kills for each kind of action, 25,000 disk states and 20 years.
"""


def page(experiments: Sequence[Experiment], rows: Mapping[str, Row]) -> str:
    """Return the text of the page."""
    known = [rows[experiment.name] for experiment in experiments if experiment.name in rows]
    missing = [experiment for experiment in experiments if experiment.name not in rows]
    return "\n".join(
        [
            INTRODUCTION,
            "## Results\n",
            *_results(known),
            "",
            *_not_run(missing),
            *([""] if missing else []),
            LEGEND,
            "## Checks and figures\n",
            *_checks(known),
            "",
            "## Runs\n",
            *_runs(known),
            *_faults(known),
            "",
        ]
    )


def _results(rows: Iterable[Row]) -> Iterable[str]:
    yield "| experiment | how many | lost | silently repeated | other faults | seed | duration |"
    yield "|---|---|---|---|---|---|---|"
    for row in rows:
        faults = f"{row.lost:,} | {row.repeated:,} | {len(row.wrong):,}"
        yield f"| {row.title} | {row.count:,} {row.unit} | {faults} | {row.seed} | {_duration(row.seconds)} |"


def _not_run(experiments: Sequence[Experiment]) -> Iterable[str]:
    if experiments:
        yield "Not run yet:\n"
        yield from (f"- {experiment.title}" for experiment in experiments)


def _checks(rows: Iterable[Row]) -> Iterable[str]:
    yield "| experiment | checked | figures |"
    yield "|---|---|---|"
    for row in rows:
        yield f"| {row.title} | {row.checked} | {row.more} |"


def _runs(rows: Iterable[Row]) -> Iterable[str]:
    yield "| experiment | commit | date | Python | SQLite | machine |"
    yield "|---|---|---|---|---|---|"
    for row in rows:
        where = f"{row.commit} | {row.date} | {row.python} | {row.sqlite} | {row.machine}"
        yield f"| `{row.name}` | {where} |"


def _faults(rows: Iterable[Row]) -> Iterable[str]:
    if any(row.wrong for row in rows):
        yield "\n## Faults\n"
        yield from (f"- {row.title}: `{' '.join(text.split())[:300]}`" for row in rows for text in row.wrong[:10])


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
