"""Short ids: tables print the end of an id, commands accept it, and an ambiguous one is refused with candidates."""

from __future__ import annotations

import pytest

from craftcore.cli.short_ids import count_digits, shorten_cells, shorten_ids
from tests.support.commands import short
from tests.support.trigger_steps import emit

UUID = "01a1fdfa-4600-7008-9f39-0b2018072e8c"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (UUID, "072e8c"),
        (f"exec-{UUID}.1", "072e8c.1"),
        (f"activity:{UUID}:1.1", "072e8c:1.1"),
        (f"task {UUID} is damaged", "task 072e8c is damaged"),
        ("order-7", "order-7"),
    ],
)
def test_id_is_shortened_to_its_end(text, shown):
    assert shorten_ids(text, 6) == shown


def test_key_that_a_table_cuts_keeps_its_beginning():
    key = f"activity:{UUID}:{'k' * 60}"

    assert shorten_cells([key, UUID, None, 7], 6) == [key, "072e8c", None, 7]


def test_digits_grow_with_the_number_of_rows(core):
    with core.reading() as reader:
        assert count_digits(reader) == 6
    emit(core)
    core.do(lambda tx: tx.run("UPDATE triggers SET seq = 1000000"))
    with core.reading() as reader:
        assert count_digits(reader) == 9


def test_short_id_of_a_table_is_accepted_by_every_command(cli, here):
    world = here.world

    assert cli("--json", "trigger", "show", short(world.waiting)).json["id"] == world.waiting
    assert cli("--json", "trigger", "why", short(world.dead)).json["id"] == world.dead
    assert cli("--json", "task", "show", short(world.nap)).json["id"] == world.nap
    assert cli("--json", "inspect", short(world.ended)).json["execution_id"] == world.ended
    assert cli("--json", "activity", "show", short(world.in_doubt)).json["key"] == world.in_doubt
    assert cli("inbox", "answer", short(world.question), "send").code == 0
    assert cli("dead", "requeue", short(world.dead)).out.startswith(world.dead)
    assert world.dead in cli("--json", "audit", short(world.dead)).out


def test_ambiguous_id_is_refused_with_at_most_ten_candidates(cli, core):
    for number in range(11):
        emit(core, id=f"{number}-same-end")

    refused = cli("trigger", "show", "same-end")

    assert refused.code == 10
    assert "same-end fits several ids: 0-same-end, " in refused.err
    assert refused.err.count("-same-end") == 10
    assert " and more; give more of it" in refused.err


def test_whole_id_is_never_ambiguous(cli, core):
    for id_ in ("mail", "old-mail", "mail-2"):
        emit(core, id=id_)

    assert cli("--json", "trigger", "show", "mail").json["id"] == "mail"


def test_end_of_fewer_than_four_characters_is_not_looked_for(cli, core):
    emit(core, id="order-77")

    assert cli("trigger", "show", "-77").code != 0
    assert cli("trigger", "show", "r77").code == 10
