"""The person of a request: logins and their ages, the link, wrong tokens and proxies."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from craftcore.config.web_people import WebPerson
from craftcore.config.web_settings import WebSettings
from craftcore.web.notices import SECONDS, Notices
from craftcore.web.people import (
    IDLE_SECONDS,
    LIFE_SECONDS,
    LINK_SECONDS,
    WRONG_IN_ALL,
    WRONG_SECONDS,
    People,
    TooManyTries,
)
from craftcore.web.request_gate import list_cookies
from craftcore.web.request_rules import Headers, Refusal, judge_host, judge_method, judge_proxy

ADA = WebPerson(name="ada", token="env:ADA", may="act")
BOB = WebPerson(name="bob", token="env:BOB")
SETTINGS = WebSettings(person=(ADA, BOB))


class Hours:
    """A monotonic clock that the test sets."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Hours()


def make_people(clock, settings=SETTINGS, *, read_only=False):
    return People(settings, lambda reference: f"token of {reference}", clock, read_only=read_only)


def test_login_ends_after_12_idle_hours_and_after_7_days(clock):
    people = make_people(clock)
    used, idle = people.log_in(ADA), people.log_in(BOB)
    began = clock.now
    while clock.now + IDLE_SECONDS <= began + LIFE_SECONDS:
        clock.now += IDLE_SECONDS
        assert people.find_login(used) == ADA
    assert people.find_login(idle) is None

    clock.now = began + LIFE_SECONDS + 1

    assert people.find_login(used) is None


def test_link_logs_in_once_within_5_minutes(clock):
    people = make_people(clock)
    late = people.make_link("ada")
    clock.now += LINK_SECONDS + 1
    assert people.use_link(late) is None
    link = people.make_link("ada")

    assert people.use_link(link[:-1]) is people.use_link("") is people.use_link(late) is None
    assert people.use_link(link) == WebPerson(name="ada", may="act")
    assert people.use_link(link) is None


def test_30_wrong_tokens_of_any_name_block_the_logins_of_a_minute(clock):
    people = make_people(clock)
    for number in range(WRONG_IN_ALL):
        assert people.check_token(f"name {number}", "wrong") is None
    with pytest.raises(TooManyTries):
        people.check_token("ada", "token of env:ADA")

    clock.now += WRONG_SECONDS + 1

    assert people.check_token("ada", "token of env:ADA") == ADA


def test_read_only_page_lets_all_people_look(clock):
    people = make_people(clock, read_only=True)

    assert people.check_token("ada", "token of env:ADA") == WebPerson(name="ada", token="env:ADA", may="look")
    link = people.use_link(people.make_link("ada"))
    assert link is not None
    assert link.may == "look"


def headers(*lines: tuple[str, str]) -> Headers:
    return Headers([(name.encode("latin-1"), value.encode("latin-1")) for name, value in lines])


USER, SECRET = ("Remote-User", "ada"), ("X-Craftcore-Proxy", "sesame")


@pytest.mark.parametrize(
    ("lines", "on_port", "secret", "found"),
    [
        ([USER], False, None, "ada"),
        ([USER], True, None, 403),
        ([USER], True, "sesame", 403),
        ([USER, SECRET], True, "sesame", "ada"),
        ([USER, SECRET], False, "sesame", "ada"),
        ([USER], False, "sesame", 403),
        ([USER, ("X-Craftcore-Proxy", "sesam")], True, "sesame", 403),
        ([USER, SECRET, SECRET], True, "sesame", 403),
        ([USER, ("X-Craftcore-Proxy", "")], True, "sesame", 403),
        ([USER, USER], False, None, 403),
        ([("Remote-User", "")], False, None, 403),
        ([SECRET], True, "sesame", None),
        ([], True, "sesame", None),
    ],
)
def test_user_of_a_proxy_is_accepted_only_from_the_proxy(lines, on_port, secret, found):
    judged = judge_proxy(headers(*lines), trusted_header="Remote-User", trusted_secret=secret, on_port=on_port)

    assert (judged.status if isinstance(judged, Refusal) else judged) == found


def test_header_that_is_not_trusted_names_no_user():
    assert judge_proxy(headers(USER), trusted_header="", trusted_secret=None, on_port=False) is None


@pytest.mark.parametrize(("unknown", "may"), [("refuse", None), ("look", "look")])
def test_unlisted_user_may_look_at_most(clock, unknown, may):
    people = make_people(clock, WebSettings(person=(ADA,), trusted_header="Remote-User", unknown_users=unknown))

    person = people.find_proxy_user("eve@example.org")
    assert (None if person is None else person.may) == may
    assert person is None or not person.in_doubt
    assert people.find_proxy_user("ada") == ADA
    assert people.find_proxy_user("<b>") is None


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.sampled_from(["host", "origin", "sec-fetch-site", "cookie", "x"]), st.binary(max_size=40)))
)
def test_any_header_is_checked_without_an_error(lines):
    given_headers = Headers([(name.encode(), value) for name, value in lines])

    judge_host(given_headers, ["page.example"])
    judge_method("POST", given_headers)
    list_cookies(given_headers, "x")


def test_notice_is_shown_once_and_within_a_minute(clock):
    notices = Notices(clock)
    first, second = notices.add("done"), notices.add("late")

    assert (notices.take(first), notices.take(first), notices.take("x"), notices.take(None)) == ("done", "", "", "")
    clock.now += SECONDS + 1
    assert notices.take(second) == ""
