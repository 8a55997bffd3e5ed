"""The rule that turns notices into triggers: each notice once for each rule that asks for it, in one commit.

A trigger that notifies makes no notice of its end: its key begins with `notify:`. A question or a doubt in it is
notified unless its rule asks for those: so it cannot lead to itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from craftcore.errors import InvalidInput
from craftcore.log import get_logger
from craftcore.notifications.model import Notification, NotifyRule
from craftcore.notifications.notice_store import Notice, NoticeStore
from craftcore.serialization.display import shorten
from craftcore.serialization.plurals import format_count
from craftcore.serialization.time_text import clock_time
from craftcore.storage.facts import delete_fact, set_fact
from craftcore.storage.restored_work import RestoredWork
from craftcore.storage.transaction import Row, Transaction, get_single_result
from craftcore.triggers.model import DedupScope, TriggerSource, TriggerSpec
from craftcore.triggers.service import TriggerService
from craftcore.triggers.settlement import EXPECTED
from craftcore.triggers.sources import NOTIFY, is_delivery_key, notify_key

log = get_logger(__name__)

QUESTIONS = frozenset(("question", "in_doubt"))

ENDS = frozenset(("dead", "failed", "succeeded"))

UNHEALTHY = "unhealthy"
"""The kind of a trouble of the engine, and the fact that holds the trouble that was noted last."""

BATCH = 500
"""How many notices one commit handles."""

TEXT_MAX = 1_000
"""Characters of a question, its options or an error that a notification has."""


class NotificationService:
    """Notify by the rules. Each method is a rule over a transaction it is given. `link_of`: the page of a question.
    `restored`: what an engine knows of work from before a restore."""

    def __init__(
        self,
        triggers: TriggerService,
        rules: Sequence[NotifyRule],
        link_of: Callable[[str], str | None] = lambda question: None,
        restored: RestoredWork | None = None,
    ) -> None:
        self._triggers = triggers
        self._rules = rules
        self._link_of = link_of
        self._restored = restored or RestoredWork()
        self._notices = NoticeStore()

    @property
    def kinds(self) -> Collection[str]:
        """The kinds that a rule asks for."""
        return frozenset[str]().union(*(rule.kinds for rule in self._rules))

    def declare(self, tx: Transaction) -> None:
        """Note events of the kinds of the rules from now on, and of no other."""
        self._notices.declare_kinds(tx, self.kinds)

    def notify(self, tx: Transaction) -> int:
        """Emit a trigger for each new notice and rule that asks for it; how many notices there were."""
        if not (notices := self._notices.list_new(tx, BATCH)):
            return 0
        found = [(notice.seq, one) for notice in notices if (one := self._try_describe(tx, notice)) is not None]
        for rule in self._rules:
            for group in rule.group([(seq, one) for seq, one in found if rule.matches(one)]):
                self._emit(tx, rule, group[0][0], [one for _, one in group])
        self._notices.close_until(tx, notices[-1].seq)
        return len(notices)

    def skip_damaged(self, tx: Transaction) -> None:
        """Skip all notices, where one of them or of its rows cannot be read."""
        self._notices.close_all(tx)

    def note_trouble(self, tx: Transaction, trouble: str | None, text: str) -> None:
        """Note by this text that the engine has a trouble; None: that it has none any more."""
        if trouble:
            set_fact(tx, UNHEALTHY, trouble)
        else:
            delete_fact(tx, UNHEALTHY)
        if UNHEALTHY in self.kinds:
            self._notices.add(tx, UNHEALTHY, text)

    def _emit(self, tx: Transaction, rule: NotifyRule, seq: int, group: Sequence[Notification]) -> None:
        """Emit the trigger of a rule. One that is refused is logged: it must not keep the others from being sent."""
        work = rule.compose(group)
        spec = TriggerSpec(
            workflow=work.workflow,
            payload=work.payload,
            source=TriggerSource.SYSTEM,
            dedup_key=notify_key(rule.name, seq),
            dedup_scope=DedupScope.ACTIVE,  # its task has the key, too. No notice is handled twice
            description=f"notification {rule.name}",
        )
        try:
            emitted = get_single_result(self._triggers.emit_all(tx, [self._triggers.accept(spec)]))
        except InvalidInput as error:
            tx.after_commit(log.error, "notification.refused", rule=rule.name, reason=error.message)
            return
        if not is_delivery_key(spec.dedup_key) and self._restored.is_possible(tx):
            self._mark_handler(tx, emitted.id, group)

    def _mark_handler(self, tx: Transaction, made_id: str, group: Sequence[Notification]) -> None:
        """Mark what handles an end of work that may have ended so before a restore. People hear of
        each question."""
        for one in group:
            if one.kind in ENDS and (row := self._notices.trigger(tx, one.id)) is not None:
                self._restored.mark(tx, row["task_id"], made_id)

    def _try_describe(self, tx: Transaction, notice: Notice) -> Notification | None:
        """Return what `_describe` does; None for a notice of a damaged row, which is logged."""
        try:
            return self._describe(tx, notice)
        except (ValueError, TypeError) as error:  # text that is not UTF-8 is a ValueError, too
            tx.after_commit(log.error, "notification.damaged", notice=notice.seq, reason=f"{error!s:.200}")
            return None

    def _describe(self, tx: Transaction, notice: Notice) -> Notification | None:
        """Return the notification of a notice. None: it is about a notification, its row is gone, or a person has
        nothing to do about it any more."""
        match notice.kind:
            case "question" | "in_doubt":
                row = self._notices.question(tx, notice.subject)
                is_open = row is not None and row["status"] == "OPEN"
                return self._question(notice, row) if row and is_open and not self._is_circular(tx, row) else None
            case "dead" | "failed" | "succeeded":
                row = self._notices.trigger(tx, notice.subject)
                is_so = row is not None and (notice.kind == "succeeded" or row["status"] == notice.kind.upper())
                if row and notice.kind == "failed" and row["reason"] not in (row["error_code"], EXPECTED):
                    return None  # it was discarded
                if row and is_so and row["reason"] == EXPECTED:
                    if row["schedule_id"] is None:
                        return None
                    notice = notice._replace(kind="succeeded")  # it ran, and that is what a ping reports
                return _end(notice, row) if row and is_so and not self._is_own(tx, row) else None
            case "schedule_missed":
                row = self._notices.occurrence(tx, notice.subject)
                return None if row is None else _miss(notice, row)
            case _:
                return Notification(
                    kind="unhealthy", id="", text=notice.subject, at=notice.at, command="craftcore status"
                )

    def _question(self, notice: Notice, row: Row) -> Notification:
        options = json.loads(row["options_json"] or "[]")
        choices = f" [{', '.join(map(str, options))}]" if options else ""
        text = f"{row['workflow']} asks: {row['question'][:TEXT_MAX]}{shorten(choices, TEXT_MAX)}"
        return replace(_make_notification(notice, row, text, "inbox answer"), link=self._link_of(row["id"]))

    def _is_own(self, tx: Transaction, row: Row) -> bool:
        """Return whether it is about the work of a notification, or of a child of that."""
        return bool(self._notices.list_creator_keys(tx, row["task_id"], NOTIFY))

    def _is_circular(self, tx: Transaction, row: Row) -> bool:
        """Return whether a question is of the work of a rule that questions themselves begin."""
        keys = self._notices.list_creator_keys(tx, row["task_id"], NOTIFY)
        begun_by = {key.removeprefix(NOTIFY).rpartition(":")[0] for key in keys}
        return any(rule.name in begun_by and rule.kinds & QUESTIONS for rule in self._rules)


def _end(notice: Notice, row: Row) -> Notification:
    """Return the end of a trigger or of scheduled work."""
    name = row["workflow"] or "trigger"
    why = ": ".join(filter(None, (row["error_code"], (row["error_message"] or "")[:TEXT_MAX]))) or row["reason"]
    match notice.kind:
        case "dead":
            text = f"{name} is a dead letter after {format_count(row['attempts'], 'attempt')}: {why}"
        case "failed":
            text = f"{name} has failed: {why}"
        case _:
            ended = f"ended as expected: {why}" if row["reason"] == EXPECTED else "succeeded"
            text = f"{name} of schedule {row['schedule_id']} has {ended}"
    return _make_notification(notice, row, text, "trigger why")


def _miss(notice: Notice, row: Row) -> Notification:
    times = clock_time(row["nominal_at"])
    if row["count"] > 1:
        times = f"from {times} to {clock_time(row['last_at'])}"
    text = f"schedule {row['id']} has missed {format_count(row['count'], 'occurrence')}, {times}: {row['reason']}"
    return _make_notification(notice, row, text, "schedule history")


def _make_notification(notice: Notice, row: Row, text: str, command: str) -> Notification:
    """Return the notification about a row. `command` takes its id."""
    return Notification(
        kind=notice.kind,
        id=row["id"],
        workflow=row["workflow"],
        schedule=row["schedule_id"],
        text=text,
        command=f"craftcore {command} {row['id']}",
        at=notice.at,
    )
