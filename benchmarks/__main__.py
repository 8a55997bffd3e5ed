"""`python -m benchmarks`: list the measurements. `python -m benchmarks NAME …`: run one. `all`: run all but `peers`."""

from __future__ import annotations

import sys
from importlib import import_module

NAMES = {
    "throughput": "emit and end to end against raw apsw, and the same with a million settled rows",
    "cost": "statements, commits and loop hops per trigger and, while it runs, per lease; depends on no machine",
    "latency": "from another process's emit to the handler, and what an idle daemon burns",
    "fairness": "a bulk producer and a saturated daemon on one file: who waits how long",
    "schedules": "a tick among 100, 10,000 and 100,000 schedules, a thousand due at once, a year of seconds",
    "steps": "steps and turns of tasks against raw apsw, alone and at a hundred tasks",
    "conversation": "a chat of 5,000 turns: the last hundred against the first, and the growth of the file",
    "streams": "the drain beside a hundred tasks that stream, as a share of that without",
    "records": "full records against none, and what one costs",
    "acts": "irreversible acts against raw apsw, alone and at a hundred tasks",
    "scrapes": "what a scrape of the metrics costs, up to a million settled rows, and the engine under scrapes",
    "masking": "masking a secret in an answer: its time, and how late the loop is meanwhile",
    "asleep": "ten thousand tasks asleep: resident memory and boot against none",
    "processes": "a step in a worker process, and how late the loop is while processes die, hang and answer wrongly",
    "boot": "from process start to the first handler, with and without a million settled rows",
    "failover": "on a cluster, from the death of a worker to the entry of its task in another one",
    "temporal": "steps of a task on a cluster against bare updates of Temporal, and the events of a step",
    "web": "the page beside a busy daemon and a million settled rows: each page, open tabs, memory",
    "peers": "the same work done by other systems, installed for it, in 7 to 10 minutes; not part of all",
}


def main(arguments: list[str]) -> int:
    """Run what was asked for."""
    if not arguments or arguments[0] not in {*NAMES, "all"}:
        for name, what in NAMES.items():
            print(f"  {name:11} {what}")
        return 0 if not arguments else 64
    if arguments[0] == "peers":
        import_module("benchmarks.peers").main(arguments[1:])
        return 0
    for name in [name for name in NAMES if name != "peers"] if arguments[0] == "all" else arguments[:1]:
        print(f"\n{name}: {NAMES[name]}")
        import_module(f"benchmarks.{name}").main()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
