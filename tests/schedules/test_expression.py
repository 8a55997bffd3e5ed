"""Expressions of times: exact meaning, and refusal of ambiguous or invalid text with a remedy."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from craftcore.clock import YEAR_10000
from craftcore.errors import ScheduleInvalid
from craftcore.schedules.recurrence.expression import FORMS, MAX_CHARACTERS, check_zone, parse
from craftcore.schedules.recurrence.occurrences import next_occurrence
from craftcore.schedules.recurrence.timing import Cron, Every, Once, Startup, Timing

BERLIN = "Europe/Berlin"


def utc(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


NOW = utc("2026-06-10 12:34:56.5")
"""Wednesday, 14:34:56.5 in Berlin."""

NOW_WHOLE = int(NOW)
"""Intervals are anchored at a whole second."""


def read(text: str, *, now: float = NOW, timezone: str = BERLIN, **flags: bool) -> Timing:
    return parse(text, now=now, timezone=timezone, **flags).timing


ONE_TIME = {
    "immediate": NOW,
    "now": NOW,
    "in 10m": NOW + 600,
    "in 10 m": NOW + 600,
    "in 10 minutes": NOW + 600,
    "in 1 min": NOW + 60,
    "in 90 mins": NOW + 5400,
    "in 2 hours": NOW + 7200,
    "in 2 hr": NOW + 7200,
    "in 2hrs": NOW + 7200,
    "in 1h30m": NOW + 5400,
    "in 1h 30m": NOW + 5400,
    "in 1h, 30m": NOW + 5400,
    "in 1 hour 30 minutes": NOW + 5400,
    "in 1 hour and 30 minutes": NOW + 5400,
    "in 1 hour, 30 minutes, and 5 seconds": NOW + 5405,
    "in 1.5h": NOW + 5400,
    "in 0.5s": NOW + 0.5,
    "in 45 sec": NOW + 45,
    "in 45secs": NOW + 45,
    "in 1 second": NOW + 1,
    "in 3 days": NOW + 3 * 86_400,
    "in 1d": NOW + 86_400,
    "in 2w1d2h3m4s": NOW + 15 * 86_400 + 7384,
    "in 1 week": NOW + 7 * 86_400,
    "at 3pm": utc("2026-06-10 13:00"),
    "at 3 pm": utc("2026-06-10 13:00"),
    "at 03pm": utc("2026-06-10 13:00"),
    "at 3:30pm": utc("2026-06-10 13:30"),
    "at 3:30 PM today": utc("2026-06-10 13:30"),
    "at 15:30": utc("2026-06-10 13:30"),
    "at 15:30 tomorrow": utc("2026-06-11 13:30"),
    "at 3pm tomorrow": utc("2026-06-11 13:00"),
    "today at 23:59": utc("2026-06-10 21:59"),
    "tomorrow at 9am": utc("2026-06-11 07:00"),
    "tomorrow 9am": utc("2026-06-11 07:00"),
    "tomorrow at 0:00": utc("2026-06-10 22:00"),
    "tomorrow at 12am": utc("2026-06-10 22:00"),
    "tomorrow at 12:30am": utc("2026-06-10 22:30"),
    "tomorrow at 12pm": utc("2026-06-11 10:00"),
    "tomorrow at 12:30pm": utc("2026-06-11 10:30"),
    "tomorrow at noon": utc("2026-06-11 10:00"),
    "at midnight": utc("2026-06-10 22:00"),
    "at noon": utc("2026-06-11 10:00"),
    "at 2pm": utc("2026-06-11 12:00"),
    "at 14:34": utc("2026-06-11 12:34"),
    "at 14:35": utc("2026-06-10 12:35"),
    "2026-12-01T09:00Z": utc("2026-12-01 09:00"),
    "2026-12-01t09:00z": utc("2026-12-01 09:00"),
    "2026-12-01 09:00:30Z": utc("2026-12-01 09:00:30"),
    "2026-12-01 09:00:30.25Z": utc("2026-12-01 09:00:30.25"),
    "2026-12-01 09:00 Z": utc("2026-12-01 09:00"),
    "2026-12-01 09:00+01:00": utc("2026-12-01 08:00"),
    "2026-12-01T09:00-0330": utc("2026-12-01 12:30"),
    "2026-12-01T09:00+01": utc("2026-12-01 08:00"),
    "at 2026-12-01T09:00Z": utc("2026-12-01 09:00"),
    "at 2026-12-01 09:00+01:00": utc("2026-12-01 08:00"),
    "9999-12-31T23:59:59Z": YEAR_10000 - 1,
}


@pytest.mark.parametrize(("text", "at"), ONE_TIME.items(), ids=ONE_TIME)
def test_expression_of_a_single_time_parses_to_a_once_timing(text, at):
    assert read(text) == Once(at=at)


RECURRING = {
    "every 2h": Every(anchor_at=NOW_WHOLE, step_seconds=7200),
    "every 2 hours": Every(anchor_at=NOW_WHOLE, step_seconds=7200),
    "every 30 minutes": Every(anchor_at=NOW_WHOLE, step_seconds=1800),
    "every 1h30m": Every(anchor_at=NOW_WHOLE, step_seconds=5400),
    "every 1.5h": Every(anchor_at=NOW_WHOLE, step_seconds=5400),
    "every 1s": Every(anchor_at=NOW_WHOLE, step_seconds=1),
    "every second": Every(anchor_at=NOW_WHOLE, step_seconds=1),
    "every minute": Every(anchor_at=NOW_WHOLE, step_seconds=60),
    "every hour": Every(anchor_at=NOW_WHOLE, step_seconds=3600),
    "every 1 day": Every(anchor_at=NOW_WHOLE, step_seconds=86_400),
    "every 2 weeks": Every(anchor_at=NOW_WHOLE, step_seconds=14 * 86_400),
    "every 3660d": Every(anchor_at=NOW_WHOLE, step_seconds=3660 * 86_400),
    "every day at 7am": Cron(expression="0 7 * * *", timezone=BERLIN),
    "every day at 12am": Cron(expression="0 0 * * *", timezone=BERLIN),
    "every day at noon": Cron(expression="0 12 * * *", timezone=BERLIN),
    "every monday at 9am": Cron(expression="0 9 * * 1", timezone=BERLIN),
    "every sunday at 9am": Cron(expression="0 9 * * 0", timezone=BERLIN),
    "every tues at 9am": Cron(expression="0 9 * * 2", timezone=BERLIN),
    "every thurs and sat at 9am": Cron(expression="0 9 * * 4,6", timezone=BERLIN),
    "every mon, wed and fri at 17:30": Cron(expression="30 17 * * 1,3,5", timezone=BERLIN),
    "every Fri,Mon at 5:05pm": Cron(expression="5 17 * * 1,5", timezone=BERLIN),
    "every mon, wed, and fri at 17:30": Cron(expression="30 17 * * 1,3,5", timezone=BERLIN),
    "every weekday at 9am": Cron(expression="0 9 * * 1-5", timezone=BERLIN),
    "every weekend at 10am": Cron(expression="0 10 * * 0,6", timezone=BERLIN),
    "every weekday and weekend at 10am": Cron(expression="0 10 * * *", timezone=BERLIN),
    "*/15 * * * *": Cron(expression="*/15 * * * *", timezone=BERLIN),
    "0 9 1,15 JAN-jun Mon": Cron(expression="0 9 1,15 JAN-jun Mon", timezone=BERLIN),
    "0 0 * * 7": Cron(expression="0 0 * * 7", timezone=BERLIN),
    "0 0 L * *": Cron(expression="0 0 L * *", timezone=BERLIN),
    "0 0 LW * *": Cron(expression="0 0 LW * *", timezone=BERLIN),
    "0 0 * * MON#5": Cron(expression="0 0 * * MON#5", timezone=BERLIN),
    "0 0 29 2 */7": Cron(expression="0 0 29 2 */7", timezone=BERLIN),
    "@hourly": Cron(expression="0 * * * *", timezone=BERLIN),
    "@daily": Cron(expression="0 0 * * *", timezone=BERLIN),
    "@midnight": Cron(expression="0 0 * * *", timezone=BERLIN),
    "@weekly": Cron(expression="0 0 * * 0", timezone=BERLIN),
    "@monthly": Cron(expression="0 0 1 * *", timezone=BERLIN),
    "@yearly": Cron(expression="0 0 1 1 *", timezone=BERLIN),
    "@annually": Cron(expression="0 0 1 1 *", timezone=BERLIN),
    "@reboot": Startup(),
    "on startup": Startup(),
}


@pytest.mark.parametrize(("text", "timing"), RECURRING.items(), ids=RECURRING)
def test_expression_that_recurs_parses_to_every_cron_or_startup(text, timing):
    assert read(text) == timing


@pytest.mark.parametrize("text", [*ONE_TIME, *RECURRING])
def test_expression_ignores_case_and_spaces_and_keeps_the_text(text):
    spaced = "  " + text.replace(" ", " \t ").upper() + "\t"

    parsed = parse(spaced, now=NOW, timezone=BERLIN)

    assert parsed.text == text.upper()
    if isinstance(parsed.timing, Cron):
        assert parsed.timing.expression.upper() == read(text).expression.upper()  # type: ignore[union-attr]
    else:
        assert parsed.timing == read(text)


REFUSED = {
    "every weekday": "add a time: every weekday at 9am",
    "every day": "add a time: every day at 9am",
    "every monday": "add a time: every monday at 9am",
    "every mon and fri": "add a time: every mon and fri at 9am",
    "every day at": "add a time: every day at 9am",
    "every week": "name a day: every monday at 9am; or say every 1 week",
    "every": "every what? Say every 30 minutes, or every monday at 9am",
    "every at 9am": "'at 9am' is not a span of time",
    "every 2 days at 9am": "a time of day needs days of the week, as in every day at 9am, and '2 days' is not",
    "every other day at 9am": "and 'other day' is not",
    "every -5 minutes": "cannot be negative",
    "every 0m": "must be more than 0",
    "every 0.5s": "an interval must be a whole number of seconds, at least 1",
    "every 1.5s": "an interval must be a whole number of seconds",
    "every 3661d": "an interval must be at most 10 years",
    "every month": "months and years differ in length",
    "every 2 months": "months and years differ in length",
    "every 5": "'5' is not a span of time such as 10m, 2 hours or 1h30m",
    "every monday at 25": "'25' is not a time of day: say 3pm, 3:30pm or 15:30",
    "every fortnight": "the unit 'fortnight' is unknown: use s, m, h, d or w",
    "at": "the time of day is missing: say 3pm, 3:30pm or 15:30",
    "at 25": "'25' is not a time of day: say 3pm, 3:30pm or 15:30",
    "at 9": "'9' is not a time of day",
    "at 13pm": "'13pm' is not a time of day",
    "at 0pm": "'0pm' is not a time of day",
    "at 15:30pm": "'15:30pm' is not a time of day",
    "at 24:00": "'24:00' is not a time of day",
    "at 3:60pm": "'3:60pm' is not a time of day",
    "at 15:60": "'15:60' is not a time of day",
    "at 3:5pm": "'3:5pm' is not a time of day",
    "at -3pm": "'-3pm' is not a time of day",
    "at 3pm yesterday": "'3pm yesterday' is not a time of day",
    "at today": "the time of day is missing: say 3pm",
    "at 2pm today": "2pm today has passed: it is 14:34 in Europe/Berlin; say tomorrow at 2pm",
    "today at 9am": "9am today has passed",
    "today at midnight": "midnight today has passed",
    "today": "add a time of day: today at 9am",
    "tomorrow": "add a time of day: tomorrow at 9am",
    "tomorrow 9": "'9' is not a time of day: say 3pm, 3:30pm or 15:30",
    "in": "the span of time is missing",
    "in 0": "'0' is not a span of time",
    "in 0m": "must be more than 0",
    "in 10": "'10' is not a span of time",
    "in -3m": "cannot be negative",
    "in 1h30": "'1h30' is not a span of time",
    "in 5 lightyears": "the unit 'lightyears' is unknown: use s, m, h, d or w",
    "in 5 years": "months and years differ in length",
    "in 5m5m": "each unit is named once, from the largest to the smallest: 1h30m",
    "in 5m1h": "each unit is named once",
    "in 1h and": "'1h and' is not a span of time",
    "in 1e3s": "the unit 'e' is unknown",
    "in 99999999999d": "beyond the year 9999",
    "in 253402300799s": "not between the years 1970 and 9999",
    f"in {'9' * 190}w": "beyond the year 9999",
    "immediate please": "not one of the supported forms",
    "13pm": "not one of the supported forms",
    "3pm": "not one of the supported forms",
    "0": "not one of the supported forms",
    "25": "not one of the supported forms",
    "10 minutes": "not one of the supported forms",
    "monday at 9am": "not one of the supported forms",
    "when it rains": "not one of the supported forms",
    "on": "not one of the supported forms",
    "@noon": "there is no such nickname; there are @hourly, @daily",
    "@": "there is no such nickname",
    "2026-06-10T12:34:56Z": "the moment has passed",
    "at 2026-06-10T12:34Z": "the moment has passed",
    "1969-12-31T23:59Z": "the moment has passed",
    "0001-01-01T00:00Z": "the moment has passed",
    "9999-12-31T23:59-01:00": "not between the years 1970 and 9999",
    "10000-01-01T00:00Z": "not one of the supported forms",
    "2026-12-01T09:00": "no time zone: add Z or an offset such as +01:00, or name the time zone",
    "2026-12-01": "it is not a date and time there is: write one as in 2026-12-01T09:00Z",
    "2026-02-29T09:00Z": "it is not a date and time there is",
    "2026-13-01T09:00Z": "it is not a date and time there is",
    "2026-12-01T24:00Z": "it is not a date and time there is",
    "2026-12-01T09:00:60Z": "it is not a date and time there is",
    "2026-12-01T09:00+25:00": "it is not a date and time there is",
    "2026-12-01 9am": "it is not a date and time there is",
    "2026-12-01T09:00 Europe/Berlin": "it is not a date and time there is",
    "* * * *": "cron has 5 fields (minute hour day month weekday, no seconds), and this has 4",
    "* * * * * *": "cron has 5 fields (minute hour day month weekday, no seconds), and this has 6",
    "0 0 9 1 1 1": "and this has 6",
    "*/5": "and this has 1",
    "0 9": "and this has 2",
    "61 * * * *": "its minute '61' must be 0-59",
    "-1 * * * *": "its minute '-1' must be 0-59",
    "5-1 * * * *": "its minute '5-1' has the range '5-1', which goes backward: write 5-59,0-1",
    "55-5 * * * *": "its minute '55-5' has the range '55-5', which goes backward: write 55-59,0-5",
    "0 1,22-6 * * *": "its hour '1,22-6' has the range '22-6', which goes backward: write 22-23,0-6",
    "0 23-0 * * *": "its hour '23-0' has the range '23-0', which goes backward: write 23,0",
    "0 9 * * MON-SUN": "its day of week 'MON-SUN' has the range 'MON-SUN', which goes backward: write 1-7",
    "0 9 * * fri-mon": "its day of week 'fri-mon' has the range 'fri-mon', which goes backward: write 5-6,0-1",
    "0 9 * NOV-FEB *": "its month 'NOV-FEB' has the range 'NOV-FEB', which goes backward: write 11-12,1-2",
    "22-6/2 * * * *": "its minute '22-6/2' must be 0-59, in steps of 1 or more",
    "*/90 * * * *": "its minute '*/90' has a step of 90, and there are 60 values: write \"every 90m\"",
    "0 */36 * * *": "its hour '*/36' has a step of 36, and there are 24 values: write \"every 36h\"",
    "0 0 */40 * *": "its day of month '*/40' has a step of 40, and there are 31 values",
    "0 0 * * */8": "its day of week '*/8' has a step of 8, and there are 7 values",
    "*/0 * * * *": "its minute '*/0' must be 0-59, in steps of 1 or more",
    "0 24 * * *": "its hour '24' must be 0-23",
    "0 9, * * *": "its hour '9,' must be 0-23",
    "0 9 0 * *": "its day of month '0' must be 1-31",
    "0 9 32 * *": "its day of month '32' must be 1-31",
    "0 9 ? * *": "its day of month '?' must be 1-31",
    "0 9 * 13 *": "its month '13' must be 1-12 or JAN-DEC",
    "0 9 * MOON *": "its month 'MOON' must be 1-12 or JAN-DEC",
    "0 9 * * 8": "its day of week '8' must be 0-7 or SUN-SAT",
    "0 9 * * mo": "its day of week 'mo' must be 0-7 or SUN-SAT",
    "0 9 * * MON#6": "its day of week 'MON#6' must be 0-7 or SUN-SAT",
    f"{'9' * 180} * * * *": "its minute '999",
    "30 2 30 2 *": "it has no occurrence: no day of month '30' (1-31) is in month '2'",
    "0 0 31 2,4,6,9,11 *": "no day of month '31' (1-31) is in month '2,4,6,9,11'",
    "0 0 */29 2 MON#5": "it has no occurrence within fifty years",
    "* 2 * 3 0L": "it has no occurrence within fifty years",
    "": "it is empty",
    " \t ": "it is empty",
    "every day at 7am\n": "no form has the character '\\n'",
    "in 10m\x00": "no form has the character '\\x00'",
    "in 10m\x7f": "no form has the character '\\x7f'",
    "in 1\u0660m": "no form has the character '\\u0660'",
    "at\xa03pm": "no form has the character '\\xa0'",
    "in 5\U0001d7d8m": "no form has the character '\\U0001d7d8'",
    "\ud800": "no form has the character '\\ud800'",
    " " * (MAX_CHARACTERS + 1): "it has 201 characters; the limit is 200",
    "1" * 5000: "it has 5,000 characters; the limit is 200",
}


@pytest.mark.parametrize(("text", "refusal"), REFUSED.items(), ids=lambda part: ascii(part)[:40])
def test_expression_refusal_states_the_mistake_and_the_supported_forms(text, refusal):
    with pytest.raises(ScheduleInvalid) as refused:
        read(text)

    assert refusal in refused.value.message
    assert refused.value.message.endswith(f"Supported: {FORMS}")
    assert "\n" not in refused.value.message
    assert len(refused.value.message) < 500


@pytest.mark.parametrize("text", [None, 25, 1.5, b"every 2h", ["every 2h"], datetime(2026, 12, 1, tzinfo=UTC)])
def test_expression_that_is_not_text_is_refused(text):
    with pytest.raises(ScheduleInvalid, match=f"a schedule must be text, not {type(text).__name__}. Supported: "):
        read(text)


@pytest.mark.parametrize("character", [chr(code) for code in (*range(9), *range(10, 32), 127, 0x85, 0x2028, 0xFEFF)])
def test_expression_with_a_control_character_is_refused(character):
    with pytest.raises(ScheduleInvalid, match="no form has the character"):
        read(f"in{character}10m")


def test_expression_of_200_characters_is_accepted():
    assert read("in 10m" + " " * (MAX_CHARACTERS - 6)) == Once(at=NOW + 600)


def test_time_of_day_is_today_until_that_moment_and_tomorrow_after():
    three = utc("2026-06-10 13:00")

    assert read("at 3pm", now=three) == Once(at=three)
    assert read("at 3pm today", now=three) == Once(at=three)
    assert read("at 3pm", now=three + 0.001) == Once(at=three + 86_400)
    with pytest.raises(ScheduleInvalid, match="3pm today has passed: it is 15:00 in Europe/Berlin"):
        read("at 3pm today", now=three + 0.001)


def test_today_and_tomorrow_are_days_of_the_zone():
    late = utc("2026-06-10 22:30")

    assert read("at 1am today", now=late) == Once(at=utc("2026-06-10 23:00"))
    assert read("tomorrow at 1am", now=late, timezone="UTC") == Once(at=utc("2026-06-11 01:00"))
    assert read("tomorrow at 1am", now=late, timezone="Pacific/Kiritimati") == Once(at=utc("2026-06-11 11:00"))
    assert read("tomorrow at 1am", now=late, timezone="Pacific/Pago_Pago") == Once(at=utc("2026-06-11 12:00"))


AROUND_CHANGES = [
    ("Europe/Berlin", "2026-03-28 12:00", "tomorrow at 2:30am", "2026-03-29 01:00"),
    ("Europe/Berlin", "2026-03-29 00:59", "at 2:00", "2026-03-29 01:00"),
    ("Europe/Berlin", "2026-03-29 01:00", "at 2:30", "2026-03-29 01:00"),
    ("Europe/Berlin", "2026-03-29 01:01", "at 2:30", "2026-03-30 00:30"),
    ("Europe/Berlin", "2026-03-28 12:00", "tomorrow at 3am", "2026-03-29 01:00"),
    ("Europe/Berlin", "2026-10-24 12:00", "tomorrow at 2:30am", "2026-10-25 00:30"),
    ("Europe/Berlin", "2026-10-25 00:10", "at 2:30", "2026-10-25 00:30"),
    ("Europe/Berlin", "2026-10-25 00:40", "at 2:30", "2026-10-26 01:30"),
    ("Europe/Berlin", "2026-10-25 01:10", "at 2:30", "2026-10-26 01:30"),
    ("America/Havana", "2026-03-07 12:00", "tomorrow at midnight", "2026-03-08 05:00"),
    ("Australia/Lord_Howe", "2026-10-03 12:00", "tomorrow at 2:15am", "2026-10-03 15:30"),
    ("Antarctica/Troll", "2026-03-28 12:00", "tomorrow at 1:30am", "2026-03-29 01:00"),
    ("Pacific/Apia", "2011-12-29 20:00", "tomorrow at 9am", "2011-12-30 10:00"),  # the 30th does not exist there
]


@pytest.mark.parametrize(("timezone", "now", "text", "at"), AROUND_CHANGES)
def test_time_in_a_gap_moves_past_the_gap_and_a_folded_time_is_the_first_copy(timezone, now, text, at):
    assert read(text, now=utc(now), timezone=timezone) == Once(at=utc(at))


def test_iso_time_without_an_offset_is_local_when_a_zone_is_given():
    assert read("2026-12-01T09:00", zone_given=True) == Once(at=utc("2026-12-01 08:00"))
    assert read("at 2026-12-01 09:00:30.25", zone_given=True) == Once(at=utc("2026-12-01 08:00:30.25"))
    assert read("2026-12-01T09:00Z", zone_given=True) == Once(at=utc("2026-12-01 09:00"))
    assert read("2027-03-28 02:30", zone_given=True) == Once(at=utc("2027-03-28 01:00"))
    assert read("2026-10-25 02:30", zone_given=True) == Once(at=utc("2026-10-25 00:30"))


ENDS_OF_THE_CALENDAR = [
    ("0001-01-01 00:00", "Pacific/Kiritimati"),
    ("9999-12-31 23:59", "America/New_York"),
    ("1970-01-01 00:59", BERLIN),
]


@pytest.mark.parametrize(("text", "timezone"), ENDS_OF_THE_CALENDAR)
def test_local_time_beyond_the_calendar_is_refused(text, timezone):
    with pytest.raises(ScheduleInvalid, match="not between the years 1970 and 9999"):
        read(text, timezone=timezone, zone_given=True, past_allowed=True)


def test_local_time_at_either_end_of_the_calendar_is_accepted():
    assert read("1970-01-01 01:00", zone_given=True, past_allowed=True) == Once(at=0)
    assert read("9999-12-31 23:59:59", timezone="UTC", zone_given=True) == Once(at=YEAR_10000 - 1)


@pytest.mark.parametrize("text", ["at 3pm", "tomorrow at 9am", "in 1s", "2026-12-01T09:00Z"])
def test_expression_at_the_end_of_the_calendar_is_refused(text):
    with pytest.raises(ScheduleInvalid, match=r"the calendar ends|not between|has passed"):
        read(text, now=YEAR_10000 - 1)


def test_iso_time_equal_to_now_is_accepted():
    assert read("2026-06-10T12:34:56.5Z") == Once(at=NOW)


def test_iso_time_in_the_past_is_accepted_with_past_allowed():
    assert read("2020-01-01T00:00Z", past_allowed=True) == Once(at=utc("2020-01-01 00:00"))
    assert read("today at 9am", past_allowed=True) == read("at 9am today", past_allowed=True)
    assert read("today at 9am", past_allowed=True) == Once(at=utc("2026-06-10 07:00"))
    with pytest.raises(ScheduleInvalid, match="not between the years 1970 and 9999"):
        read("1969-12-31T23:59Z", past_allowed=True)


WRONG_ZONES = {
    "Europe/Berlim": "time zone 'Europe/Berlim' is unknown; did you mean Europe/Berlin?",
    "europe/berlin": "did you mean Europe/Berlin?",
    "Berlin": "did you mean Europe/Berlin?",
    "Mars/Olympus_Mons": "is unknown; use an IANA name",
    "Europe": "time zone 'Europe' is unknown",
    "leapseconds": "time zone 'leapseconds' is unknown",
    "SECURITY": "time zone 'SECURITY' is unknown",
    "": "time zone '' must be an IANA name such as Europe/Berlin or UTC",
    " ": "must be an IANA name",
    "UTC ": "must be an IANA name",
    "UTC\n": "must be an IANA name",
    "/etc/localtime": "must be an IANA name",
    "../zoneinfo/UTC": "must be an IANA name",
    "Europe/../UTC": "must be an IANA name",
    "Europe//Berlin": "must be an IANA name",
    "Europe/": "must be an IANA name",
    "tzdata.zi": "must be an IANA name",
    "zone\x00": "must be an IANA name",
    "\ud800": "must be an IANA name",
    "Ü": "must be an IANA name",
    "A" * 5000: "must be an IANA name",
    "localtime": "is not a place's",
    "posixrules": "is not a place's",
    "posix/Europe/Berlin": "is not a place's",
    "right/Europe/Berlin": "is not a place's",
}


@pytest.mark.parametrize(("name", "refusal"), WRONG_ZONES.items(), ids=lambda part: ascii(part)[:40])
def test_zone_that_is_unknown_or_machine_dependent_is_refused(name, refusal):
    with pytest.raises(ScheduleInvalid) as refused:
        parse("every 2h", now=NOW, timezone=name)

    assert refusal in refused.value.message
    assert len(refused.value.message) < 300


@pytest.mark.parametrize("name", [None, 1, b"UTC", UTC])
def test_zone_that_is_not_text_is_refused(name):
    with pytest.raises(ScheduleInvalid, match="must be an IANA name"):
        check_zone(name)


def test_zone_with_a_known_name_is_returned():
    assert [check_zone(name).key for name in ("UTC", BERLIN, "Etc/GMT+12")] == ["UTC", BERLIN, "Etc/GMT+12"]


TOKENS = """
    in at every on today tomorrow immediate startup and , - : . / * # L W @ @daily @reboot am pm noon midnight day week
    weekday weekend monday mon fri sun m h s d w minutes hours months years 0 1 2 9 12 13 24 25 30 59 60 61 99 2026 -5
    1.5 3pm 3:30pm 15:30 */5 1-5 MON#5 0L 29 2026-12-01 T09:00 Z +01:00 9999-12-31 0001-01-01 24:00 99999999999
