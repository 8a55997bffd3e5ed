"""Exceptions with hostile attributes, and values that raise when they are encoded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import apsw

from craftcore.errors import InvalidInput, LeaseLost, StorageError, StorageFull


class OfNoKind(BaseException):
    """A BaseException that is not an Exception."""


class OfNoClass(Exception):
    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise OSError("no class")


class OfWrongClass(Exception):
    """An error that reports another class: a full disk."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return StorageFull


class OfNoTraceback(Exception):
    @property
    def __traceback__(self) -> Any:  # type: ignore[override]
        raise OSError("no traceback")


class Unspeakable(Exception):
    """An error whose methods raise SystemExit."""

    def _exit(self, *_: object) -> Any:
        raise SystemExit("not a word")

    __str__ = __repr__ = __bool__ = __eq__ = __hash__ = __format__ = __reduce_ex__ = _exit


class UnspeakableBase(BaseException):
    __str__ = __repr__ = __bool__ = __eq__ = __hash__ = Unspeakable._exit


class Boolless(StorageError):
    def __bool__(self) -> bool:
        raise OSError("neither")


class FullOfNothing(apsw.FullError):
    def __str__(self) -> str:
        raise OSError("no words")


class NoMessage(InvalidInput):
    def __init__(self) -> None: ...


class Nameless(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise OSError("no name")


class OfNoName(Exception, metaclass=Nameless):
    pass


class OwnGroup(ExceptionGroup[Exception]):
    @property
    def exceptions(self) -> Any:
        raise OSError("no exceptions")

    def split(self, *_: object) -> Any:
        raise OSError("it stays together")


def deep_group() -> BaseException:
    group: BaseException = OfNoKind("at the bottom")
    for _ in range(1_000):
        group = BaseExceptionGroup("one more", [group, ValueError("beside it")])
    return group


def long_chain() -> BaseException:
    error: BaseException = ValueError("the first")
    for _ in range(10_000):
        later = ValueError("and then")
        later.__cause__ = error
        error = later
    return error


def too_deep() -> BaseException:
    """Return an error whose traceback is as deep as the interpreter allows."""

    def down() -> None:
        down()

    try:
        down()
    except RecursionError as error:
        return error
    raise AssertionError


ERRORS: dict[str, Callable[[], BaseException]] = {
    "of no kind": lambda: OfNoKind("?"),
    "^C": KeyboardInterrupt,
    "exit": lambda: SystemExit(3),
    "closed": GeneratorExit,
    "stop": lambda: StopIteration(1),
    "async stop": StopAsyncIteration,
    "no class": OfNoClass,
    "wrong class": OfWrongClass,
    "no traceback": OfNoTraceback,
    "unspeakable": Unspeakable,
    "unspeakable base": UnspeakableBase,
    "no bool": lambda: Boolless("?"),
    "no name": OfNoName,
    "no message": NoMessage,
    "enormous": lambda: ValueError("é" * 10_000_000),
    "deep": too_deep,
    "deep group": deep_group,
    "own group": lambda: OwnGroup("own", [ValueError("a")]),
    "long chain": long_chain,
    "no memory": MemoryError,
    "full disk": lambda: StorageFull("says the author"),
    "storage": lambda: StorageError("says the author"),
    "lease": lambda: LeaseLost("says the author"),
    "SQLite's full disk": FullOfNothing,
    "SQLite's abort": lambda: apsw.AbortError("says the author"),
    "SQLite's busy": lambda: apsw.BusyError("says the author"),
    "SQLite's corruption": lambda: apsw.CorruptError("says the author"),
}
"""Errors that a user's function may raise."""
