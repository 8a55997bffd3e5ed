"""Hostile text in a database: the output of commands neither controls a terminal nor forges a line."""

from __future__ import annotations

import json
import shutil

import pytest

from craftcore.triggers.model import TriggerSpec
from tests.support.command_calls import call_command
from tests.support.commands import BY_HAND, READS, line
from tests.support.fakes import VirtualClock
from tests.support.populated_database import NOON
from tests.support.processes import APP, craftcore
from tests.support.tampered_database import FORGED, HOSTILE, tamper

LISTS = [name for name in READS if name.endswith(" list")]
LISTS_WITH_OPTIONS = {
    "inspect --list": ["inspect", "--list"],
    "inspect --stats": ["inspect", "--stats"],
    "schedule list --all": ["schedule", "list", "--all"],
}
CHANGED_MIN = 40
"""The smallest number of columns with hostile text."""


def harmful_lines(text: str) -> list[str]:
    """Return the lines that do not print, or look like output of craftcore. Quoted text begins with a bar."""
    return [one for one in text.split("\n") if not one.isprintable() or one.lstrip().startswith(FORGED)]


@pytest.fixture(scope="module")
def tampered(made, tmp_path_factory):
    """Write the populated database with hostile texts."""
    path = shutil.copy(made[1], tmp_path_factory.mktemp("tampered") / "agent.db")
    changed = tamper(path, names=False)
    assert len(changed) > CHANGED_MIN, changed
    return path


@pytest.fixture
def hostile(made, tampered, database, clock):
    shutil.copy(tampered, database)
    return made[0]


@pytest.fixture(scope="module")
def tampered_names(made, tmp_path_factory):
    """Write the populated database with hostile texts and names, after an operator's action."""
    path = shutil.copy(made[1], tmp_path_factory.mktemp("tampered") / "agent.db")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("craftcore.services.SystemClock", lambda: VirtualClock(now=NOON))
        assert call_command(path.parent, "schedule", "pause", "nightly").code == 0
    assert len(tamper(path, names=True)) > CHANGED_MIN + 20
    return path


@pytest.mark.parametrize("name", READS)
def test_command_output_escapes_hostile_text(cli, hostile, name):
    shown = cli(*line(name, READS[name], hostile))

    assert shown.code != 70, shown.err
    assert (harmful_lines(shown.out), harmful_lines(shown.err)) == ([], [])


@pytest.mark.parametrize("name", READS)
def test_json_document_is_ascii(cli, hostile, name):
    document = cli("--json", *line(name, READS[name], hostile))

    assert document.code != 70
    assert document.out.replace("\n", "").isascii()
    assert document.out.replace("\n", "").isprintable()
    assert document.json is not None


@pytest.mark.parametrize("name", LISTS_WITH_OPTIONS)
def test_lists_escape_hostile_text(cli, hostile, name):
    shown = cli(*LISTS_WITH_OPTIONS[name])

    assert shown.code == 0
    assert (harmful_lines(shown.out), harmful_lines(shown.err)) == ([], [])


@pytest.mark.parametrize("name", BY_HAND)
def test_operator_commands_print_hostile_text_harmlessly(cli, hostile, name):
    done = cli(*line(name, BY_HAND[name], hostile))

    assert done.code != 70, done.err
    assert (harmful_lines(done.out), harmful_lines(done.err)) == ([], [])


@pytest.mark.parametrize("name", [*LISTS, "status", "audit", *LISTS_WITH_OPTIONS])
def test_ids_that_emit_refuses_are_shown_escaped(cli, tampered_names, database, name):
    shutil.copy(tampered_names, database)

    shown = cli(*LISTS_WITH_OPTIONS.get(name, name.split()))

    assert shown.code != 70, shown.err
    assert (harmful_lines(shown.out), harmful_lines(shown.err)) == ([], [])
    assert name == "inspect --stats" or "\\x1b" in shown.out + shown.err


def test_hostile_arguments_are_refused_with_escaped_text(cli, here):
    for arguments in (
        ["trigger", "show", HOSTILE],
        ["trigger", "list", "--status", HOSTILE],
        ["emit", HOSTILE],
        ["emit", "nap", "--payload", HOSTILE],
        ["emit", "nap", "--at", HOSTILE],
        ["schedule", "add", "new", HOSTILE, "--workflow", "nap"],
        ["replay", HOSTILE],
        ["replay", f"./{HOSTILE}.json".replace("\x00", "")],
        ["inspect", "--list", "--since", HOSTILE],
        [HOSTILE],
        ["--db", HOSTILE.replace("\x00", ""), "status"],
        ["run", HOSTILE],
    ):
        refused = cli(*arguments)

        assert refused.code not in (0, 70), arguments
        assert (harmful_lines(refused.out), harmful_lines(refused.err)) == ([], []), arguments


def test_trigger_texts_come_back_unchanged(cli, here):
    """The text is stored unchanged, and only its output is escaped."""
    spec = TriggerSpec(workflow="nap", payload={"text": HOSTILE.replace("\x00", "")})
    emitted = here.core.do(here.core.triggers.emit, spec)

    shown, document = cli("trigger", "show", emitted.id), cli("--json", "trigger", "show", emitted.id)

    assert harmful_lines(shown.out) == []
    assert document.json["payload"]["text"] == HOSTILE.replace("\x00", "")


FAILING_APP = (
    APP
    + """
@app.workflow("loud", retry=once)
async def loud(text: str) -> None:
    raise RuntimeError(text)
"""
)


@pytest.mark.parametrize("how", ["text", "json"])
def test_log_lines_of_a_daemon_cannot_be_forged(tmp_path, how):
    (tmp_path / "app.py").write_text(FAILING_APP)
    (tmp_path / "settings.toml").write_text(f'[log]\nformat = "{how}"\n')
    (tmp_path / "payload").write_text(json.dumps({"text": HOSTILE}))
    emitted = craftcore(tmp_path, "emit", "loud", "--payload", "@payload")
    assert emitted.code == 0, emitted.err

    ran = craftcore(tmp_path, "--config", "settings.toml", "run", "app:app", "--until-idle")

    assert ran.code == 4
    assert "trigger.settled" in ran.err
    assert (harmful_lines(ran.out), harmful_lines(ran.err)) == ([], [])


def test_print_check_detects_a_forged_line():
    for bad in ("\x1b[2J", "\r", "\u2028", "\u202e", "\x9b", f"ok\n{FORGED}", "\x00", f"  {FORGED}"):
        assert harmful_lines(bad)
    assert harmful_lines(f"ü ok … \n  | {FORGED}\n") == []
