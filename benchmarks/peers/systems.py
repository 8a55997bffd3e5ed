"""The systems that are compared: what each installs, and which work it does with how many items.

The counts are chosen so that a measurement takes two seconds or so. A rate does not depend on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One measurement: what a program is asked for. `kind` is a function of the program."""

    kind: str
    title: str
    width: int = 1
    steps: int = 0


WORKS = {
    "plain-100": Work(kind="drain", title="drain, 100 at once", width=100),
    "plain-1": Work(kind="drain", title="drain, 1 at once"),
    "step-100": Work(kind="drain", title="1 step, 100 at once", width=100, steps=1),
    "step-1": Work(kind="drain", title="1 step, 1 at once", steps=1),
    "steps-100": Work(kind="drain", title="5 steps, 100 at once", width=100, steps=5),
    "emit-1": Work(kind="emit", title="emit, 1 producer"),
    "emit-100": Work(kind="emit", title="emit, 100 producers", width=100),
    "bulk": Work(kind="bulk", title="emit 1,000 a commit", width=1000),
    "pipeline": Work(kind="pipeline", title="emit and drain, 100 at once", width=100),
    "latency": Work(kind="latency", title="enqueue to handler, ms"),
    "plain-10": Work(kind="drain", title="drain, 10 at once", width=10),
}
PLOTTED_ONLY = frozenset({"plain-10"})
"""Measured for the plot of throughput against concurrency, and not in the tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """A system. `counts`: how many items of each work it can do. `widths`: how many threads suit it better than the
    width of the work. `kinds`: another function of its program than the work has. `requirements`: none of them means
    the environment of craftcore."""

    name: str
    program: str
    counts: Mapping[str, int]
    requirements: tuple[str, ...] = ()
    widths: Mapping[str, int] = field(default_factory=dict)
    kinds: Mapping[str, str] = field(default_factory=dict)
    setting: str = ""
    needs_postgres: bool = False


DBOS = ("dbos==3.4.0", "pysqlite3-binary==0.5.4.post2", "SQLAlchemy==2.1.9")

SYSTEMS = (
    System(
        name="craftcore",
        program="craftcore_engine",
        counts={
            "plain-100": 8_000,
            "plain-10": 3_000,
            "plain-1": 800,
            "step-100": 4_000,
            "step-1": 500,
            "steps-100": 1_200,
            "emit-1": 2_000,
            "emit-100": 16_000,
            "bulk": 40_000,
            "pipeline": 8_000,
            "latency": 25,
        },
    ),
    System(
        name="craftcore without records",
        program="craftcore_engine",
        counts={"pipeline": 8_000},
        kinds={"pipeline": "unrecorded"},
    ),
    System(
        name="raw SQLite",
        program="raw_sqlite",
        counts={"emit-1": 3_000, "bulk": 80_000, "pipeline": 16_000},
    ),
    System(
        name="Huey",
        program="huey_consumer",
        requirements=("huey==3.5.4",),
        counts={
            "plain-100": 3_000,
            "plain-10": 2_000,
            "plain-1": 2_000,
            "emit-1": 4_000,
            "emit-100": 4_000,
            "latency": 25,
        },
        widths={"plain-100": 10},
    ),
    System(
        name="persist-queue",
        program="persist_queue",
        requirements=("persist-queue==1.1.0",),
        counts={"plain-100": 1_200, "plain-1": 1_200, "emit-1": 3_000, "emit-100": 3_000, "latency": 25},
        widths={"plain-100": 2},
    ),
    System(
        name="litequeue",
        program="litequeue_file",
        requirements=("litequeue==0.9",),
        counts={"plain-100": 1_200, "plain-1": 1_200, "emit-1": 3_000, "emit-100": 1_200, "latency": 25},
        widths={"plain-100": 1},
    ),
    System(
        name="APScheduler",
        program="apscheduler_jobs",
        requirements=("APScheduler==3.11.3", "SQLAlchemy==2.0.58"),
        counts={"plain-100": 1_200, "plain-1": 1_200, "emit-1": 1_500, "emit-100": 1_200, "latency": 25},
        widths={"plain-100": 10},
    ),
    System(
        name="DBOS",
        program="dbos_workflows",
        requirements=DBOS,
        counts={
            "plain-100": 300,
            "plain-10": 40,
            "plain-1": 300,
            "step-100": 300,
            "step-1": 200,
            "steps-100": 200,
            "emit-1": 500,
            "emit-100": 500,
            "latency": 25,
        },
    ),
    System(
        name="DBOS tuned",
        program="dbos_workflows",
        requirements=DBOS,
        setting="tuned",
        counts={
            "plain-100": 800,
            "plain-10": 400,
            "plain-1": 800,
            "step-100": 500,
            "step-1": 400,
            "steps-100": 200,
            "emit-1": 1_000,
            "emit-100": 1_000,
            "latency": 25,
        },
    ),
    System(
        name="Procrastinate",
        program="procrastinate_worker",
        requirements=("procrastinate==3.10.0", "psycopg[binary]==3.3.9"),
        counts={
            "plain-100": 1_000,
            "plain-10": 800,
            "plain-1": 800,
            "emit-1": 1_500,
            "emit-100": 2_500,
            "bulk": 30_000,
            "latency": 25,
        },
        needs_postgres=True,
    ),
)
