"""The page of evidence, built from measured rows only."""

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
Where a checker does not tell lost from repeated, all that it finds counts as other faults. Each row was measured at the
commit under [runs](#runs), where a `+` means that the checkout had changes. It says nothing about later commits. The
figures of a small run are not evidence of rare faults.
`--full` makes at least 10,000 kills for each kind of action, 25,000 disk states and 20 years.
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
    columns = ("experiment", "how many", "lost", "silently repeated", "other faults", "seed", "duration")
    return _table(
        columns,
        (
            (
                *(row.title, f"{row.count:,} {row.unit}"),
                *(f"{row.lost:,}", f"{row.repeated:,}", f"{len(row.wrong):,}"),
                *(str(row.seed), _duration(row.seconds)),
            )
            for row in rows
        ),
    )


def _not_run(experiments: Sequence[Experiment]) -> Iterable[str]:
    if experiments:
        yield "Not run yet:\n"
        yield from (f"- {experiment.title}" for experiment in experiments)


def _checks(rows: Iterable[Row]) -> Iterable[str]:
    return _table(("experiment", "checked", "figures"), ((row.title, row.checked, row.more) for row in rows))


def _runs(rows: Iterable[Row]) -> Iterable[str]:
    return _table(
        ("experiment", "commit", "date", "Python", "SQLite", "machine"),
        ((f"`{row.name}`", row.commit, row.date, row.python, row.sqlite, row.machine) for row in rows),
    )


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterable[str]:
    yield _line(columns)
    yield f"|{'---|' * len(columns)}"
    yield from map(_line, rows)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _faults(rows: Iterable[Row]) -> Iterable[str]:
    if any(row.wrong for row in rows):
        yield "\n## Faults\n"
        yield from (f"- {row.title}: `{' '.join(text.split())[:300]}`" for row in rows for text in row.wrong[:10])


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
