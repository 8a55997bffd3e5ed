"""The app of the command tests and its worker: `python -m tests.temporal.command_app ADDRESS`, in its folder.

Its order asks a question, calls an action that is in doubt after the first call, and waits for a signal. It then fails
until the file `fixed` exists.
"""

from __future__ import annotations

import sys
from pathlib import Path

import anyio

from craftcore import App, Call, RetryPolicy, TaskContext
from craftcore.temporal.settings import TemporalSettings
from craftcore.temporal.worker import work_until_stopped
from tests.temporal.cluster_app import add_line

QUEUE = "commands"


def command_app(folder: Path) -> App:
    """Return the app."""
    app = App(QUEUE)
    app.default_retry = RetryPolicy(max_attempts=1, base=0, cap=0)

    @app.action("send", irreversible=True)
    async def send(call: Call, what: str) -> str:
        add_line(folder / "sent", call.key)
        if what == "lamp" and len((folder / "sent").read_text().splitlines()) == 1:
            raise ConnectionResetError("the connection is gone")
        return "ref-1"

    @app.workflow("order")
    async def order(ctx: TaskContext, what: str) -> list[str]:
        await ctx.step("price", lambda: add_line(folder / "priced", what))
        answer = await ctx.ask(f"Send the {what}?", options=["send", "hold"])
        reference = await ctx.act(send, what=what)
        paid = await ctx.wait_for("paid")
        if not (folder / "fixed").exists():
            raise ValueError("the printer is out of paper")
        return [answer, reference, paid]

    return app


if __name__ == "__main__":
    anyio.run(
        work_until_stopped,
        command_app(Path.cwd()),
        TemporalSettings(address=sys.argv[1], heartbeat_timeout=2, sticky_timeout=1),
    )
