"""The calls and commands that a cluster lacks, each with the advice for its caller."""

from __future__ import annotations

from collections.abc import Mapping

from craftcore.client.backend import Capability

LACKS: Mapping[Capability, str] = {
    Capability.SCHEDULES: "on a cluster, schedules are changed by craftcore temporal schedule",
    Capability.SIGNAL_OR_START: "on a cluster, signal takes the id of a task, and no start: emit the task first",
    Capability.STOP_TURN: "a cluster stops no turn of a task: cancel the task",
    Capability.CANCEL_ALL: "a cluster cancels no work of all tasks together: cancel each task",
    Capability.HOLD: "a cluster holds no work: stop the workers, and everything is kept",
    Capability.DEAD_LETTERS: (
        "a cluster has no dead letters: find the failed tasks with craftcore temporal trigger list --status dead, and "
        "retry each"
    ),
    Capability.TRANSACTION: "a cluster has no tables: write to a database of your own",
    Capability.REPLY: (
        "on a cluster, ctx.reply answers no message: a message ends when it is delivered. Emit each message as a task "
        "of its own, whose result is the answer"
    ),
    Capability.HISTORY: "a cluster keeps no messages of sessions: keep them in a database of your own",
    Capability.STREAMS: (
        "a cluster keeps no streams: each chunk would be an event of a history. Send the text to your readers "
        "yourself, and return the whole of it from a step"
    ),
}

COMMANDS: Mapping[str, str] = {
    "dead": LACKS[Capability.DEAD_LETTERS],
    "hold": LACKS[Capability.HOLD],
    "release": LACKS[Capability.HOLD],
    "task stop": LACKS[Capability.STOP_TURN],
    "session": LACKS[Capability.HISTORY],
    "task stream": LACKS[Capability.STREAMS],
    "verify": "a history has no hash chain: the cluster keeps it, and nothing of craftcore can verify it",
    "db": "a cluster has no database file: the cluster itself is backed up by its operator",
}
"""The commands of a database file that a cluster lacks."""
