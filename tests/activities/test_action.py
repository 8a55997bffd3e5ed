"""Declarations of actions: their defaults, terms and arguments, and refusals with a remedy."""

from __future__ import annotations

import email
import email.policy
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from craftcore import App, Call, OnUnknown
from craftcore.activities.model import ActionTerms
from craftcore.errors import ConfigInvalid, InvalidInput
from craftcore.registry.action import Action
from craftcore.registry.call import message_id

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


async def send(call: Call, *, to: str, body: str = "") -> str:
    return to


def declare(fn: Any = send, **options: Any) -> Action:
    return App().action("mail.send", **options)(fn)


def refusal(fn: Any = send, **options: Any) -> str:
    with pytest.raises(ConfigInvalid) as refused:
        declare(fn, **options)
    return refused.value.message


# Terms


def test_action_is_reversible_by_default_and_an_irreversible_action_asks_by_default():
    assert not declare().terms.irreversible
    assert declare(irreversible=True).terms == ActionTerms(
        irreversible=True, on_unknown=OnUnknown.ASK, idempotent_provider=False, timeout=60.0, settle_after=60.0
    )


def test_times_of_an_action_are_seconds_or_timedeltas_with_settle_after_as_timeout():
    terms = declare(
        irreversible=True,
        on_unknown="resend",
        idempotent_provider=True,
        idempotency_window=timedelta(days=1),
        timeout=timedelta(seconds=90),
    ).terms
    assert (terms.timeout, terms.settle_after, terms.idempotency_window) == (90.0, 90.0, 86_400.0)
    assert declare(irreversible=True, settle_after=5).terms.settle_after == 5


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"on_unknown": "resend"}, "on_unknown=RESEND repeats it, unless the provider drops a second call"),
        ({"idempotency_window": 3600}, "an idempotency_window is how long an idempotent_provider remembers"),
        (
            {"idempotent_provider": True, "idempotency_window": 60},
            "idempotency_window 60 must be longer than the timeout of 60 seconds",
        ),
        ({"idempotent_provider": True, "idempotency_window": float("nan")}, "must be longer than the timeout"),
        ({"idempotent_provider": True, "idempotency_window": -1}, "must be longer than the timeout"),
        ({"idempotent_provider": True, "idempotency_window": "soon"}, "idempotency_window 'soon' must be seconds"),
        ({"idempotent_provider": "no"}, "idempotent_provider 'no' must be True or False"),
        ({"on_unknown": "hope"}, "on_unknown 'hope' must be one of ask, resend, reconcile, assume_done"),
        ({"timeout": 0}, "timeout 0 must be more than 0 seconds, and at most a day"),
        ({"timeout": -1}, "timeout -1 must be more than 0"),
        ({"timeout": 86_401}, "at most a day"),
        ({"timeout": float("inf")}, "timeout inf must be"),
        ({"timeout": float("nan")}, "timeout nan must be"),
        ({"timeout": None}, "timeout None must be seconds, a timedelta, or text"),
        ({"timeout": True}, "timeout True must be seconds, a timedelta, or text"),
        ({"timeout": "soon"}, "timeout 'soon' must be seconds, a timedelta, or text"),
        ({"settle_after": -1}, "settle_after -1 must be 0 seconds or more"),
        ({"settle_after": "soon"}, "settle_after 'soon' must be seconds, a timedelta, or text"),
    ],
)
def test_invalid_terms_of_an_irreversible_action_are_refused(options, expected):
    message = refusal(irreversible=True, **options)
    assert message.startswith("action mail.send: ")
    assert expected in message


def test_mistakes_in_terms_are_all_reported_at_once():
    message = refusal(irreversible=True, on_unknown="resend", idempotency_window=1, timeout=0)
    assert [line.split(" ")[2] for line in message.splitlines()] == ["timeout", "on_unknown=RESEND", "an"]


@pytest.mark.parametrize(
    "option",
    [
        {"on_unknown": "ask"},
        {"idempotent_provider": True},
        {"idempotency_window": 3600},
        {"settle_after": 0},
    ],
)
def test_doubt_terms_are_refused_for_a_reversible_action(option):
    [name] = option
    assert refusal(**option) == f"action mail.send: {name} is for an irreversible action: say irreversible=True"


