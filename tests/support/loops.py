"""The event loop of a test whose module runs on both, although the test itself is not about the loop."""

from __future__ import annotations

import pytest

ON_ASYNCIO = pytest.mark.parametrize("anyio_backend", ["asyncio", pytest.param("trio", marks=pytest.mark.campaign)])
"""The default run has the test on asyncio, and `-m campaign` on trio."""
