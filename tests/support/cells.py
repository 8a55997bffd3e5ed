"""Samples of the cells of a large matrix, chosen by the kind of run.

run                                cells
---------------------------------  ---------------------------------------------------------
the default                        a fifth, always the same, so that the result depends on the change alone
`python -m tests.everything`       another fifth in addition, drawn by the seed of the day (`--seed`)
`pytest -m campaign`               all others
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import TypeVar
from zlib import crc32

import pytest

SEED = "CRAFTCORE_TESTS_SEED"
"""The environment variable with the value of `--seed`, for the workers and the modules that they import."""

Cell = TypeVar("Cell")


def cells(every: Sequence[Cell], ids: Sequence[str] | None = None) -> list[pytest.ParameterSet]:
    """Return the cells as parameters of a test. Cells beyond the default run are marked `acceptance` or `campaign`."""
    names = [str(cell) for cell in every] if ids is None else list(ids)
    always, drawn = set(_fixed_fifth(names)), set(_drawn_fifth(names))
    parameters = []
    for cell, name in zip(every, names, strict=True):
        mark = () if name in always else pytest.mark.acceptance if name in drawn else pytest.mark.campaign
        values = cell if isinstance(cell, tuple) else (cell,)
        parameters.append(pytest.param(*values, id=name, marks=mark))
    return parameters


def some_cells(every: Sequence[Cell]) -> list[Cell]:
    """Return a fifth of the cells, for a test with a loop over them. With `--seed`, the seed draws the fifth."""
    names = [str(cell) for cell in every]
    chosen = set(_drawn_fifth(names) or _fixed_fifth(names))
    return [cell for cell, name in zip(every, names, strict=True) if name in chosen]


def _fixed_fifth(names: Sequence[str]) -> list[str]:
    """Return a fifth that depends on the names alone, so that a new cell hardly changes the choice."""
    return sorted(names, key=lambda name: (crc32(name.encode()), name))[: -(-len(names) // 5)]


def _drawn_fifth(names: Sequence[str]) -> list[str]:
    """Return the fifth that `--seed` draws, or nothing without a seed."""
    seed = os.environ.get(SEED)
    if seed is None:
        return []
    return random.Random(f"{seed} {sorted(names)}").sample(sorted(names), -(-len(names) // 5))
