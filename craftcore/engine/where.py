"""Where user code raised: the places of its traceback that are not ours, as they can be recorded and logged.

Places and nothing else: no line of code, no value, so no secret.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from traceback import walk_tb
from types import CodeType, FrameType

import anyio

from craftcore.engine.groups import first_leaf
from craftcore.serialization.untrusted import bounded, traceback_of

FIRST, LAST = 4, 6
"""So many places are kept from either end: the author's own, and where it was raised."""

PLACE_LIMIT = 300
"""Characters of a place."""

_OURS = str(Path(__file__).parents[1]) + "/"
_MACHINERY = (_OURS, str(Path(anyio.__file__).parent) + "/")


def places(stack: Iterable[tuple[FrameType, int]]) -> list[str]:
    """The places of a stack that are not ours, outermost first."""
    frames = [(frame.f_code, line) for frame, line in stack]
    return _told([one for one in frames if not one[0].co_filename.startswith(_MACHINERY)])


def where(error: BaseException) -> list[str]:
    """`["/srv/agent/app.py:81 in report", …]`: from the outermost to where it was raised; of a group that of its first.

    What is raised within craftcore itself, and went through nothing else, has its last place alone.
    """
    frames = [(frame.f_code, line) for frame, line in walk_tb(traceback_of(first_leaf(error)))]
    theirs = [one for one in frames if not one[0].co_filename.startswith(_MACHINERY)] or frames[-1:]
    return _told(theirs)


def _told(theirs: list[tuple[CodeType, int]]) -> list[str]:
    if len(theirs) > FIRST + LAST:
        theirs = theirs[:FIRST] + theirs[-LAST:]
    return [bounded(f"{code.co_filename}:{line} in {code.co_name}", PLACE_LIMIT) for code, line in theirs]
