"""A turn of a long conversation costs what an early one did: in statements, rows, commits and pages of the file."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.conversation import state_and_messages, talk

BLOCKS, BLOCK, KEPT = 6, 20, 60


@pytest.mark.parametrize("is_one_task", [True, False])
def test_cost_of_a_turn_does_not_grow_with_the_conversation(tmp_path, is_one_task):
    path = tmp_path / "bench.db"
    costs = asyncio.run(talk(path, BLOCKS * BLOCK, block=BLOCK, kept=KEPT, is_one_task=is_one_task))

    early, late = costs[1], costs[-1]  # from the second on, each turn removes as many messages as it appends
    assert late.statements == pytest.approx(early.statements, rel=0.05)
    assert late.rows == pytest.approx(early.rows, rel=0.05)
    assert late.commits == pytest.approx(early.commits, rel=0.05)
    middle = costs[1 + (BLOCKS - 2) // 2]
    assert late.bytes - middle.bytes <= 1.8 * (middle.bytes - early.bytes)  # whole pages, two blocks each
    state, kept, units = state_and_messages(path)
    assert state <= 4
    assert KEPT <= kept <= KEPT + 2  # whole units of one and of three messages
    assert units == kept / 2
