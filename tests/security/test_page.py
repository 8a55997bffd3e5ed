"""The promises of docs/explanation/security.md: each names a test that exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explanation" / "security.md").read_text(encoding="utf-8")


def test_security_page_promises_name_existing_tests():
    rows = [row for row in PAGE.splitlines() if row.startswith("| ") and not row.endswith("| test |")]

    assert len(rows) > 8
    for row in rows:
        named = re.findall(r"`(tests/[\w/.]+)`", row)
        assert named, row
        assert [name for name in named if not (ROOT / name).exists()] == []
