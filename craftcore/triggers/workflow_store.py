"""Workflows that the last daemon declared: all that another process can know of them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from craftcore.errors import UnknownWorkflow
from craftcore.storage.transaction import Reader


def refuse_unknown(tx: Reader, workflows: Iterable[str | None]) -> None:
    """Raise UnknownWorkflow for a name that the last daemon did not declare. Before the first daemon all are known."""
    declared = {name for (name,) in tx.fetch_tuples("SELECT name FROM workflows")}
    for name in workflows:
        if declared and name is not None and name not in declared:
            close = difflib.get_close_matches(name, sorted(declared), n=1)
            hint = f"did you mean {close[0]}?" if close else f"declared are {', '.join(sorted(declared))}"
            raise UnknownWorkflow(f"no workflow is named {name}; {hint}")
