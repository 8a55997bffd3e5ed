"""The moments that commands print under a frozen clock."""

from __future__ import annotations

from freezegun import freeze_time

FROZEN = "2031-05-06T07:08:09Z"


def test_frozen_clock_determines_printed_moments(cli):
    with freeze_time(FROZEN):
        emitted = cli("--json", "emit", "greet").json
        shown = cli("--json", "trigger", "show", emitted["id"]).json
        status = cli("--json", "status").json

    assert shown["created_at_iso"].startswith("2031-05-06T07:08:09")
    assert status["now_iso"].startswith("2031-05-06T07:08:09")
    assert "2031-05-06 07:08:09Z" in cli("trigger", "show", emitted["id"]).out
