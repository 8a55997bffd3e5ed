"""A data converter that changes each byte of a payload, as an encryption does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from temporalio.api.common.v1 import Payload
from temporalio.converter import DataConverter, PayloadCodec


class Scrambled(PayloadCodec):
    """A codec that changes each byte of a payload."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Return unreadable payloads."""
        return [
            Payload(metadata={"encoding": b"scrambled"}, data=bytes(byte ^ 0x55 for byte in one.SerializeToString()))
            for one in payloads
        ]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Return the original payloads."""
        return [Payload.FromString(bytes(byte ^ 0x55 for byte in one.data)) for one in payloads]


converter = replace(DataConverter.default, payload_codec=Scrambled())
