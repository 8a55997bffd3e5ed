"""Forked children: what of an engine they must not keep, and that they never go on as a second engine.

`os.fork` without `exec` copies every descriptor, and user code may fork: a ProcessPoolExecutor does. A copy of the lock
file's descriptor would hold the daemon's lock after the daemon has died; a copy of its sockets would answer for it.
SQLite's connections are left alone: closing them in the child would be worse.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import NoReturn

generation = 0
"""How many forks lie between the first process and this one. Code that user code returns to compares it."""

LEFT_EARLY = 70

_in_child: dict[int, Callable[[], None]] = {}
_numbers = count()


def run_in_forked_children(act: Callable[[], None]) -> Callable[[], None]:
    """Let `act` run in every child that is forked from now on, before anything else; what is returned ends that.

    It must neither wait nor take a lock: the threads of the parent do not exist in the child.
    """
    number = next(_numbers)
    _in_child[number] = act

    def forget() -> None:
        _in_child.pop(number, None)

    return forget


def require_not_forked(began_in: int) -> None:
    """End this process when it is a child that user code has forked since `began_in` and that came back from it.

    It would go on as a second engine, with the SQLite connections and the event loop of the first.
    """
    if generation != began_in:
        _end()


def _end() -> NoReturn:
    text = "craftcore: a forked child returned from its handler, and ends here. End it by os._exit in the handler\n"
    with suppress(OSError):
        os.write(2, text.encode())
    os._exit(LEFT_EARLY)


def _after_fork() -> None:
    global generation
    generation += 1
    acts = list(_in_child.values())
    _in_child.clear()
    for act in acts:
        try:
            act()
        except Exception as error:  # the others still have to be done, and nobody hears an exception here
            with suppress(OSError):
                os.write(2, f"craftcore: in a forked child: {error!r}\n".encode())


os.register_at_fork(after_in_child=_after_fork)
