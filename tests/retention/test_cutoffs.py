"""Cutoff times of retention, computed from the settings."""

from __future__ import annotations

from craftcore.config import RetentionSettings
from craftcore.retention.cutoffs import AFTER_CATCH_UP, NEVER, Cutoffs
from tests.support.retention_harness import DAY

NOW = 1_000 * DAY


def test_horizon_equals_now_minus_the_setting():
    settings = RetentionSettings(triggers=1, dead=2, keys=100 * DAY, bodies=3, history=4, audit=5, messages=6)

    assert Cutoffs.from_settings(settings, NOW, 0.0) == (
        NOW - 1,
        NOW - 2,
        NOW - 100 * DAY,
        NOW - 3,
        NOW - 4,
        NOW - 5,
        NOW - 6,
        NOW,
    )


def test_horizon_of_a_zero_setting_is_never():
    settings = RetentionSettings(triggers=0, dead=0, keys=0, bodies=0, history=0, audit=0, messages=0)

    assert set(Cutoffs.from_settings(settings, NOW, 365 * DAY)[:-1]) == {NEVER}


def test_key_horizon_exceeds_the_catch_up_window_by_a_week():
    keys = Cutoffs.from_settings(RetentionSettings(keys=1), NOW, 30 * DAY).keys

    assert keys == NOW - 30 * DAY - AFTER_CATCH_UP == NOW - 37 * DAY
