"""The metrics of a worker for Prometheus: those of the library, and the counts of our workflows."""

from __future__ import annotations

from functools import cache

from temporalio.runtime import PrometheusConfig, Runtime, TelemetryConfig

from craftcore.config.references import endpoint
from craftcore.errors import CannotCreate


@cache
def open_metrics(listen: str) -> Runtime | None:
    """Answer scrapes at a port of this machine. Return the runtime whose numbers they are; None for no port.

    The library keeps the port until the process ends, so there is one runtime for each port. Raises CannotCreate when
    the port cannot be used.
    """
    where = endpoint(listen)
    if where is None:
        return None
    exporter = PrometheusConfig(
        bind_address=where.authority, counters_total_suffix=True, unit_suffix=True, durations_as_seconds=True
    )
    try:
        return Runtime(telemetry=TelemetryConfig(metrics=exporter))
    except ValueError as error:
        reason = str(error).removeprefix("Failed starting Prometheus exporter: ")
        raise CannotCreate(
            f"temporal.metrics: cannot listen at {listen} ({reason}): give another port", path=listen
        ) from error
