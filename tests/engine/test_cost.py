"""Exact cost of a trigger in statements, row writes, commits and loop hops."""

from __future__ import annotations

import asyncio

from benchmarks.cost import accepted, one_by_one, together


def test_lone_trigger_costs_two_commits_and_its_statements(tmp_path):
    """The statements of emit, claim and start, and settle are counted."""
    cost = asyncio.run(one_by_one(tmp_path / "one.db", 20))
    assert cost.commits <= 2.2
    assert cost.hops <= 2.2
    assert cost.statements <= 16
    assert cost.rows <= 6.2


def test_thousand_triggers_at_once_cost_at_most_a_statement_each(tmp_path):
    cost = asyncio.run(together(tmp_path / "many.db", 1000))
    assert cost.statements <= 0.6
    assert cost.rows <= 6.1
    assert cost.commits <= 0.06
    assert cost.hops <= 0.06


def test_settle_and_next_start_of_a_sequential_engine_are_a_single_commit(tmp_path):
    cost = asyncio.run(together(tmp_path / "turns.db", 100, 1))
    assert cost.commits <= 1.1
    assert cost.hops <= 1.1
    assert cost.statements <= 12
    assert cost.rows <= 7.1


def test_lone_emit_costs_its_insert_and_a_commit(tmp_path):
    cost = asyncio.run(accepted(tmp_path / "emit.db", 20))
    assert (cost.statements, cost.rows, cost.commits, cost.hops) == (3, 1, 1, 1)


def test_emits_of_a_hundred_tasks_share_statements_commits_and_hops(tmp_path):
    """The number of emits per commit depends on the machine: the writer may take the first before others arrive."""
    cost = asyncio.run(accepted(tmp_path / "emits.db", 1000, emitters=100))
    assert cost.rows == 1
    assert cost.commits <= 0.1
    assert cost.hops <= cost.commits
    assert cost.statements <= 6 * cost.commits


def test_emit_of_a_thousand_in_a_commit_costs_a_statement_for_each_hundred(tmp_path):
    cost = asyncio.run(accepted(tmp_path / "bulk.db", 1000, 1000))
    assert cost.rows == 1
    assert cost.statements <= 0.012
    assert (cost.commits, cost.hops) == (0.001, 0.001)
