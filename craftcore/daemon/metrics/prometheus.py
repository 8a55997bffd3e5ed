"""The text of a scrape, by prometheus-client of the extra `metrics`. Its global registry is not used."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator

from prometheus_client import generate_latest
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from craftcore.daemon.metrics.counters import Counters
from craftcore.daemon.metrics.gauge_store import read_gauges
from craftcore.errors import CraftcoreError
from craftcore.services import Services
from craftcore.storage.files.file_size import wal_bytes, wal_in_use
from craftcore.storage.files.open_files import unreachable_reason
from craftcore.version import installed_version

READ_SECONDS = 2.0
"""Limit on the read of the gauges. A scrape without them is better than a late one."""

OF_DATABASE = {
    "failed_lately": "Triggers that FAILED within a day and were not discarded.",
    "ready_age_seconds": "How long the oldest due trigger waits; 0 when none does.",
    "activities_unknown": "Irreversible activities in doubt, undecided.",
    "questions_open": "Questions that wait for a person.",
    "tasks_held": "Live tasks that the code of this start does not fit.",
    "held": "1 while everything is held, until ten minutes without a crash or `craftcore release`.",
    "safe_mode": (
        "1 while scheduled and resumed work is held, until ten minutes without a crash or `craftcore release`."
    ),
    "schedules_held": "1 while schedules wait for the clock.",
    "epoch": "The number of this start.",
}

OF_FILES = (
    ("database_bytes", "Size of the database file.", lambda path: path.stat().st_size),
    ("wal_bytes", "Size of its write-ahead log.", wal_bytes),
    ("wal_in_use_bytes", "The part of its write-ahead log that is in use; the rest is reused.", wal_in_use),
)


def render(core: Services, counters: Counters, within: float = READ_SECONDS) -> bytes:
    """Return the text of one scrape. Reads the database on a connection of its own, and blocks meanwhile.

    A read that fails or takes longer than `within` seconds leaves out the gauges, and `craftcore_database_read` is 0.
    """
    try:
        with core.reading(within=within) as reader:
            gauges = read_gauges(reader, core.clock.now(), claims_live=counters.has_booted)
    except (CraftcoreError, ValueError):  # a damaged row, which the engine will log and set aside; or no file
        gauges = None
    build = {"version": installed_version(), "python": platform.python_version()}
    runs = InfoMetricFamily("craftcore_build", "What runs.", value=build)
    return generate_latest(
        _Metrics([*_counter_metrics(counters), *_database_metrics(gauges), *_file_metrics(core), runs])
    )


class _Metrics(Collector):
    def __init__(self, metrics: Iterable[Metric]) -> None:
        self.metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self.metrics


def _counter_metrics(counters: Counters) -> Iterator[Metric]:
    for metric in counters.registry.collect():
        metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
        yield metric


def _database_metrics(gauges: tuple[dict[str, int], dict[str, float]] | None) -> Iterator[Metric]:
    read = "1 when this scrape could read the database; without it there are no such gauges."
    yield _gauge("database_read", read, gauges is not None)
    if gauges is None:
        return
    counts, values = gauges
    triggers = GaugeMetricFamily(
        "craftcore_triggers", "Triggers that are not settled, and dead ones.", labels=("state",)
    )
    for state, count in counts.items():
        triggers.add_metric((state,), count)
    yield triggers
    for name, text in OF_DATABASE.items():
        yield _gauge(name, text, values[name])


def _file_metrics(core: Services) -> Iterator[Metric]:
    path = core.database.path
    text = "1 while the engine cannot look up its database, as in a directory that it cannot enter."
    yield _gauge("database_unreachable", text, unreachable_reason(path) is not None)
    for name, text, size in OF_FILES:
        try:
            yield _gauge(name, text, size(path))
        except OSError:
            yield _gauge(name, text, 0)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"craftcore_{name}", text, value=float(value))
