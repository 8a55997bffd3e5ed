"""KeyboardInterrupt that Ctrl-C raised, as opposed to one that code of a workflow raised itself.

trio raises it in whatever code runs when the signal comes, and so does asyncio at the second Ctrl-C. The person means
the program, not the workflow that happened to run.
"""

from __future__ import annotations

import signal
from functools import partial
from traceback import walk_tb
from types import CodeType

from craftcore.engine.failure import leaf_errors
from craftcore.serialization.untrusted import safe_isinstance, traceback_of


def is_ctrl_c(error: BaseException) -> bool:
    """Return whether the Python function that handles SIGINT raised this error, or one of its group.

    False with Python's own handler, `signal.default_int_handler`: it has no frame, so it looks like a `raise` in the
    code that it interrupted.
    """
    interrupts = [leaf for leaf in leaf_errors(error) if safe_isinstance(leaf, KeyboardInterrupt)]
    if not interrupts:
        return False
    handler = _sigint_code()
    return handler is not None and any(_find_raising_function(leaf) is handler for leaf in interrupts)


def _sigint_code() -> CodeType | None:
    """Return the code of the handler of SIGINT; None when it is not a Python function."""
    handler: object = signal.getsignal(signal.SIGINT)
    while isinstance(handler, partial):
        handler = handler.func
    code = getattr(handler, "__code__", None)
    return code if isinstance(code, CodeType) else None


def _find_raising_function(error: BaseException) -> CodeType | None:
    """Return the function that raised it; None when it has no traceback."""
    code = None
    for frame, _ in walk_tb(traceback_of(error)):
        code = frame.f_code
    return code
