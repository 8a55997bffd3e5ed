"""Masking a secret in what a provider answers: the time it takes, and how late the loop is meanwhile."""

from __future__ import annotations

import asyncio
import json
import os
import time
from base64 import b64encode
from hashlib import sha256

from benchmarks.scrapes import TICK
from craftcore.actions.http.exchange import Answer
from craftcore.actions.http.response import read_in_thread, result
from craftcore.actions.redaction import Scrubber

SECRET = "sk-live-0123456789abcdef"
KIB = 1 << 10
MIB = 1 << 20


def main() -> None:
    """Bodies as they are, bodies that are made to be slow, and secrets that are."""
    rows = json.dumps([{"name": "somebody", "id": number, "text": 'a "word"'} for number in range(300_000)]).encode()
    backslashes = "a" + "\\" * 40 + "b"
    for title, secret, body in (
        ("16 MiB of base64", SECRET, b64encode(os.urandom(12 * MIB))),
        ("16 MiB of JSON", SECRET, rows[: 16 * MIB]),
        ("64 KiB, all beginnings", SECRET, (SECRET[:-1] + "!").encode() * (64 * KIB // len(SECRET))),
        ("1 MiB, all beginnings", SECRET, (SECRET[:-1] + "!").encode() * (MIB // len(SECRET))),
        ("64 KiB of backslashes", backslashes, b"a" + b"\\" * 64 * KIB),
        ("64 KiB, 4,000 backslashes", "\\" * 4_000, b"\\" * 64 * KIB),
        ("64 KiB of entities", SECRET, b"&#0000011111" * (64 * KIB // 12)),
        ("64 KiB, a secret of 3,000", "sk-" + "x1Y" * 1_000, b"sk-" + b"x1Y" * (64 * KIB // 3)),
    ):
        seconds, late = asyncio.run(masked(secret, body))
        print(
            f"  {title:26} {seconds * 1e3:9.1f} ms    loop late: p99 {late[-1 - len(late) // 100] * 1e3:6.2f} ms",
            end="",
        )
        print(f", max {late[-1] * 1e3:6.2f} ms")


async def masked(secret: str, body: bytes) -> tuple[float, list[float]]:
    """The seconds of one masking, and how much later than asked the loop woke meanwhile, sorted."""
    digest = sha256(body).hexdigest()
    answer = Answer(status=200, headers=[], body=body, body_bytes=len(body), body_sha256=digest, cut=None)
    scrubber = Scrubber([secret])
    working = asyncio.create_task(_masked(answer, scrubber))
    late = []
    await asyncio.sleep(0)
    while not working.done():
        wanted = time.perf_counter() + TICK
        await asyncio.sleep(TICK)
        late.append(time.perf_counter() - wanted)
    return await working, sorted(late) or [0.0]


async def _masked(answer: Answer, scrubber: Scrubber) -> float:
    began = time.perf_counter()
    await read_in_thread(answer, lambda: result(answer, keep=16 * MIB, url="http://here", scrubber=scrubber))
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
