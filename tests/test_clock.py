"""Ids and monotonic times under a clock that is set back."""

from __future__ import annotations

import random
import time
import uuid

import pytest
from freezegun import freeze_time
from hypothesis import given
from hypothesis import strategies as st

from craftcore.clock import SystemClock, Uuid7
from tests.support.fakes import NEW_YEAR


class FixedRandom(random.Random):
    """A source of randomness that returns the same bits each time."""

    def __init__(self, bits: int) -> None:
        super().__init__(0)
        self._bits = bits

    def getrandbits(self, k: int, /) -> int:
        return self._bits


def ids_at(moments: list[float], *, seed: int = 0) -> list[str]:
    ids = Uuid7(random.Random(seed))
    return [ids.generate(moment) for moment in moments]


def test_id_is_a_uuid7_that_begins_with_its_millisecond():
    made = uuid.UUID(ids_at([NEW_YEAR + 0.123])[0])

    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert made.int >> 80 == int((NEW_YEAR + 0.123) * 1000)


@given(st.lists(st.floats(0, 2e9), max_size=50))
def test_ids_grow_as_text_also_when_the_clock_is_set_back(moments):
    made = ids_at(moments)

    assert made == sorted(set(made))


def test_ten_thousand_ids_in_a_millisecond_increase():
    made = ids_at([NEW_YEAR] * 10_000)

    assert made == sorted(set(made))
    assert {uuid.UUID(one).version for one in made} == {7}


def test_more_ids_than_a_millisecond_has_take_from_the_next():
    made = [uuid.UUID(one).int >> 80 for one in ids_at([NEW_YEAR] * 4_097)]

    assert (made[4_095], made[4_096]) == (int(NEW_YEAR * 1000), int(NEW_YEAR * 1000) + 1)


def test_same_seed_gives_the_same_ids_and_another_seed_gives_others():
    assert ids_at([NEW_YEAR] * 3) == ids_at([NEW_YEAR] * 3)
    assert not set(ids_at([NEW_YEAR] * 3)) & set(ids_at([NEW_YEAR] * 3, seed=1))


@given(st.floats(0, 2e9), st.integers(0, 2**62 - 1), st.integers(1, 3))
def test_id_has_the_fields_of_rfc_9562(moment, bits, count):
    ids = Uuid7(FixedRandom(bits))
    for _ in range(count):
        made = ids.generate(moment)

    tick = (int(moment * 1000) << 12) + count - (moment * 1000 >= 1)  # the first tick is 1
    fields = (tick >> 12) << 80 | 0x7 << 76 | (tick & 0xFFF) << 64 | 0x2 << 62 | bits
    assert made == str(uuid.UUID(int=fields))


def test_two_clocks_of_a_machine_never_make_the_same_id():
    first, second = SystemClock(), SystemClock()

    with freeze_time("2026-01-01"):
        made = [clock.new_id() for clock in (first, second) for _ in range(1_000)]

    assert len(set(made)) == 2_000


def test_system_clock_returns_wall_time_in_epoch_seconds():
    with freeze_time("2026-01-01T00:00:00Z"):
        assert SystemClock().now() == NEW_YEAR


@pytest.mark.parametrize("tz", ["nonsense", "CET-1CEST,M3.5.0,M10.5.0/3", "Europe", "../etc/passwd"])
def test_zone_of_an_unknown_tz_variable_is_not_known(monkeypatch, tz):
    monkeypatch.setenv("TZ", tz)

    assert SystemClock().zone() is None


def test_boot_time_continues_while_the_wall_clock_is_frozen():
    clock = SystemClock()

    with freeze_time("2026-01-01"):
        before = clock.boot_time()
        spent = time.clock_gettime(time.CLOCK_BOOTTIME)

        assert before <= spent <= clock.boot_time()
