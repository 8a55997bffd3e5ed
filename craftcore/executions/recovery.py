"""Recommendations for an attempt that did not succeed, from its record. Pure.

The state that a crash leaves, by its moment:

    before   there is no record: nothing of it happened, and the trigger runs as if nothing had been
    during   the record is incomplete: its last event says how far it came, and this module what to do
    after    the record has its response, and replay returns it: nothing has to run again
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from craftcore.executions.model import Reason, Status
from craftcore.triggers.model import TriggerStatus

RUN = ("run", "MODULE:APP")
"""A daemon that does not know the app would end its work as CAPABILITY_NOT_FOUND: pasted as it is, this starts none."""


class State(StrEnum):
    """The state of an attempt; the first that applies."""

    COMPLETE = "complete"  # it has succeeded
    TRIED_AGAIN = "tried_again"  # a later attempt of its trigger counts
    WAITS = "waits"  # it ended as it should, and goes on later
    CANCELLING = "cancelling"  # somebody asked for its end
    RUNNING = "running"
    IN_DOUBT = "in_doubt"  # an irreversible action of its task has no end that anybody knows
    GONE = "gone"  # its trigger was removed
    INTERRUPTED = "interrupted"  # its daemon is gone, and no other has started
    PENDING = "pending"  # it runs again by itself
    DEAD = "dead"
    FAILED = "failed"
    OVER = "over"  # its trigger is DONE, and nothing goes on from it


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """An irreversible action with an unknown outcome. `has_intent`: it is being called, or its process died; else it is
    in doubt, undecided."""

    key: str
    action: str
    has_intent: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFacts:
    """The known facts of an attempt.

    ended_at         None: it runs, or ended with its process
    newest_id        the newest record of its trigger
    trigger_status   None: the row is gone
    cancel_asked     a cancel of its trigger was requested
    acts             the activities of its task whose outcome is unknown
    irreversible     how many irreversible calls its record has
    not_replayable   why its record cannot be replayed; None: it can, or it has not succeeded
    task_is_over     its task has ended
    """

    id: str
    status: Status
    ended_at: float | None
    error_code: str | None
    newest_id: str
    trigger_id: str
    task_id: str | None
    trigger_status: TriggerStatus | None
    trigger_reason: str | None
    cancel_asked: bool
    due_at: float | None
    now: float
    daemon_runs: bool
    acts: tuple[Act, ...] = ()
    irreversible: int = 0
    not_replayable: str | None = None
    task_is_over: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """The recommendation to an operator. `commands`: word by word, without the name of the program."""

    state: State
    text: str
    commands: tuple[tuple[str, ...], ...] = ()


def assess(facts: AttemptFacts) -> Recommendation:
    """Return the state of an attempt, and what to do about it."""
    state, ended = state_of(facts), _ended_text(facts)
    why = ("trigger", "why", facts.trigger_id)
    match state:
        case State.COMPLETE:
            return _complete(facts)
        case State.TRIED_AGAIN:
            text = f"its trigger was started again since: what counts is {facts.newest_id}"
            return Recommendation(state=state, text=text, commands=(("inspect", facts.newest_id),))
        case State.WAITS:
            return Recommendation(state=state, text="it ended as it should, and goes on later", commands=(_see(facts),))
        case State.GONE:
            text = f"trigger {facts.trigger_id} is not there any more: nothing runs it again"
            task = () if facts.task_id is None else (_see(facts),)
            return Recommendation(state=state, text=text, commands=task)
        case State.CANCELLING:
            text = "its cancellation was asked for: running code ends at its next await, "
            text += "and where its process died the next daemon settles it"
            return Recommendation(state=state, text=text, commands=(why,))
        case State.RUNNING:
            text = "a daemon has its trigger: it runs, or is about to"
            return Recommendation(state=state, text=text, commands=(why,))
        case State.IN_DOUBT:
            return _doubt_recommendation(facts)
        case State.INTERRUPTED:
            text = f"{ended}; the daemon that had its trigger is gone, and the next one runs it again by itself."
            return Recommendation(state=state, text=f"{text} {_safety(facts)}", commands=(RUN, _skip(facts)))
        case State.PENDING:
            text = f"{ended}; its trigger {_due_text(facts)} and runs it again by itself."
            return Recommendation(state=state, text=f"{text} {_safety(facts)}", commands=(_retry(facts), _skip(facts)))
        case State.DEAD:
            text = f"{ended}; its trigger is DEAD ({facts.trigger_reason}): a person decides."
            return Recommendation(state=state, text=f"{text} {_safety(facts)}", commands=(_retry(facts), _skip(facts)))
        case State.FAILED:
            text = f"{ended}; its trigger is FAILED ({facts.trigger_reason}): nothing runs it again by itself."
            return Recommendation(state=state, text=f"{text} {_safety(facts)}", commands=(_retry(facts),))
        case State.OVER:
            done = f"its trigger is DONE ({facts.trigger_reason})"
            since = "its task has ended since" if facts.task_is_over else done
            text = f"{ended}; {since}: there is nothing to decide of it"
            return Recommendation(state=state, text=text, commands=(_see(facts),))


def state_of(facts: AttemptFacts) -> State:
    """Return the first that holds."""
    if facts.status is Status.SUCCESS:
        return State.COMPLETE
    if facts.newest_id != facts.id:
        return State.TRIED_AGAIN
    if facts.status is Status.SUSPENDED and not facts.task_is_over:
        return State.WAITS
    claimed = facts.trigger_status is TriggerStatus.CLAIMED
    if claimed and facts.cancel_asked:
        return State.CANCELLING
    if claimed and facts.daemon_runs:
        return State.RUNNING
    if facts.acts:
        return State.IN_DOUBT
    match facts.trigger_status:
        case None:
            return State.GONE
        case TriggerStatus.CLAIMED:
            return State.INTERRUPTED
        case TriggerStatus.PENDING:
            return State.PENDING
        case TriggerStatus.DEAD:
            return State.DEAD
        case TriggerStatus.FAILED:
            return State.FAILED
        case TriggerStatus.DONE:
            return State.OVER


def _complete(facts: AttemptFacts) -> Recommendation:
    """Return the recommendation for an attempt that has succeeded: only its response may still be wanted."""
    command: tuple[str, ...] = ("replay", facts.id)
    if facts.not_replayable is None:
        text = "its response is on record, and nothing has to run again"
    elif facts.not_replayable == Reason.RECORD_CORRUPTED:
        text = "it succeeded, and nothing has to run again; but its record is not what was written"
        command = ("verify", facts.id)
    else:
        text = f"it succeeded, and nothing has to run again; its record cannot be replayed ({facts.not_replayable})"
        command = (*command, "--force")
    return Recommendation(state=State.COMPLETE, text=text, commands=(command,))


def _doubt_recommendation(facts: AttemptFacts) -> Recommendation:
    """Recommend that an operator resolves the act first; of a call that has no end, a daemon finds that it is in
    doubt."""
    act = facts.acts[0]
    more = f" (and {len(facts.acts) - 1} more)" if len(facts.acts) > 1 else ""
    if act.has_intent:
        text = f"{act.action}{more}, which cannot be taken back, was called and has no end on record: a daemon that "
        text += "starts puts it in doubt, as its policy says"
        commands: tuple[tuple[str, ...], ...] = (RUN, ("activity", "show", act.key))
        if facts.daemon_runs:
            text = f"{act.action}{more}, which cannot be taken back, is being called"
            commands = (("activity", "show", act.key),)
        return Recommendation(state=State.IN_DOUBT, text=text, commands=commands)
    text = f"unknown whether {act.action}{more} happened, which cannot be taken back: look there, and say it first"
    resolve = ("activity", "resolve", act.key)
    commands = tuple((*resolve, flag) for flag in ("--happened", "--resend", "--give-up"))
    return Recommendation(state=State.IN_DOUBT, text=text, commands=commands)


def _safety(facts: AttemptFacts) -> str:
    if facts.irreversible:
        return "Its irreversible actions have their outcome on record, and are not repeated"
    return "Nothing that is declared irreversible began in it: it is safe to run again"


def _ended_text(facts: AttemptFacts) -> str:
    if facts.status is Status.SUSPENDED:
        return "it ended as it should"
    if facts.status is Status.ERROR:
        return f"it failed with {facts.error_code}"
    return "its process died in it" if facts.ended_at is None else "it was handed back before its end"


def _due_text(facts: AttemptFacts) -> str:
    if facts.due_at is None or facts.due_at <= facts.now:
        return "is due"
    return f"is due at {datetime.fromtimestamp(facts.due_at, UTC).strftime('%Y-%m-%d %H:%M:%SZ')}"


def _retry(facts: AttemptFacts) -> tuple[str, ...]:
    return ("execution", "retry", facts.id, "--reason", "TEXT")


def _skip(facts: AttemptFacts) -> tuple[str, ...]:
    return ("execution", "skip", facts.id, "--reason", "TEXT")


def _see(facts: AttemptFacts) -> tuple[str, ...]:
    return ("trigger", "why", facts.trigger_id) if facts.task_id is None else ("task", "show", facts.task_id)