def test_action_name_is_valid_and_used_once():
    app = App()
    app.action("mail.send")(send)
    with pytest.raises(ConfigInvalid, match=r"action mail\.send is declared twice"):
        app.action("mail.send")(send)
    for name in ("", "two words", 'quo"te', "x" * 201, "new\nline"):
        with pytest.raises(ConfigInvalid, match="a name is 1 to 200 characters"):
            app.action(name)(send)
        with pytest.raises(ConfigInvalid, match="a name is 1 to 200 characters"):
            Action(name, send, ActionTerms())


def by_amount(arguments: Mapping[str, Any]) -> ActionTerms:
    return ActionTerms(irreversible=arguments["amount"] > 0, on_unknown=OnUnknown.RECONCILE)


def test_terms_of_a_call_may_depend_on_its_arguments():
    """A built-in action takes the behaviour of its provider from the configuration."""

    def pay(call: Call, *, amount: int) -> None: ...

    always = ActionTerms(on_unknown=OnUnknown.RECONCILE)
    depends, fixed = Action("pay", pay, always, terms_of=by_amount), Action("pay", pay, always)

    assert depends.terms_for({"amount": 0}) == ActionTerms(irreversible=False, on_unknown=OnUnknown.RECONCILE)
    assert depends.terms_for({"amount": 7}).irreversible
    assert fixed.terms_for({"amount": 0}) is fixed.terms is always


def test_action_with_terms_by_arguments_needs_no_reconcile():
    app = App()
    app.declare_action(Action("pay", send, ActionTerms(on_unknown=OnUnknown.RECONCILE), terms_of=by_amount))

    assert app.check_actions() == []


# Functions


def nothing() -> None: ...


def keyword_only(*, call: Call) -> None: ...


def generate(call: Call) -> Iterator[int]:
    yield 1


async def generate_later(call: Call) -> AsyncIterator[int]:
    yield 1


class Generator:
    def __call__(self, call: Call) -> Iterator[int]:
        yield 1


def positional_only(call: Call, to: str, /) -> None: ...


def variadic(call: Call, *to: str) -> None: ...


def with_key(call: Call, *, key: str) -> None: ...


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (nothing, "its first parameter is the call, as in `async def send(call, *, to: str)`"),
        (keyword_only, "its first parameter is the call"),
        (generate, "a generator cannot be an action; its body would never run"),
        (generate_later, "a generator cannot be an action"),
        (Generator(), "a generator cannot be an action"),
        (partial(generate), "a generator cannot be an action"),
        (positional_only, "parameter to cannot be given by name"),
        (variadic, "parameter to cannot be given by name"),
        (with_key, "no parameter may be called key, which ctx.act takes itself"),
    ],
)
def test_uncallable_function_is_refused_as_an_action(fn, expected):
    assert expected in refusal(fn)


def test_arguments_that_do_not_fit_are_refused_before_anything_is_written():
    action = declare()
    action.check({"to": "ada"})
    action.check({"to": "ada", "body": "hello"})
    with pytest.raises(InvalidInput, match=r"action mail\.send needs to$"):
        action.check({"body": "hello"})
    with pytest.raises(InvalidInput, match=r"action mail\.send takes to, body; it was given cc$"):
        action.check({"to": "ada", "cc": "bob"})


def test_argument_cannot_have_the_name_of_the_call_parameter():
    async def anything(request: Call, **fields: Any) -> None: ...

    async def take_by_position(request: Call, /, **fields: Any) -> None: ...

    declare(anything).check({"amount": 7, "currency": "EUR"})
    declare(take_by_position).check({"request": 7})
    with pytest.raises(InvalidInput, match="request is its name for the call"):
        declare(anything).check({"request": 7})


def test_action_can_still_be_called_as_a_function():
    def double(call: Call, *, amount: int) -> int:
        return 2 * amount

    call = Call(key="activity:t:1.1", attempt=1, deadline=NOON)
    assert declare(double)(call, amount=3) == 6


