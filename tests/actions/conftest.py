"""The trust in other machines that tests of actions have: in none."""

from __future__ import annotations

from pathlib import Path

import pytest

NOBODY = Path(__file__).parents[1] / "support" / "nobody.pem"
"""A certificate whose key was thrown away."""


@pytest.fixture(autouse=True)
def few_authorities(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trust one certificate: to read the 144 of a machine takes 50 ms of processor, for each model and connection."""
    monkeypatch.setenv("SSL_CERT_FILE", str(NOBODY))
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
