"""The trusted certificates of the tests of actions."""

from __future__ import annotations

from pathlib import Path

import pytest

UNUSED_CERTIFICATE = Path(__file__).parents[1] / "support" / "nobody.pem"
"""A certificate whose key was thrown away."""


@pytest.fixture(autouse=True)
def few_authorities(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trust a single certificate; loading the 144 of a machine takes 50 ms for each model and connection."""
    monkeypatch.setenv("SSL_CERT_FILE", str(UNUSED_CERTIFICATE))
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
