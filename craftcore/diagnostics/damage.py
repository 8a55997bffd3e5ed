"""Why a reading failed in an unexpected place: a damaged row, or an error of craftcore itself."""

from __future__ import annotations

from craftcore.storage.database import Database
from craftcore.storage.integrity import row_fault

MAY_BE_DAMAGE = (
    ValueError,
    TypeError,
    ArithmeticError,
    RecursionError,
    LookupError,
    AttributeError,
    AssertionError,
    MemoryError,
)
"""The exceptions that a damaged row raises in unexpected places; bugs raise them as well."""


def find_damage(database: Database, error: Exception, within: float) -> str | None:
    """Return what is wrong with a row or a page, if that is why a reading failed. None when the file is sound, or too
    large to be read in time. A failure on a sound file is a bug."""
    if not isinstance(error, MAY_BE_DAMAGE):
        return None
    try:
        with database.reading(within=within, with_checks=True) as reader:
            return row_fault(reader)
    except Exception:
        return None
