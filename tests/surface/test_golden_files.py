"""The public surface equals its golden documents, which `python -m tests.surface` writes."""

from __future__ import annotations

import pytest

from tests.surface.collect import DOCUMENTS, GOLDEN


@pytest.mark.parametrize("name", DOCUMENTS)
def test_public_surface_matches_its_golden_document(name):
    golden = (GOLDEN / name).read_text()

    assert DOCUMENTS[name]() == golden, f"run `python -m tests.surface` if the change to {name} is intended"


def test_golden_folder_has_no_other_document():
    assert sorted(path.name for path in GOLDEN.iterdir()) == sorted(DOCUMENTS)
