"""The subjects and people of the operators' log: what belongs to a task, and who is meant by a name or a number."""

from __future__ import annotations

from craftcore.audit.listing_store import AuditListStore
from craftcore.errors import FilterInvalid
from craftcore.storage.transaction import Reader
from craftcore.tasks.question_store import QuestionStore

KEY_BEGINS = "activity:"
UID_MAX = 2**32 - 2


def list_parts(reader: Reader, task_id: str) -> list[str]:
    """Return the questions and irreversible actions of a task that an operator command changed."""
    log = AuditListStore()
    answered = [one for one in QuestionStore().ids_of(reader, task_id) if log.subjects_between(reader, one, one + "!")]
    return answered + log.subjects_between(reader, f"{KEY_BEGINS}{task_id}:", f"{KEY_BEGINS}{task_id};")


def parse_user(given: str) -> tuple[int | None, str | None]:
    """Return the user id, or the name, that a filter means. Raises FilterInvalid for a number that no user has."""
    if not (given.isascii() and given.isdigit()):
        return None, given
    if len(given) > 10 or int(given) > UID_MAX:
        raise FilterInvalid(f"by {given:.80} is not a user id: the largest is {UID_MAX}")
    return int(given), None
