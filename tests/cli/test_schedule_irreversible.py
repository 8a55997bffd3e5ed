"""`craftcore schedule add --irreversible`: the stored mark, its views, and its refusals."""

from __future__ import annotations

import pytest

MARKED = "(irreversible: in doubt, a person is asked)"


@pytest.fixture(autouse=True)
def _at_noon(clock):
    """Run every command of this file at noon."""


def add(cli, *arguments):
    done = cli("--json", "schedule", "add", *arguments)
    assert done.code == 0, done
    return done.json


def test_irreversible_command_is_marked_when_added(cli):
    done = cli("schedule", "add", "rent", "@monthly", "--irreversible", "--", "pay", "rent")

    assert (done.code, done.err) == (0, "")
    assert f"runs: pay rent {MARKED}\n" in done.out
    shown = cli("--json", "schedule", "show", "rent").json
    assert (shown["workflow"], shown["payload"]) == ("command.run", {"argv": ["pay", "rent"], "irreversible": True})


def test_irreversible_mark_appears_in_show_and_list(cli):
    add(cli, "rent", "@monthly", "--irreversible", "--", "pay", "rent")
    add(cli, "backup", "@daily", "--no-irreversible", "--", "restic", "backup")

    assert f"\nruns: pay rent {MARKED}\n" in cli("schedule", "show", "rent").out
    assert "\nruns: restic backup\n" in cli("schedule", "show", "backup").out
    header, backup, rent = cli("schedule", "list").out.splitlines()
    column = header.index("irreversible")
    assert (backup[column:].split(), rent[column:].split()) == (["-", "-"], ["yes", "-"])
    cli("schedule", "edit", "rent", "--no-irreversible")
    assert "irreversible" not in cli("schedule", "list").out


def test_irreversible_option_after_the_dashes_belongs_to_the_command(cli):
    payload = add(cli, "s", "@daily", "--", "pay", "--irreversible")["payload"]

    assert payload == {"argv": ["pay", "--irreversible"]}


def test_irreversible_mark_is_removed_by_a_repeated_add_without_the_option(cli):
    """An omitted option of `add` has its default, like every other option."""
    first = add(cli, "s", "@daily", "--irreversible", "--", "pay")
    same = add(cli, "s", "@daily", "--irreversible", "--", "pay")
    other = add(cli, "s", "@daily", "--", "pay")

    assert (first["change"], same["change"], other["change"]) == ("added", "unchanged", "changed")
    assert other["payload"] == {"argv": ["pay"]}


def test_schedule_edit_changes_only_the_irreversible_mark(cli):
    payload = '{"argv": ["pay"], "cwd": "/srv", "irreversible": true, "no_effect_exit_codes": [75]}'
    before = add(cli, "s", "@daily", "--workflow", "command.run", "--payload", payload)["payload"]

    def edit(*options):
        return cli("--json", "schedule", "edit", "s", *options).json["payload"]

    assert edit("--jitter", "5m") == before
    assert edit("--", "pay", "more") == {**before, "argv": ["pay", "more"]}
    assert edit("--no-irreversible") == {"argv": ["pay", "more"], "cwd": "/srv"}
    assert edit("--irreversible") == {"argv": ["pay", "more"], "cwd": "/srv", "irreversible": True}
    assert edit("--no-irreversible", "--", "pay") == {"argv": ["pay"], "cwd": "/srv"}


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--workflow", "greet"],
        ["--workflow", "command.run", "--payload", '{"argv": ["pay"]}'],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("option", ["--irreversible", "--no-irreversible"])
def test_irreversible_option_without_a_command_is_refused_and_stores_nothing(cli, tmp_path, option, arguments):
    refused = cli("schedule", "add", "s", "@daily", option, *arguments)

    assert (refused.code, refused.out) == (64, "")
    assert "--irreversible is for a command: give it after --" in refused.err
    assert '"irreversible": true' in refused.err
    assert list(tmp_path.iterdir()) == []


def test_schedule_edit_refuses_the_irreversible_option_for_a_workflow(cli):
    add(cli, "greets", "@daily", "--workflow", "greet")
    add(cli, "pays", "@daily", "--", "pay")

    for arguments in (
        ["greets", "--irreversible"],
        ["pays", "--irreversible", "--workflow", "greet", "--payload", "{}"],
        ["pays", "--irreversible", "--payload", '{"argv": ["b"]}'],
    ):
        refused = cli("schedule", "edit", *arguments)
        assert (refused.code, "--irreversible is for a command" in refused.err) == (64, True), refused
    assert [row["payload"] for row in cli("--json", "schedule", "list").json] == [{}, {"argv": ["pay"]}]
