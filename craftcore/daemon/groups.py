"""What a task group raises, as the one error that it nearly always is."""

from __future__ import annotations


def only(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one exception in a group of one, however deep; else the group itself."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