def test_result_class_may_be_declared_below_its_action():
    def pay(call: Call) -> Receipt:
        raise AssertionError("only its signature is read")

    action = declare(pay)

    @dataclass
    class Receipt:
        amount: int

    pay.__globals__["Receipt"] = Receipt
    try:
        assert action.result_type is Receipt
    finally:
        del pay.__globals__["Receipt"]


# Reconcile


def refuse_reconcile(fn: Any, **options: Any) -> str:
    action = declare(**{"irreversible": True, "on_unknown": "reconcile", **options})
    with pytest.raises(ConfigInvalid) as refused:
        action.reconcile(fn)
    return refused.value.message


async def reconcile_all(call: Call, *, to: str, body: str = "") -> None: ...


async def reconcile_without_body(call: Call, *, to: str) -> None: ...


async def reconcile_with_account(call: Call, *, to: str, body: str, account: str) -> None: ...


async def reconcile_any(call: Call, **arguments: Any) -> None: ...


def test_reconcile_takes_the_arguments_of_the_action():
    for fn in (reconcile_all, reconcile_any):
        action = declare(irreversible=True, on_unknown="reconcile")
        assert action.reconcile(fn) is fn
        assert action.reconciler is fn
    assert (
        refuse_reconcile(reconcile_without_body)
        == "reconcile of action mail.send: it takes no body, which the action does"
    )
    assert "it needs account, which that does not take" in refuse_reconcile(reconcile_with_account)
    assert "its first parameter is the call" in refuse_reconcile(nothing)
    assert "a generator cannot be an action" in refuse_reconcile(generate)


def test_reconcile_is_declared_once_and_only_for_irreversible_actions():
    action = declare(irreversible=True, on_unknown="reconcile")
    action.reconcile(reconcile_all)
    with pytest.raises(ConfigInvalid, match="reconcile is declared twice"):
        action.reconcile(reconcile_all)
    asking = declare(irreversible=True, on_unknown="ask")
    assert asking.reconcile(reconcile_all) is reconcile_all  # the question to a person shows the answer of the provider
    with pytest.raises(ConfigInvalid, match="only an irreversible action can be in doubt"):
        declare().reconcile(reconcile_all)


@pytest.mark.anyio
async def test_app_with_a_missing_reconcile_does_not_run(tmp_path):
    app = App()
    action = app.action("mail.send", irreversible=True, on_unknown=OnUnknown.RECONCILE)(send)
    with pytest.raises(ConfigInvalid, match=r"action mail\.send: on_unknown=RECONCILE, and no reconcile"):
        async with app.running(tmp_path / "agent.db"):
            pass
    action.reconcile(reconcile_all)
    async with app.running(tmp_path / "agent.db"):
        pass


# The call


def a_call(key: str = "activity:0199:1.1") -> Call:
    return Call(key=key, attempt=1, deadline=NOON)


@pytest.mark.parametrize("key", ["activity:0199:1.1", "activity:" + "t" * 200 + ":" + "k" * 200, "activity:a@b:c+d@e"])
def test_message_id_of_a_call_is_valid_for_mail_programs(key):
    """RFC 5322, 3.6.4: dot-atoms on both sides of the @, and a header line within 998 characters."""
    message = email.message_from_string(f"Message-ID: {a_call(key).message_id}\n\nhello", policy=email.policy.default)
    header = message["Message-ID"]
    assert header.defects == ()
    assert str(header) == a_call(key).message_id
    assert len(header) < 78
    local, _, domain = a_call(key).message_id[1:-1].partition("@")
    assert all(part.isalnum() for side in (local, domain) for part in side.split("."))


def test_message_id_depends_only_on_the_key():
    keys = [f"activity:t:1.{n}" for n in range(100)]
    assert len({a_call(key).message_id for key in keys}) == 100
    assert a_call(keys[0]).message_id == replace(a_call(keys[0]), attempt=9).message_id
    assert message_id(keys[0], "example.org").endswith("@example.org>")


def test_headers_of_a_call_carry_the_key():
    assert a_call().headers == {"Idempotency-Key": "activity:0199:1.1"}
