"""`python -m tests.systemd`: boot a Debian, and print each result of craftcore under its systemd."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

if __name__ == "__main__":
    sys.exit(pytest.main(["-m", "system", "-vv", "-rs", "--no-header", str(Path(__file__).parent), *sys.argv[1:]]))
