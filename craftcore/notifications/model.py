"""Notifications and the rules that ask for them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple, TypeVar, get_args

from craftcore.serialization.display import shorten

T = TypeVar("T")

NotificationKind = Literal["question", "in_doubt", "dead", "failed", "schedule_missed", "succeeded", "unhealthy"]
KINDS: tuple[NotificationKind, ...] = get_args(NotificationKind)

FAILURES: tuple[NotificationKind, ...] = ("dead", "failed")
LINES_MAX = 50
"""How many notifications a digest lists; of the others it says the number."""
LINE_MAX = 150
"""Characters of a text in a digest: all of them fit in one payload, whatever they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """One event that a rule asked for.

    kind      question, in_doubt, dead, failed, schedule_missed, succeeded (of a schedule) or unhealthy
    id        of the question, trigger or schedule; unhealthy: empty
    workflow  of the work; None: it has none
    schedule  that made the work; None: none did
    text      one sentence for people
    command   the command that shows or answers it; None: there is none
    link      the page that answers it, for a question where `web.hosts` names one; None: there is none
    at        when it happened, epoch seconds
    """

    kind: NotificationKind
    id: str
    text: str
    at: float
    workflow: str | None = None
    schedule: str | None = None
    command: str | None = None
    link: str | None = None

    @property
    def line(self) -> str:
        """The text, with the command and the link where there are some. The link is last, where phones find its end."""
        command = f" ({self.command})" if self.command is not None else ""
        return f"{self.text}{command}" + (f" {self.link}" if self.link is not None else "")


class NotifiedWorkflow(NamedTuple):
    """A workflow that code declares to be run for notifications. `parameter`: the name of its argument."""

    parameter: str
    kinds: frozenset[NotificationKind]


class Work(NamedTuple):
    """The workflow and the payload of the trigger that notifies."""

    workflow: str
    payload: Mapping[str, Any]


Compose = Callable[[Sequence[Notification]], Work]


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyRule:
    """The events that are notified, and how. `workflows`: patterns, empty: all. `schedule`: only of its work.
    `digest`: more than that many at once become one trigger; None: never."""

    name: str
    kinds: frozenset[str]
    compose: Compose
    workflows: tuple[str, ...] = ()
    schedule: str | None = None
    digest: int | None = None

    def matches(self, notification: Notification) -> bool:
        """Return whether the rule asks for it. The health of the engine is of no workflow and no schedule."""
        if notification.kind == "unhealthy":
            return notification.kind in self.kinds
        if notification.kind not in self.kinds or self.schedule not in (None, notification.schedule):
            return False
        name = notification.workflow
        return not self.workflows or (name is not None and any(fnmatchcase(name, each) for each in self.workflows))

    def group(self, notices: Sequence[T]) -> list[Sequence[T]]:
        """Return what becomes one trigger, each."""
        if self.digest is not None and len(notices) > self.digest:
            return [notices]
        return [[one] for one in notices]


def subject_of(notifications: Sequence[Notification]) -> str:
    """Return the title of one or more notifications."""
    if len(notifications) > 1:
        return f"craftcore: {len(notifications):,} notifications"
    [one] = notifications
    about = one.workflow or one.schedule
    return f"craftcore: {one.kind.replace('_', ' ')}" + (f", {about}" if about else "")


def shorten_all(notifications: Sequence[Notification]) -> list[Notification]:
    """Return those that a message lists: one as it is; of more, the first ones with short texts."""
    if len(notifications) == 1:
        return list(notifications)
    return [replace(one, text=shorten(one.text, LINE_MAX)) for one in notifications[:LINES_MAX]]


def body_of(notifications: Sequence[Notification]) -> str:
    """Return the text of one or more notifications, one a line."""
    lines = [one.line for one in shorten_all(notifications)]
    left = len(notifications) - len(lines)
    return "\n".join([*lines, f"and {left:,} more: craftcore status"] if left else lines)


def document_of(notifications: Sequence[Notification]) -> dict[str, Any]:
    """Return the JSON document that a webhook and a command receive."""
    return {
        "subject": subject_of(notifications),
        "text": body_of(notifications),
        "count": len(notifications),
        "notifications": [_make_document(one) for one in shorten_all(notifications)],
    }


def _make_document(notification: Notification) -> dict[str, Any]:
    """Return a notification as JSON. It has a link only where there are pages."""
    document = asdict(notification)
    if notification.link is None:
        del document["link"]
    return document
