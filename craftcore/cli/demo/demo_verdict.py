"""The result of the demo, counted from the file that the work wrote and from the table."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from craftcore.cli.demo.demo_store import DEAD, LEFT_CLAIMED, SETTLED_TWICE, SUCCEEDED
from craftcore.storage.transaction import Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The counts. `run_again` counts work that a kill cut off and that ran again: at-least-once."""

    accepted: int
    done: int
    lost: int
    settled_twice: int
    left_claimed: int
    dead: int
    run_again: int
    kills: int
    seconds: float

    @property
    def kept(self) -> bool:
        """Every promise holds."""
        return not (self.lost or self.settled_twice or self.left_claimed or self.dead) and self.done == self.accepted

    def document(self) -> dict[str, Any]:
        return {**asdict(self), "kept": self.kept}

    def lines(self) -> list[str]:
        return [
            f"accepted        {self.accepted}",
            f"done            {self.done}",
            f"lost            {self.lost}",
            f"settled twice   {self.settled_twice}",
            f"left claimed    {self.left_claimed}",
            f"dead letters    {self.dead}",
            f"run again       {self.run_again}   (attempts that a kill cut off)",
            f"kills           {self.kills}",
            f"seconds         {self.seconds:.1f}",
        ]

    def sentence(self) -> str:
        if self.kept:
            return "Every accepted trigger was done and settled exactly once."
        return "A PROMISE IS BROKEN. Please report this, with the numbers above."


def judge(reader: Reader, accepted: list[str], ledger: Path, kills: int, seconds: float) -> Verdict:
    """Count the triggers. A lost trigger was accepted, and is not DONE in the table with its end in the file."""
    lines = lines_of(ledger)
    begun = Counter(number for word, number in lines if word == "begin")
    ended = {number for word, number in lines if word == "end"}
    done = {trigger_id for trigger_id, number in reader.fetch_tuples(SUCCEEDED) if number in ended}
    return Verdict(
        accepted=len(accepted),
        done=len(done),
        lost=len(set(accepted) - done),
        settled_twice=reader.fetch_value(SETTLED_TWICE),
        left_claimed=reader.fetch_value(LEFT_CLAIMED),
        dead=reader.fetch_value(DEAD),
        run_again=sum(times - 1 for times in begun.values()),
        kills=kills,
        seconds=round(seconds, 2),
    )


def lines_of(ledger: Path) -> list[tuple[str, int]]:
    """Return `begin 7` and `end 7`, in the order in which they were written."""
    try:
        text = ledger.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    return [(word, int(number)) for word, number in (line.split() for line in text.splitlines())]
