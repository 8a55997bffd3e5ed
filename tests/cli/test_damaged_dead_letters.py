"""Dead letters with a damaged row: a discard with its audit row is the only accepted action."""

from __future__ import annotations

import html
from urllib.parse import quote

import apsw
import pytest

from tests.support.damage import NO_TEXT, damage
from tests.support.web_site import serving

WRONG = {
    "text": f"error_message = {NO_TEXT}",
    "payload": f"payload_json = {NO_TEXT}",
    "reason": f"reason = {NO_TEXT}",
    "unknown source": "source = 'NOWHERE'",
    "lease": f"lease_token = {NO_TEXT}, claimed_epoch = 3",
}


def statuses(database):
    """Return the status of each row by its id, with invalid bytes as escapes."""
    connection = apsw.Connection(str(database))
    rows = list(connection.execute("SELECT CAST(id AS BLOB), status FROM triggers"))
    connection.close()
    return {id.decode(errors="backslashreplace"): status for id, status in rows}


@pytest.fixture
def broken(here, database, request):
    """Create a dead letter with a damaged row, and return its id."""
    here.core.close()
    damage(database, "triggers", WRONG[getattr(request, "param", "text")], "id = ?", here.world.dead)
    return here.world.dead


@pytest.mark.parametrize("broken", WRONG, indirect=True)
def test_damaged_dead_letter_is_discarded_by_its_id(cli, here, database, broken):
    done = cli("dead", "discard", broken)

    assert done.code == 0, done
    assert f"{broken} is discarded, and stays damaged: " in done.out
    assert statuses(database)[broken] == "FAILED"
    [row] = here.rows()
    assert (row.action, row.subject) == ("dead discard", broken)
    assert row.details["damaged"]
    assert cli("--json", "dead", "list").json == []
    assert cli("dead", "discard", broken).code == 1
    assert len(here.rows()) == 1


def test_damaged_dead_letter_is_discarded_with_all(cli, here, database, broken):
    result = cli("--json", "dead", "discard", "--all", "--yes")

    assert result.code == 0, result
    assert [row["id"] for row in result.json] == [broken]
    assert "error_message is not UTF-8" in result.json[0]["damaged"]
    assert [row.subject for row in here.rows()] == [broken]


def test_id_with_bad_bytes_is_accepted_as_listed(cli, here, database):
    here.core.close()
    damage(database, "triggers", f"id = {NO_TEXT}", "id = ?", here.world.dead)
    [shown] = cli("--json", "dead", "list").json

    assert cli("dead", "discard", shown["id"]).code == 0

    assert statuses(database)[r"\xffA"] == "FAILED"
    assert [row.subject for row in here.rows()] == [r"\xffA"]


def test_damaged_trigger_that_is_not_dead_is_refused(cli, here, database):
    here.core.close()
    damage(database, "triggers", WRONG["text"], "id = ?", here.world.waiting)

    refused = cli("dead", "discard", here.world.waiting)

    assert refused.code == 1, refused
    assert "is damaged, and PENDING; only a damaged one that is DEAD can be discarded" in refused.err
    assert statuses(database)[here.world.waiting] == "PENDING"
    assert here.rows() == []


def test_refused_id_leaves_the_damaged_letter_dead(cli, here, database, broken):
    assert cli("dead", "discard", broken, here.world.waiting).code == 1

    assert statuses(database)[broken] == "DEAD"
    assert here.rows() == []


def test_damaged_dead_letter_is_not_requeued(cli, here, database, broken):
    assert cli("dead", "requeue", broken).code != 0
    assert statuses(database)[broken] == "DEAD"
    assert here.rows() == []


@pytest.mark.parametrize("bad", ["text", "id"])
def test_damaged_dead_letter_is_discarded_on_the_page(here, database, bad):
    here.core.close()
    damage(database, "triggers", WRONG["text"] if bad == "text" else f"id = {NO_TEXT}", "id = ?", here.world.dead)
    id = here.world.dead if bad == "text" else r"\xffA"
    address = f"/triggers/{quote(id, safe='')}/discard"
    with serving(database) as site:
        listed = html.unescape(site.get("/dead").text)
        assert f"{id} is damaged: " in listed
        assert f'href="{address}"' in listed
        assert f"/triggers/{quote(id, safe='')}/requeue" not in listed
        assert address in (site.get(f"/triggers/{id}").text if bad == "text" else listed)
        assert "<dd>damaged</dd>" in site.get(address).text

        done = site.send(address, address)

        assert done.status_code == 303, done.text
        assert "No dead letters." in site.get("/dead").text
        assert address not in site.get(f"/triggers/{id}").text
        again = site.post(address, {"seen": "damaged", "once": "another", "confirmed": "1"})
        assert again.status_code in (404, 409)

    assert statuses(database)[id] == "FAILED"
    [row] = here.rows()
    assert (row.action, row.subject, row.details["person_name"]) == ("dead discard", id, "ada")


def test_person_without_permission_is_offered_no_discard(here, database, broken):
    with serving(database) as site:
        assert f"{broken} is damaged: " in site.get("/dead", "bob").text
        assert "discard" not in site.get("/dead", "bob").text
