"""What the exception group of a nursery comes to: code that does things beside each other raises nothing else.

Types are looked at, never what an error of somebody's own says of itself: its properties may be broken, too.
"""

from __future__ import annotations

from typing import cast

from craftcore.error_codes import known
from craftcore.errors import CraftcoreError, Fail
from craftcore.serialization.untrusted import MESSAGE_LIMIT, bounded, is_a, message_of

LEAVES_SAID = 100
"""Of so many errors of a group the words are told: more would not fit into a message."""

_EXCEPTIONS = BaseExceptionGroup.__dict__["exceptions"]

Kinds = type[BaseException] | tuple[type[BaseException], ...]


def is_only(error: BaseException, kinds: Kinds) -> bool:
    """Whether this is a nursery's group of these and nothing else."""
    return is_a(error, BaseExceptionGroup) and all(is_a(leaf, kinds) for leaf in leaves(error))


def decisive(error: BaseException) -> BaseException:
    """The error that says what becomes of an attempt: of several, the first that trying again cannot help; the group
    itself when there is none."""
    found = leaves(error)
    return found[0] if len(found) == 1 else next(filter(is_hopeless, found), error)


def is_hopeless(error: BaseException) -> bool:
    """Trying again cannot help."""
    if not is_a(error, CraftcoreError):
        return is_a(error, Fail)
    try:
        code = known(cast(CraftcoreError, error).code)
    except BaseException:  # one of somebody's own is broken
        return False
    return code is not None and not code.may_be_retried


def said(error: BaseException) -> str:
    """The error's own words; those of all that are in a group."""
    return bounded("; ".join(message_of(leaf) for leaf in leaves(error)[:LEAVES_SAID]), MESSAGE_LIMIT)


def first_leaf(error: BaseException) -> BaseException:
    """The first error of a group; any other is its own."""
    return next(iter(leaves(error)), error)


def leaves(error: BaseException) -> list[BaseException]:
    """The errors of a group, however deep, in their order; any other error is its only one."""
    found, within = list[BaseException](), [error]  # no recursion: it may be deeper than the interpreter goes
    while within:
        one = within.pop()
        if is_a(one, BaseExceptionGroup):
            within.extend(reversed(_EXCEPTIONS.__get__(one)))
        else:
            found.append(one)
    return found