"""
NEAR_FORMS = st.builds(str.join, st.sampled_from([" ", ""]), st.lists(st.sampled_from(TOKENS.split()), max_size=8))
FIELD = st.sampled_from(["*", "*/5", "0", "1", "2,9", "29", "30", "1-5", "L", "JAN", "sun", "1L", "MON#5"])
FIELDS = st.builds(" ".join, st.lists(FIELD, min_size=4, max_size=6))
DIGITS = st.text("0123456789 */,-:.TZ+", max_size=40)
FORM = st.sampled_from([*ONE_TIME, *RECURRING])
CHANGED = st.builds(
    lambda text, at, new: text[:at] + new + text[at + 1 :], FORM, st.integers(0, 20), st.text(max_size=1)
)
TEXTS = st.text(max_size=250) | NEAR_FORMS | FIELDS | DIGITS | FORM | CHANGED
ZONES = st.sampled_from([BERLIN, "UTC", "America/New_York", "Pacific/Kiritimati", "Australia/Lord_Howe"])
MOMENTS = st.floats(0, YEAR_10000, exclude_max=True) | st.floats(YEAR_10000 - 172_800, YEAR_10000, exclude_max=True)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(TEXTS, MOMENTS | st.just(NOW), ZONES, st.booleans(), st.booleans())
def test_expression_of_any_text_parses_to_a_valid_timing_or_is_refused(text, now, zone, given, past):
    try:
        parsed = parse(text, now=now, timezone=zone, zone_given=given, past_allowed=past)
    except ScheduleInvalid:
        return
    assert parse(parsed.text, now=now, timezone=zone, zone_given=given, past_allowed=past) == parsed
    match parsed.timing:
        case Once(at=at):
            assert math.isfinite(at)
            assert 0 <= at < YEAR_10000
            assert past or at >= now
        case Every(anchor_at=anchor, step_seconds=step):
            assert (type(anchor), type(step)) == (int, int)
            assert now - 1 < anchor <= now
            assert 1 <= step <= 10 * 366 * 86_400
        case Cron(expression=expression, timezone=timezone):
            assert timezone == zone
            assert len(expression.split(" ")) == 5
            assert next_occurrence(parsed.timing, NOW) is not None


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.text(max_size=120) | st.text("ABCDEabcde/._-+0123 ", max_size=30))
def test_zone_name_of_any_text_is_resolved_or_refused(name):
    try:
        zone = check_zone(name)
    except ScheduleInvalid:
        return
    assert zone.key == name
