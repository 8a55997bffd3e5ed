"""A tally and the gauges as Prometheus reads them. It needs prometheus-client, of the extra `metrics`.

Nothing of the library is kept between two scrapes, and its global registry is not used.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib.metadata import version
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from craftcore.daemon.metrics.counters import Counted, Histogram
from craftcore.daemon.metrics.gauge_store import Gauges, read_gauges
from craftcore.errors import ConfigInvalid, CraftcoreError
from craftcore.storage.file_size import wal_bytes, wal_in_use
from craftcore.storage.open_files import unreachable

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from craftcore.services import Core

READ_SECONDS = 2.0
"""How long the gauges of a scrape may take. A scrape without them is worth more than a late one."""


def require_client() -> None:
    """Raise ConfigInvalid when prometheus-client is not installed."""
    try:
        import prometheus_client  # noqa: F401
    except ImportError as error:
        raise ConfigInvalid("metrics.listen needs prometheus-client: pip install 'craftcore[metrics]'") from error


def content_type() -> str:
    """Of what `render` makes."""
    from prometheus_client import CONTENT_TYPE_LATEST

    return CONTENT_TYPE_LATEST


def render(core: Core, counted: Counted, within: float = READ_SECONDS) -> bytes:
    """The text of one scrape. Reads the database on a connection of its own, and blocks meanwhile.

    When that fails or takes longer than `within` seconds, the gauges are left out, and `craftcore_database_read` is 0.
    """
    from prometheus_client import CollectorRegistry, generate_latest

    try:
        with core.reading(within=within) as reader:
            gauges = read_gauges(reader, core.clock.now(), claims_live=counted.has_booted)
    except (CraftcoreError, ValueError):  # a damaged row: the engine will say so, and sets it aside; or no file
        gauges = None
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector([*_counters(counted), *_of_database(gauges), *_of_files(core), _build()]))
    text: bytes = generate_latest(registry)
    return text


class _Collector:
    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> list[Metric]:
        return self._metrics


def _counters(counted: Counted) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

    attempts = CounterMetricFamily(
        "craftcore_attempts", "Attempts that ended, by what became of their trigger.", labels=("workflow", "outcome")
    )
    for key, count in sorted(counted.attempts.items()):
        attempts.add_metric(key, count)
    yield attempts
    for name, said, by_workflow in (
        ("wait", "From when a trigger was due to the start of its attempt.", counted.waits),
        ("run", "From the start of an attempt until it was settled.", counted.runs),
    ):
        family = HistogramMetricFamily(f"craftcore_{name}_seconds", said, labels=("workflow",))
        for workflow, histogram in sorted(by_workflow.items()):
            family.add_metric((workflow,), *_buckets(histogram))
        yield family
    for name, said, histogram in (
        ("schedule_lateness_seconds", "From an occurrence's moment to the trigger it fired.", counted.lateness),
        ("flush_seconds", "How long the flush of a commit took.", counted.flush_seconds),
        ("flush_pieces", "Pieces of work in one commit.", counted.flush_pieces),
        ("loop_lag_seconds", "How much later than asked the event loop woke somebody.", counted.loop_lag),
    ):
        single = HistogramMetricFamily(f"craftcore_{name}", said)
        single.add_metric((), *_buckets(histogram))
        yield single


def _buckets(histogram: Histogram) -> tuple[list[tuple[str, float]], float]:
    """As Prometheus wants them: how many were at most each bound, those below it included."""
    bounds = [*(repr(bound) for bound in histogram.bounds), "+Inf"]
    return list(zip(bounds, map(float, accumulate(histogram.counts)), strict=True)), histogram.sum


def _of_database(gauges: Gauges | None) -> Iterator[Metric]:
    yield _gauge(
        "database_read",
        "1 when this scrape could read the database; without it there are no such gauges.",
        gauges is not None,
    )
    if gauges is None:
        return
    from prometheus_client.core import GaugeMetricFamily

    triggers = GaugeMetricFamily(
        "craftcore_triggers", "Triggers that are not settled, and dead ones.", labels=("state",)
    )
    for state, count in gauges.triggers.items():
        triggers.add_metric((state,), count)
    yield triggers
    yield _gauge("failed_lately", "Triggers that FAILED within a day and were not discarded.", gauges.failed_lately)
    yield _gauge("ready_age_seconds", "How long the oldest due trigger waits; 0 when none does.", gauges.ready_age)
    yield _gauge("activities_unknown", "Irreversible activities in doubt that nobody decided.", gauges.in_doubt)
    yield _gauge("questions_open", "Questions that wait for a person.", gauges.questions)
    yield _gauge("tasks_held", "Live tasks that the code of this start does not fit.", gauges.held_tasks)
    yield _gauge("held", "1 while everything is held until `craftcore release`.", gauges.held)
    yield _gauge("safe_mode", "1 while scheduled and resumed work is held until `craftcore release`.", gauges.safe_mode)
    yield _gauge("schedules_held", "1 while schedules wait for the clock.", gauges.schedules_held)
    yield _gauge("epoch", "The number of this start.", gauges.epoch)


def _of_files(core: Core) -> Iterator[Metric]:
    path = core.database.path
    yield _gauge(
        "database_unreachable",
        "1 while the engine cannot look up its database, as in a directory that it cannot enter.",
        unreachable(path) is not None,
    )
    for name, said, size in (
        ("database_bytes", "Size of the database file.", lambda path: path.stat().st_size),
        ("wal_bytes", "Size of its write-ahead log.", wal_bytes),
        ("wal_in_use_bytes", "What of its write-ahead log is in use; the rest is written over.", wal_in_use),
    ):
        try:
            yield _gauge(name, said, size(path))
        except OSError:
            yield _gauge(name, said, 0)


def _build() -> Metric:
    from prometheus_client.core import InfoMetricFamily

    return InfoMetricFamily(
        "craftcore_build",
        "What runs.",
        value={"version": version("craftcore"), "python": platform.python_version()},
    )


def _gauge(name: str, said: str, value: float) -> Any:
    from prometheus_client.core import GaugeMetricFamily

    return GaugeMetricFamily(f"craftcore_{name}", said, value=float(value))
