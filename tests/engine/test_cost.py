"""What a trigger costs in statements, commits and loop hops: a regression here is one on every machine."""

from __future__ import annotations

import asyncio

from benchmarks.cost import one_by_one, together


def test_lone_trigger_costs_about_four_commits_and_forty_statements(tmp_path):
    """Emit, claim, start and settle, and the looks between them."""
    statements, commits, hops = asyncio.run(one_by_one(tmp_path / "one.db", 20))
    assert commits <= 4.5
    assert hops <= 4.5
    assert statements <= 42


def test_thousand_triggers_at_once_cost_at_most_a_statement_each(tmp_path):
    statements, commits, hops = asyncio.run(together(tmp_path / "many.db", 1000))
    assert statements <= 1.0
    assert commits <= 0.06
    assert hops <= 0.06


def test_settle_and_next_start_of_a_sequential_engine_are_a_single_commit(tmp_path):
    statements, commits, hops = asyncio.run(together(tmp_path / "turns.db", 300, 1))
    assert commits <= 1.1
    assert hops <= 1.1
    assert statements <= 20
