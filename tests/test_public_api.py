"""The public names are the ones listed: sorted, importable, each from its home."""

from __future__ import annotations

import craftcore


def test_the_public_names_are_sorted_and_each_comes_from_its_home():
    assert craftcore.__all__ == sorted(craftcore.__all__) == list(craftcore._HOMES)
    assert all(getattr(craftcore, name).__module__ == home for name, home in craftcore._HOMES.items())


def test_a_shell_can_complete_them_before_they_are_used():
    assert set(craftcore.__all__) <= set(dir(craftcore))
