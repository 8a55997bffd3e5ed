"""apsw alone, on craftcore's schema: the measurements of `benchmarks/raw.py` with the payload of this comparison."""

from __future__ import annotations

import asyncio
import json

from benchmarks import raw
from benchmarks.peers.programs.work import PAYLOAD, Work, serve

TEXT = json.dumps(PAYLOAD, separators=(",", ":"))


def emit(work: Work) -> float:
    """Return the rows per second, each in its own commit."""
    return raw.single_commits(raw.fresh(work.folder / "bench.db"), work.count, payload=TEXT)


def bulk(work: Work) -> float:
    """Return the rows per second with `width` rows a commit."""
    return raw.batches(raw.fresh(work.folder / "bench.db"), work.count, work.width, payload=TEXT)


def pipeline(work: Work) -> float:
    """Return the rows per second through emit, claim and acknowledgement, with a writer thread and nothing else."""
    connection = raw.fresh(work.folder / "bench.db")
    return asyncio.run(raw.bare_pipeline(connection, work.count, work.width, payload=TEXT))


if __name__ == "__main__":
    serve({"emit": emit, "bulk": bulk, "pipeline": pipeline})
