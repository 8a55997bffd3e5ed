"""The app of `craftcore demo`: work that leaves a trace outside of the database."""

from __future__ import annotations

import asyncio
import os

from craftcore import App

app = App("demo")


@app.workflow("demo.work")
async def work(number: int, ledger: str, seconds: float) -> int:
    """Write a line, do something that takes a while, write another line."""
    _append(ledger, f"begin {number}")
    await asyncio.sleep(seconds)
    _append(ledger, f"end {number}")
    return number


def _append(ledger: str, line: str) -> None:
    """Write one line in append mode: it is whole or absent, whenever the process is killed."""
    descriptor = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)
