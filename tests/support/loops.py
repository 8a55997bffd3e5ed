"""The event loop of a test that is not about the loop, in a module that runs on both loops."""

from __future__ import annotations

import pytest

ON_ASYNCIO = pytest.mark.parametrize("anyio_backend", ["asyncio", pytest.param("trio", marks=pytest.mark.campaign)])
"""A mark by which the default run has the test on asyncio, and `-m campaign` on trio."""
