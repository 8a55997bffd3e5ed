"""Random plans of work over a restore: no payment is made twice, and none is left out."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from craftcore import App, Call, TaskContext
from tests.support.acts import Provider
from tests.support.engine_harness import Lab, lab
from tests.support.older_copies import copy, put_back, release

pytestmark = pytest.mark.anyio

Plan = list[Any]
"""The steps of a task in order: "wait", "pay", or a pair of the way to make other work and the plan of that work."""

KINDS = ("child", "emit", "app", "schedule")


def random_plan(chance: random.Random, depth: int = 3) -> Plan:
    steps: Plan = []
    for _ in range(chance.randint(1, 3)):
        made = [[kind, random_plan(chance, depth - 1)] for kind in KINDS] if depth else []
        steps.append(chance.choice(["wait", "pay", *made]))
    return [*steps, "pay"]


def payments(plan: Plan, path: str) -> Iterator[str]:
    for number, step in enumerate(plan):
        if step == "pay":
            yield f"{path}.{number}"
        elif step != "wait":
            yield from payments(step[1], f"{path}.{number}")


def build_app(provider: Provider) -> App:
    app = App("planned")

    @app.action("pay", irreversible=True)
    async def pay(call: Call, *, to: str) -> Any:
        return await provider(call, to=to)

    @app.workflow("work")
    async def work(ctx: TaskContext, path: str, plan: list[Any]) -> None:
        for number, step in enumerate(plan):
            place = f"{path}.{number}"
            match step:
                case "wait":
                    await ctx.wait_for("go")
                case "pay":
                    await ctx.act("pay", to=place)
                case [kind, made]:
                    await make(ctx, kind, {"path": place, "plan": made})

    async def make(ctx: TaskContext, kind: str, payload: dict[str, Any]) -> None:
        match kind:
            case "child":
                await ctx.start_child("work", payload)
            case "emit":
                await ctx.emit("work", payload)
            case "app":  # a dedup key, since the code after a wait runs again
                await app.emit("work", payload, dedup_key=payload["path"], dedup_scope="ever")
            case "schedule":
                await ctx.schedules.add(payload["path"], "immediate", workflow="work", payload=payload)

    return app


async def wait_for_rest(harness: Lab) -> None:
    """Wait until every task has ended or waits."""
    due = "SELECT 1 FROM triggers WHERE status IN ('PENDING', 'CLAIMED') LIMIT 1"
    planned = "SELECT 1 FROM schedules WHERE next_at IS NOT NULL LIMIT 1"
    running = "SELECT 1 FROM tasks WHERE status = 'RUNNING' LIMIT 1"
    await harness.until(lambda: not (harness.rows(running) or harness.rows(due) or harness.rows(planned)))


async def wake_all(harness: Lab, provider: Provider) -> bool:
    """Wake each waiting task and answer each question by the calls of the provider. Return whether there were any."""
    asked = harness.rows(
        "SELECT questions.id, request_json ->> 'to' AS payee "
        "FROM questions JOIN activity_log ON activity_log.seq = activity_seq WHERE questions.status = 'OPEN'"
    )
    waiting = harness.rows(
        "SELECT DISTINCT tasks.id FROM tasks JOIN waits ON waits.task_seq = tasks.seq "
        "WHERE waits.status = 'WAITING' AND waits.kind = 'event'"
    )
    for row in asked:
        is_paid = row["payee"] in [to for _, _, to in provider.calls]
        await harness.app.answer(row["id"], "happened" if is_paid else "resend", answered_by="ada")
    for row in waiting:
        await harness.app.signal(row["id"], "go")
    await wait_for_rest(harness)
    return bool(asked or waiting)


SEEDS = [pytest.param(seed, marks=[] if seed == 1 else pytest.mark.campaign) for seed in range(300)]


@pytest.mark.parametrize("seed", SEEDS)
async def test_random_plan_over_a_restore_makes_each_payment_once(tmp_path, seed):
    chance = random.Random(seed)
    plan = random_plan(chance)
    provider = Provider()
    app = build_app(provider)
    async with lab(app, tmp_path) as harness:
        await app.emit("work", {"path": "0", "plan": plan})
        await wait_for_rest(harness)
        for _ in range(chance.randint(0, 2)):
            await wake_all(harness, provider)
        copied = copy(harness.path)
        for _ in range(chance.randint(0, 4)):
            await wake_all(harness, provider)
    put_back(copied, harness.path)

    async with lab(app, tmp_path) as harness:
        release(harness)
        await wait_for_rest(harness)
        while await wake_all(harness, provider):
            pass

    assert sorted(to for _, _, to in provider.calls) == sorted(payments(plan, "0"))
