"""Commands on a machine with a known or an unknown time zone: refusals and shown times."""

from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from craftcore.machine_zone import UNKNOWN


def test_check_and_doctor_warn_of_an_unknown_zone(cli, monkeypatch):
    monkeypatch.setenv("TZ", "CET-1CEST")
    cli("emit", "greet")

    checked, looked = cli("--json", "check").json, cli("--json", "doctor").json

    text = "not known: TZ is 'CET-1CEST', which is not the name of a zone. Times of day without a zone are refused: "
    assert checked["ok"]
    assert [line for line in checked["warnings"] if line.startswith(f"machine zone: {text}")]
    [finding] = [one for one in looked["checks"] if one["check"] == "machine zone"]
    assert finding["level"] == "warn"
    assert finding["text"].startswith(text)


def test_doctor_names_the_zone_of_the_machine(cli, monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Berlin")
    cli("emit", "greet")

    [finding] = [one for one in cli("--json", "doctor").json["checks"] if one["check"] == "machine zone"]
    assert (finding["level"], finding["text"]) == ("ok", "Europe/Berlin")


@pytest.mark.parametrize("tz", ["CET-1CEST", "Europe/Berln"])
def test_emit_and_schedule_add_refuse_a_time_of_day_on_a_machine_without_a_zone(cli, monkeypatch, tz):
    monkeypatch.setenv("TZ", tz)

    emitted = cli("emit", "greet", "--at", "9am")
    added = cli("schedule", "add", "nightly", "every day at 3am", "--workflow", "greet")
    previewed = cli("schedule", "preview", "--expr", "0 3 * * *")

    assert (emitted.code, added.code, previewed.code) == (64, 64, 64)
    assert all(UNKNOWN in done.err for done in (emitted, added, previewed))
    assert not Path("agent.db").exists()


def test_emit_reads_the_time_in_its_zone_and_shows_both(cli, monkeypatch):
    monkeypatch.setenv("TZ", "CET-1CEST")

    done = cli("emit", "greet", "--at", "2030-07-01T09:00", "--timezone", "Europe/Berlin")

    document = json.loads(done.out)
    assert document["due_at"] == datetime(2030, 7, 1, 7, tzinfo=UTC).timestamp()
    assert (document["due_at_local"], document["timezone"]) == ("2030-07-01T09:00:00+02:00", "Europe/Berlin")
    assert "due 2030-07-01 09:00:00 CEST (2030-07-01 07:00:00Z, in " in done.err
    assert done.err.rstrip().endswith("), time zone Europe/Berlin")


def test_emit_at_words_is_due_at_the_local_time_of_the_given_zone(cli):
    document = cli("--json", "emit", "greet", "--at", "tomorrow 9am", "--timezone", "Asia/Kolkata").json

    there = datetime.fromtimestamp(document["due_at"], ZoneInfo("Asia/Kolkata"))
    assert (there.hour, there.minute) == (9, 0)
    assert document["due_at_local"] == there.isoformat()
    assert abs(document["due_at"] - time.time()) < 3 * 86_400


def test_emit_with_a_zone_and_a_delay_in_words_counts_from_now(cli):
    document = cli("--json", "emit", "greet", "--at", "in 10m", "--timezone", "Asia/Kolkata").json

    assert document["due_at_local"].endswith("+05:30")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--timezone", "Europe/Berlin"), "--timezone is the zone of --at"),
        (("--at", "9am", "--timezone", "Europe/Berln"), "did you mean Europe/Berlin?"),
    ],
)
def test_emit_refuses_a_zone_without_a_time_and_an_unknown_zone(cli, options, why):
    refused = cli("emit", "greet", *options)

    assert refused.code == 64
    assert why in refused.err
    assert not Path("agent.db").exists()


@pytest.mark.parametrize("words", ["every day at 9am", "tomorrow at 9am"])
def test_schedule_add_shows_its_next_occurrence_in_its_zone(cli, words):
    added = ("schedule", "add", "morning", words, "--workflow", "greet", "--timezone", "Asia/Kolkata")

    text, document = cli(*added).out, cli("--json", *added).json

    assert re.search(r"next: \d{4}-\d\d-\d\d 09:00:00 IST \(\d{4}-\d\d-\d\d 03:30:00Z, in ", text)
    assert (document["next_at_local"][10:], document["timezone"]) == ("T09:00:00+05:30", "Asia/Kolkata")


def test_schedule_without_a_next_occurrence_has_no_local_time(cli):
    assert cli("--json", "schedule", "add", "s", "on startup", "--workflow", "greet").json["next_at_local"] is None
