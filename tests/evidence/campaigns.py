"""The kill campaigns as experiments. Each runs in its own process, which forks the processes to kill."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.crash import notification_campaign
from tests.crash.crews import run_command
from tests.evidence.model import Findings

Figures = Callable[[dict[str, Any]], tuple[int, int, str]]
"""A function that returns the lost and the repeated items of a campaign's result, and a text with other figures."""


def triggers(result: dict[str, Any]) -> tuple[int, int, str]:
    again = sum(result["interrupted"].values())
    more = f"{result['accepted']:,} triggers accepted, {again:,} attempts run again"
    return sum(result["lost"].values()), sum(result["doubled"].values()), more


def tasks(result: dict[str, Any]) -> tuple[int, int, str]:
    found = result["found"]
    return 0, 0, f"{found['tasks']:,} tasks, {found['steps']:,} steps, {found['run_again']:,} functions run again"


def schedules(result: dict[str, Any]) -> tuple[int, int, str]:
    found = result["found"]
    return found["lost"], found["doubled"], f"{found['occurrences']:,} occurrences, {found['triggers']:,} fired"


def foreign(result: dict[str, Any]) -> tuple[int, int, str]:
    found = result["found"]
    more = f"{found['accepted']:,} triggers accepted, {found['foreign']:,} rows of the other programs"
    return found["lost"] + found["foreign_lost"], found["doubled"], more


def actions(result: dict[str, Any]) -> tuple[int, int, str]:
    found = result["found"]
    asked = f"{found['doubts']:,} in doubt, {found['answers']:,} answers of people"
    return found["losses"], found["duplicates"], f"{found['acts']:,} actions, {found['effects']:,} effects, {asked}"


def campaign(module: str, figures: Figures, *options: str) -> Callable[[int, int, Path], Findings]:
    """Return the experiment of a campaign."""

    def run(kills: int, seed: int, folder: Path) -> Findings:
        result_file = folder / "result.json"
        words = ("--kills", str(kills), "--seed", str(seed), "--workers", str(os.cpu_count() or 1), *options)
        child = run_command(module, result_file, *words)
        if not result_file.exists():
            return Findings(wrong=[f"{module} ended with {child.returncode}: {child.stderr[-1000:]}"])
        result: dict[str, Any] = json.loads(result_file.read_text())
        lost, repeated, more = figures(result)
        return Findings(
            count=sum(result["kills"].values()), lost=lost, repeated=repeated, wrong=list(result["wrong"]), more=more
        )

    return run


def notifications(kills: int, seed: int, folder: Path) -> Findings:
    """Kill a daemon that notifies."""
    verdict = notification_campaign.run(folder, kills, seed)
    wrong = [*verdict.wrong]
    if not verdict.holds and not wrong:
        wrong = [f"lost: {verdict.lost}, doubled: {verdict.doubled}, failures: {verdict.failures_called}"]
    return Findings(
        count=verdict.kills,
        lost=len(verdict.lost),
        repeated=len(verdict.doubled),
        wrong=wrong,
        more=f"{verdict.events:,} events, {verdict.triggers:,} notifications",
    )
