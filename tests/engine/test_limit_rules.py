"""Rules of concurrency and rate limits as pure functions, in any order of claims, starts and ends."""

from __future__ import annotations

import math
import re
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from craftcore import App, Rate, TaskContext
from craftcore.engine.limits.key_limits import KeyLimits
from craftcore.engine.limits.workflow_limits import Limits
from craftcore.errors import ConfigInvalid
from craftcore.triggers.claim_candidate_store import Budget
from craftcore.triggers.limit_keys import KeyAnswer, LimitKey
from craftcore.triggers.model import Claim


async def work() -> None: ...


def build_limits(**workflows: dict[str, Any]) -> Limits:
    app = App()
    for name, options in workflows.items():
        app.declare(name, work, **options)
    return Limits(app.workflows.values(), app.by_source)


def build_claim(seq: int, workflow: str | None = "mail", source: str = "IMMEDIATE") -> Claim:
    fields: dict[str, Any] = dict.fromkeys(Claim._fields)
    return Claim(**{**fields, "seq": seq, "lease_token": f"1-{seq}", "workflow": workflow, "source": source})


class Model:
    """A model of an engine that claims every trigger the budget permits, and records each start."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.now = 1_000.0
        self.waiting: list[Claim] = []
        self.running: list[Claim] = []
        self.started: list[tuple[str, float]] = []
        self._seq = 0

    @property
    def held(self) -> list[Claim]:
        return self.waiting + self.running

    def look(self, most: int = 10**6) -> int:
        """Claim up to `most` triggers within the budget and return the number of claims."""
        budget = self.limits.budget(self.held, self.running, self.now)
        assert budget is not None
        claimed = 0
        for name, places in budget.places.items():
            for _ in range(min(places, most - claimed)):
                self._seq += 1
                self.waiting.append(build_claim(self._seq, name))
                claimed += 1
        return claimed

    def start(self, count: int) -> None:
        begun, self.waiting = self.waiting[:count], self.waiting[count:]
        self.running += begun
        self.limits.note_started(begun, self.now)
        self.started += [(claim.workflow or "", self.now) for claim in begun]

    def end(self, count: int) -> None:
        self.running = self.running[count:]

    def refuse(self, count: int) -> None:
        self.waiting = self.waiting[count:]

    def next_token(self) -> float:
        return self.limits.next_token(self.held, self.running)


def max_in_span(moments: list[float], seconds: float) -> int:
    """Return the largest number of times within any half-open span of the given seconds."""
    return max((sum(first <= at < first + seconds for at in moments) for first in moments), default=0)


COUNTS = st.integers(0, 7)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("look"), COUNTS),
        st.tuples(st.just("start"), COUNTS),
        st.tuples(st.just("end"), COUNTS),
        st.tuples(st.just("refuse"), st.integers(0, 2)),
        st.tuples(st.just("pass"), st.sampled_from([0.25, 1.0, 3.0, 9.75, 10.0, 40.0])),
    ),
    max_size=80,
)


@settings(max_examples=100)
@given(steps=STEPS, count=st.integers(1, 5), per=st.sampled_from([0.25, 1.0, 10.0, 33.5]), most=st.integers(1, 4))
def test_limits_are_never_exceeded_in_any_order_of_claims_starts_and_ends(steps, count, per, most):
    rate = Rate(count, per=per)
    model = Model(
        build_limits(mail={"rate": rate}, fetch={"concurrency": most}, both={"concurrency": most, "rate": rate})
    )

    for step, value in steps:
        if step == "pass":
            model.now += value
        else:
            getattr(model, step)(value)
        claimed = Counter(claim.workflow for claim in model.held)
        assert max(claimed["fetch"], claimed["both"]) <= most

    for name in ("mail", "both"):
        assert max_in_span([at for started, at in model.started if started == name], per) <= count


@settings(max_examples=100)  # with fifty examples no claim waits when its token returns
@given(steps=STEPS, count=st.integers(1, 5))
def test_next_token_time_after_a_poll_is_exact_or_pending_on_a_start(steps, count):
    """The engine does not poll in between, so it must wait until the exact time at which a token returns."""
    model = Model(build_limits(mail={"rate": Rate(count, per=10)}))
    for step, value in steps:
        if step == "pass":
            model.now += value
        else:
            getattr(model, step)(value)
    model.look()

    moment = model.next_token()

    if moment == math.inf:
        assert len(model.waiting) >= count, "every token is reserved for a claim that has not started"
        return
    assert moment > model.now
    model.now = math.nextafter(moment, 0)
    assert model.look() == 0
    model.now = moment
    assert model.look() > 0


def test_rate_token_returned_since_the_last_poll_is_still_awaited():
    """The token returned during a long poll, which offered it to no trigger."""
    model = Model(build_limits(mail={"rate": Rate(1, per=10)}))
    model.look()
    model.start(1)
    model.look()
    model.now += 20

    assert model.next_token() == 1_010.0
    assert model.look() == 1


def test_rate_tokens_return_singly_in_the_order_of_the_starts():
    model = Model(build_limits(mail={"rate": Rate(3, per=60)}))
    for _ in range(3):
        model.look(1)
        model.start(1)
        model.now += 20

    assert model.look() == 1
    model.start(1)
    model.now += 19.5
    assert model.look() == 0
    model.now += 0.5
    assert model.look() == 1


def test_claim_before_the_start_keeps_the_rate_token_until_refused():
    model = Model(build_limits(mail={"rate": Rate(2, per=10)}))
    assert model.look() == 2

    model.now += 1_000
    assert model.look() == 0
    model.refuse(1)
    assert model.look() == 1


def test_ended_attempt_frees_the_place_and_not_the_rate_token():
    model = Model(build_limits(mail={"concurrency": 2, "rate": Rate(3, per=10)}))
    model.look()
    model.start(2)
    model.end(2)

    assert model.look() == 1


def test_trigger_counts_for_the_named_workflow_or_else_that_of_the_source():
    limits = build_limits(mail={"concurrency": 1, "sources": ["MESSAGE"]}, free={"sources": ["MEMORY"]})

    assert limits.workflow_of(build_claim(1, "mail")) == "mail"
    assert limits.workflow_of(build_claim(1, None, "MESSAGE")) == "mail"
    assert limits.workflow_of(build_claim(1, "free", "MESSAGE")) is None
    assert limits.workflow_of(build_claim(1, None, "MEMORY")) is None
    assert limits.workflow_of(build_claim(1, None, "PROACTIVE")) is None
    assert [limits.is_limited(name) for name in ("mail", "free", "unknown", None)] == [True, False, False, False]


def test_limits_without_a_limited_workflow_have_no_budget_and_no_token():
    limits = build_limits(free={})

    assert not limits
    assert limits.budget([build_claim(1, "free")], [], 0.0) is None
    assert limits.next_token([], []) == math.inf


def test_remembered_starts_count_newest_first_in_any_order_given():
    limits = build_limits(mail={"rate": Rate(2, per=10)}, free={})
    limits.remember([("mail", 3.0), ("mail", 1.0), ("free", 4.0), ("mail", 2.0)])

    assert limits.budget([], [], 11.5) == Budget({"mail": 0}, {})
    assert limits.next_token([], []) == 12.0
    assert limits.budget([], [], 12.0) == Budget({"mail": 1}, {})


# Declarations


@pytest.mark.parametrize("per", [60, 0.5, timedelta(minutes=1), timedelta(days=366)])
def test_rate_accepts_seconds_and_timedeltas(per):
    assert Rate(10, per=per).seconds == (per.total_seconds() if isinstance(per, timedelta) else per)


@pytest.mark.parametrize("count", [0, -1, True, 1.0, 10_001, "10", None, math.nan])
def test_rate_with_an_invalid_count_is_refused(count):
    with pytest.raises(ConfigInvalid, match=r"^rate: count .* must be a whole number from 1 to 10000$"):
        Rate(count, per=60)


@pytest.mark.parametrize(
    "per", [0, -1, 0.0, math.nan, math.inf, 10**400, timedelta(0), timedelta(-1), timedelta.max], ids=repr
)
def test_rate_with_a_period_out_of_bounds_is_refused(per):
    with pytest.raises(ConfigInvalid, match=r"^rate: per .* must be more than 0 and at most 31622400 seconds$"):
        Rate(10, per=per)


@pytest.mark.parametrize("per", [True, None, [60]])
def test_rate_with_a_period_of_another_type_is_refused(per):
    with pytest.raises(
        ConfigInvalid, match=rf"^rate: per {re.escape(repr(per))} must be seconds, a timedelta, or text"
    ):
        Rate(10, per=per)


def test_rate_takes_its_period_as_text():
    assert Rate(10, per="1m").seconds == 60
    with pytest.raises(ConfigInvalid, match="rate: per 'often' must be seconds, a timedelta, or text like"):
        Rate(10, per="often")


@pytest.mark.parametrize("concurrency", [0, -1, True, 1.0, 1001, "2", math.nan])
def test_workflow_with_an_invalid_concurrency_is_refused(concurrency):
    with pytest.raises(ConfigInvalid, match=r"^workflow mail: concurrency .* must be a whole number from 1 to 1000$"):
        App().declare("mail", work, concurrency=concurrency)


@pytest.mark.parametrize("rate", [10, "10/m", (10, 60), Rate])
def test_workflow_with_a_rate_of_another_type_is_refused(rate):
    with pytest.raises(ConfigInvalid, match=r"^workflow mail: rate .* must be a Rate, as in Rate\(10, per=60\)$"):
        App().declare("mail", work, rate=rate)


@pytest.mark.parametrize("limit_by", ["", "a b", "a.b", 7, ("to",), "1st"])
def test_limit_key_with_an_invalid_name_is_refused(limit_by):
    with pytest.raises(ConfigInvalid, match=r"^workflow mail: limit_by .* must be the name of a parameter, or"):
        App().declare("mail", work, concurrency=1, limit_by=limit_by)


def test_limit_key_without_a_limit_is_refused():
    with pytest.raises(ConfigInvalid, match=r"^workflow mail: limit_by .*; give concurrency or rate with it$"):
        App().declare("mail", work, limit_by="session_id")


async def to_one(ctx: TaskContext, to: str) -> None: ...


async def to_any(**rest: Any) -> None: ...


@pytest.mark.parametrize("limit_by", ["customer", "ctx"])
def test_limit_key_that_the_function_does_not_take_is_refused(limit_by):
    with pytest.raises(ConfigInvalid, match=rf"^workflow mail: limit_by '{limit_by}' must be a parameter of it, or"):
        App().declare("mail", to_one, rate=Rate(1, per=1), limit_by=limit_by)


@pytest.mark.parametrize(("fn", "limit_by"), [(to_one, "to"), (to_one, "session_id"), (to_any, "customer")])
def test_limit_key_may_be_a_parameter_or_the_session(fn, limit_by):
    assert App().declare("mail", fn, rate=Rate(1, per=1), limit_by=limit_by).limit_by == limit_by


# Limits by key

KEY = LimitKey("mail", '"a"')


def build_keyed_limits() -> KeyLimits:
    return build_limits(mail={"rate": Rate(2, per=10), "limit_by": "session_id"}).keys


def test_remembered_starts_of_a_key_count_newest_first_in_any_order_given():
    keys = build_keyed_limits()
    keys.remember([(KEY, 3.0), (KEY, 1.0), (KEY, 2.0)])

    request = keys.begin_look([], [], 12.5)

    assert request is not None
    assert request.use.places(KEY) == 1


def test_token_of_a_key_returns_later_while_a_claim_waits():
    keys, claim = build_keyed_limits(), build_claim(1)
    keys.remember([(KEY, 1.0)])
    keys.begin_look([], [], 2.0)
    answer = KeyAnswer({(claim.seq, claim.lease_token): KEY}, frozenset([KEY]), frozenset(), None)
    keys.end_look(answer, [claim], [])

    assert keys.next_token([claim], []) == 11.0
