"""The text of a scrape, by prometheus-client of the extra `metrics`. Its global registry is not used."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator

from prometheus_client import generate_latest
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from craftcore.activities.listing_store import ActivityListStore
from craftcore.daemon.metrics.counters import Counters
from craftcore.errors import CraftcoreError
from craftcore.services import Services
from craftcore.storage.epochs import newest_epoch
from craftcore.storage.facts import get_fact, number
from craftcore.storage.files.file_size import wal_bytes, wal_in_use
from craftcore.storage.files.open_files import unreachable_reason
from craftcore.storage.transaction import Reader
from craftcore.tasks.hold_store import HoldStore
from craftcore.tasks.listing_store import TaskLists
from craftcore.triggers.listing_store import LATELY, OLDEST_READY, TriggerLists, counts_document
from craftcore.version import installed_version

READ_SECONDS = 2.0
"""Limit on the read of the gauges. A scrape without them is better than a late one."""

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
            gauges = list(_database_metrics(reader, core.clock.now(), claims_live=counters.has_booted))
    except (CraftcoreError, ValueError):  # a damaged row, which the engine will log and set aside; or no file
        gauges = []
    read = "1 when this scrape could read the database; without it there are no such gauges."
    build = {"version": installed_version(), "python": platform.python_version()}
    runs = InfoMetricFamily("craftcore_build", "What runs.", value=build)
    of_database = [_gauge("database_read", read, bool(gauges)), *gauges]
    return generate_latest(_Metrics([*_counter_metrics(counters), *of_database, *_file_metrics(core), runs]))


class _Metrics(Collector):
    def __init__(self, metrics: Iterable[Metric]) -> None:
        self.metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self.metrics


def _counter_metrics(counters: Counters) -> Iterator[Metric]:
    for metric in counters.registry.collect():
        metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
        yield metric


def _database_metrics(reader: Reader, now: float, *, claims_live: bool) -> Iterator[Metric]:
    """Yield the gauges of the database. Every statement goes by an index of what is live."""
    lists = TriggerLists()
    counts = counts_document(lists.live_counts(reader, now), claims_live=claims_live)
    del counts["cut_off"]  # they are among those due
    triggers = GaugeMetricFamily(
        "craftcore_triggers", "Triggers that are not settled, and dead ones.", labels=("state",)
    )
    for state, count in counts.items():
        triggers.add_metric((state,), count)
    yield triggers
    failed = lists.count_failed_since(reader, now - LATELY).count
    yield _gauge("failed_lately", "Triggers that FAILED within a day and were not discarded.", failed)
    oldest = reader.fetch_value(OLDEST_READY, now=now, claims_live=claims_live)
    age = 0.0 if oldest is None else max(0.0, now - oldest)
    yield _gauge("ready_age_seconds", "How long the oldest due trigger waits; 0 when none does.", age)
    in_doubt = ActivityListStore().count_in_doubt(reader)[0]
    yield _gauge("activities_unknown", "Irreversible activities in doubt, undecided.", in_doubt)
    yield _gauge("questions_open", "Questions that wait for a person.", TaskLists().counts(reader)["questions"])
    yield _gauge("tasks_held", "Live tasks that the code of this start does not fit.", HoldStore().count(reader))
    until = "until ten minutes without a crash or `craftcore release`."
    yield _gauge("held", f"1 while everything is held, {until}", get_fact(reader, "held") is not None)
    safe_mode = f"1 while scheduled and resumed work is held, {until}"
    yield _gauge("safe_mode", safe_mode, get_fact(reader, "safe_mode") is not None)
    yield _gauge("schedules_held", "1 while schedules wait for the clock.", (number(reader, "clock_held") or 0.0) > now)
    yield _gauge("epoch", "The number of this start.", newest_epoch(reader) or 0)


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
