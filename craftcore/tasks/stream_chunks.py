"""Streams of a turn: text that its code writes piece by piece, and that readers follow while it runs."""

from __future__ import annotations

from typing import NamedTuple

from craftcore.triggers.model import Claim

ROW_MAX = 64 << 10
"""Characters of chunks that one row holds, about."""


class StreamChunk(NamedTuple):
    """One chunk of a stream, or the place at which chunks were withdrawn.

    number  its place in the stream, from 1. Numbers grow over the turns of the task, and none is used twice
    text    what was written; "" at a cut
    turn    the turn of the task that wrote it, from 1
    cut     the numbers of earlier chunks that no longer count: their step was cut off and runs again. Empty for a text
    """

    number: int
    text: str
    turn: int
    cut: tuple[range, ...] = ()


class StreamView(NamedTuple):
    """The next chunks of a stream. `is_over`: the work has ended, and no chunk comes after these."""

    chunks: list[StreamChunk]
    is_over: bool


class StreamSummary(NamedTuple):
    """One stream of one turn: how many chunks are kept, and the number of the last one; 0: it has none."""

    name: str
    turn: int
    chunks: int
    last: int


class KeptChunks(NamedTuple):
    """Chunks on record that were committed together. `texts` None: they are damaged."""

    first: int
    last: int
    part: str
    texts: list[str] | None


class OpenStream(NamedTuple):
    """A stream of a turn as its writer finds it: the next number, and what it kept."""

    seq: int
    next_number: int
    kept: list[KeptChunks]


class Written(NamedTuple):
    """Chunks of one part that follow each other, to be committed."""

    stream_seq: int
    first: int
    part: str
    texts: list[str]


class Cut(NamedTuple):
    """The withdrawal of the chunks of a part that have a number after `after`. `number`: its own place."""

    stream_seq: int
    number: int
    part: str
    after: int


class StreamWrites(NamedTuple):
    """The writes of one turn since the last commit, in order. The claim proves that it still holds its trigger."""

    claim: Claim
    writes: list[Written | Cut]
