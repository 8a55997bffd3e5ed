"""The functions that parse input and format output, with examples."""

from __future__ import annotations

import io
import json

import pytest

from craftcore.cli.output import Output
from craftcore.cli.session import Session
from craftcore.clock import utc_iso
from craftcore.config.database_path import state_directory
from craftcore.errors import InvalidInput
from craftcore.serialization.time_text import (
    add_iso_times,
    clock_time,
    format_span,
    parse_duration,
    parse_moment,
    relative_text,
)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90.0), ("10s", 10.0), ("5m", 300.0), ("2h", 7200.0), ("1d", 86400.0), ("1h30m", 5400.0), ("1.5 h", 5400.0)],
)
def test_durations_are_parsed_with_units(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "5 parsecs", "m5", "1h-30m", "5m5"])
def test_invalid_duration_is_refused_with_examples(text):
    with pytest.raises(InvalidInput, match="10s, 5m, 2h, 1d"):
        parse_duration(text)


def test_moments_are_parsed_from_epoch_seconds_or_iso():
    assert parse_moment("12.5") == 12.5
    assert parse_moment("2026-01-01T00:00:00Z").timestamp() == 1767225600.0  # type: ignore[union-attr]
    with pytest.raises(InvalidInput, match="ISO 8601"):
        parse_moment("noon")


def test_moments_are_formatted_in_utc():
    assert utc_iso(1767225600.25) == "2026-01-01T00:00:00.250Z"
    assert clock_time(1767225600.25) == "2026-01-01 00:00:00Z"
    assert (utc_iso(None), utc_iso(1e18), clock_time(None)) == (None, None, "-")
    assert add_iso_times({"at": 0.0, "what": 1}) == {"at": 0.0, "at_iso": "1970-01-01T00:00:00.000Z", "what": 1}
    assert add_iso_times({"due_at": 0.0, "lease_until": None, "note": 1}) == {
        "due_at": 0.0,
        "due_at_iso": "1970-01-01T00:00:00.000Z",
        "lease_until": None,
        "lease_until_iso": None,
        "note": 1,
    }


def test_spans_are_formatted_with_two_digits_at_most():
    assert [format_span(seconds) for seconds in (0.26, 45, 90, 750, 10_000, 400_000)] == [
        *("0.3 s", "45 s", "90 s", "12 min", "3 h", "5 d")
    ]
    assert (relative_text(10, 5), relative_text(5, 10)) == ("in 5.0 s", "5.0 s ago")


def test_table_is_aligned_with_a_single_line_per_row(capsys):
    Output(as_json=False).table(("id", "reason"), [("a", "line\nbreak"), ("long-id", None), ("c", "x" * 500)])

    header, first, second, third = capsys.readouterr().out.splitlines()
    assert (header, first, second) == ("id       reason", "a        line\\nbreak", "long-id  -")
    assert len(third) < 140


@pytest.mark.parametrize(
    ("columns", "lines"),
    [
        (33, ["id     workflow  status  reason", "first  pay       FAILED  no route", "2      -         DONE    -"]),
        (
            32,
            [
                "id     workflow  status",
                "    reason",
                "first  pay       FAILED",
                "    no route",
                "2      -         DONE",
            ],
        ),
        (
            22,
            [
                "id     workflow",
                "    status  reason",
                "first  pay",
                "    FAILED  no route",
                "2      -",
                "    DONE    -",
            ],
        ),
        (1, ["id", "    workflow", "    status", "    reason"]),
    ],
)
def test_table_row_too_wide_for_the_terminal_continues_on_the_next_line(monkeypatch, columns, lines):
    screen = Terminal()
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")

    rows = [("first", "pay", "FAILED", "no route"), ("2", None, "DONE", None)]
    Output(as_json=False).table(("id", "workflow", "status", "reason"), rows)

    printed = screen.getvalue().splitlines()
    assert printed[: len(lines)] == lines
    assert columns == 1 or (printed == lines and max(map(len, printed)) <= columns)


def test_colours_are_used_only_on_a_terminal_without_no_color(monkeypatch):
    def printed():
        screen = Terminal()
        monkeypatch.setattr("sys.stdout", screen)
        Output(as_json=False).line("well \x1b[0m", style="good")
        return screen.getvalue()

    monkeypatch.delenv("NO_COLOR", raising=False)
    assert printed() == "\x1b[32mwell \\x1b[0m\x1b[0m\n"
    monkeypatch.setenv("NO_COLOR", "1")
    assert printed() == "well \\x1b[0m\n"


def test_document_is_ascii_json(capsys):
    Output(as_json=True).document({"a": "ü\x1b"})

    out = capsys.readouterr().out
    assert out.isascii()
    assert json.loads(out) == {"a": "ü\x1b"}


def test_database_path_follows_option_environment_and_state_directory(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", "/home/ada")
    assert str(state_directory({"STATE_DIRECTORY": "/var/lib/a:/var/lib/b"})) == "/var/lib/a"
    assert str(state_directory({"XDG_STATE_HOME": "/state"})) == "/state/craftcore"
    assert str(state_directory({"XDG_STATE_HOME": "relative"})) == "/home/ada/.local/state/craftcore"
    assert str(Session({}).path) == "/home/ada/.local/state/craftcore/craftcore.db"
    session = Session({"CRAFTCORE_DB": "/from/environment", "CRAFTCORE_CONFIG": ""})
    assert (str(session.path), session.config_path) == ("/from/environment", None)
    session.db = "/from/option"
    assert str(session.path) == "/from/option"
