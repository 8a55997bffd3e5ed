"""The public names: sorted, importable, and each from its home module."""

from __future__ import annotations

import craftcore


def test_public_names_are_sorted_and_come_from_their_home():
    assert craftcore.__all__ == sorted(craftcore.__all__) == sorted(craftcore._HOMES)
    assert all(getattr(craftcore, name).__module__ == home for name, home in craftcore._HOMES.items())


def test_shell_completes_public_names_before_first_use():
    assert set(craftcore.__all__) <= set(dir(craftcore))
