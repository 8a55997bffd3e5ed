"""What the exception group of a nursery comes to: code that does things beside each other raises nothing else."""

from __future__ import annotations

from craftcore.engine.words import MESSAGE_LIMIT, bounded, message_of
from craftcore.errors import CraftcoreError, Fail

Kinds = type[BaseException] | tuple[type[BaseException], ...]


def is_only(error: BaseException, kinds: Kinds) -> bool:
    """Whether this is a nursery's group of these and nothing else."""
    return isinstance(error, BaseExceptionGroup) and error.split(kinds)[1] is None


def decisive(error: BaseException) -> BaseException:
    """The error that says what becomes of an attempt: of several, the first that trying again cannot help; the group
    itself when there is none."""
    leaves = _leaves(error)
    return leaves[0] if len(leaves) == 1 else next(filter(is_hopeless, leaves), error)


def is_hopeless(error: BaseException) -> bool:
    """Trying again cannot help."""
    return isinstance(error, Fail) or (isinstance(error, CraftcoreError) and error.code.retryable == "no")


def said(error: BaseException) -> str:
    """The error's own words; those of all that are in a group."""
    return bounded("; ".join(message_of(leaf) for leaf in _leaves(error)), MESSAGE_LIMIT)


def _leaves(error: BaseException) -> list[BaseException]:
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
