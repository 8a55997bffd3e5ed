"""Pages of a database with a damaged row: it is named beside the others, and no page has an error of its own."""

from __future__ import annotations

import html
import os
import re
import shutil

import pytest

from craftcore.web.asgi_app import PAGES
from tests.support.cells import some_cells
from tests.support.damage import NO_TEXT, VALUES, columns, damage, sampled, spoil
from tests.support.damage import full as full
from tests.support.web_site import in_process

LISTS = {
    "/": ("questions", "id", "question", ["question", "created_at"]),
    "/doubt": ("activity_log", "idem_key", "in_doubt", ["reason", "last_call_at"]),
    "/dead": ("triggers", "id", "dead", ["error_message"]),
    "/schedules": ("schedules", "id", "nightly", ["description", "next_at"]),
    "/tasks": ("tasks", "id", "nap", ["session_id", "created_at"]),
    "/triggers": ("triggers", "id", "dead", ["workflow", "due_at"]),
}
"""Each list, the table of its rows, their key column, the damaged row, and its damaged columns."""

TABLES = (
    "triggers", "tasks", "waits", "questions", "mailbox", "executions", "event_rows", "activity_log",
    "activity_decisions", "schedules", "schedule_occurrences", "clock_events", "epochs", "facts", "record_chain",
    "audit_log", "limit_waits", "task_holds", "schema_migrations",
)  # fmt: skip
"""The tables that pages read."""

DETAILS = {
    "/q/{}": ("questions", "id", "question", "question"),
    "/activities/{}": ("activity_log", "idem_key", "in_doubt", "reason"),
    "/schedules/{}": ("schedules", "id", "nightly", "description"),
    "/tasks/{}": ("tasks", "id", "nap", "session_id"),
    "/records/{}": ("executions", "id", "died", "workflow"),
    "/triggers/{}": ("triggers", "id", "dead", "description"),
}


PARTS = {
    "/": ("schedules", "next_at = 'soon'", "id = 'nightly'", "open questions"),
    "/dead": ("triggers", "settled_at = 'soon'", "status = 'DEAD'", "Newest first"),
    "/now": ("epochs", f"host = {NO_TEXT}", "epoch = 7", "At work"),
    "/tasks/{asks}": ("questions", f"options_json = {NO_TEXT}", "status = 'OPEN' AND activity_seq IS NULL", "Attempts"),
    "/triggers/{asks}": ("questions", "options_json = '[7]'", "status = 'OPEN' AND activity_seq IS NULL", "Attempts"),
}
"""Pages that read what is damaged for one of their parts, and a text of another part."""


def links_of(text: str) -> set[str]:
    """Return the addresses of the rows that a page shows."""
    return set(re.findall(r'href="(/\w+/[^"?/]+)"', text))


@pytest.mark.parametrize(("address", "column"), [(address, one) for address in LISTS for one in LISTS[address][3]])
def test_damaged_row_is_named_in_its_list_beside_the_others(site, world, address, column):
    table, key, row, _ = LISTS[address]
    id = getattr(world, row, row)
    before = links_of(site.get(address).text)
    value = "'soon'" if column.endswith("_at") else NO_TEXT

    damage(site.database, table, f"{column} = {value}", f"{key} = ?", id, any_type=True)

    page = site.get(address)
    assert page.status_code == 200
    assert f"{id} is damaged: " in html.unescape(page.text)
    lost = {link for link in before - links_of(page.text) if id not in link}
    assert {link for link in lost if not link.startswith(("/tasks/", "/activities/"))} == set()


@pytest.mark.parametrize("address", DETAILS)
def test_page_of_a_damaged_row_names_the_damage_and_the_commands_that_check(site, world, address):
    table, key, row, column = DETAILS[address]
    id = getattr(world, row, row)
    damage(site.database, table, f"{column} = {NO_TEXT}", f"{key} = ?", id)

    page = site.get(address.format(id))

    assert page.status_code == (200 if table == "triggers" else 503), "a damaged trigger can be discarded"
    assert f"{id} is damaged: " in html.unescape(page.text)
    assert "<code>craftcore db check</code>" in page.text


@pytest.mark.parametrize("address", PARTS)
def test_page_with_a_damaged_part_shows_the_others(site, world, address):
    table, change, where, text = PARTS[address]
    damage(site.database, table, change, where, any_type=True)

    page = site.get(address.format(asks=world.asks))

    assert page.status_code == 200
    assert " is damaged: " in page.text
    assert text.lower() in page.text.lower()


def test_page_of_damaged_rows_has_a_link_to_older_ones(site, monkeypatch):
    monkeypatch.setattr("craftcore.web.pages.triggers_page.SHOWN", 2)
    [older] = re.findall(r'href="(/triggers\?before=\d+)"', site.get("/triggers").text)
    seq = int(older.rpartition("=")[2])
    for one in (seq, seq + 1):
        damage(site.database, "triggers", f"description = {NO_TEXT}", "seq = ?", one)

    assert older in site.get("/triggers").text


def test_damaged_reason_of_a_hold_is_shown_with_its_task(site, world):
    before = links_of(site.get("/tasks").text)
    with site.services.transaction() as tx:
        tx.run("INSERT INTO task_holds VALUES (:id, CAST(x'ff' AS TEXT), NULL, NULL, 1.0)", id=world.nap)

    page = site.get("/tasks")

    assert links_of(page.text) == before
    assert r"held: \\xff" in page.text


def spoilt_pages(full, database, table: str, sample: list[tuple[str, str]], *, whole: bool) -> list[tuple[object, ...]]:
    """Return the pages that end with an error of their own or print raw text, with these values in these columns."""
    world, sound = full
    ids = (world.nap, world.asks, world.failed, world.waits)
    addresses = [
        *(path for path, _ in PAGES if "{" not in path),
        *(f"/tasks/{id}" for id in ids),
        *(f"/triggers/{id}" for id in (*ids, world.dead, world.waiting)),
        *(f"/records/{id}" for id in (world.died, world.ended)),
        *(f"/q/{world.question}", f"/activities/{world.in_doubt}", "/schedules/nightly", "/schedules/ahead"),
    ]
    wrong: list[tuple[object, ...]] = []
    shutil.copy(sound, database)
    with in_process(database) as site:
        for turn, (column, kind) in enumerate(sample):
            spoilt = database.with_name("spoilt.db")
            shutil.copy(sound, spoilt)
            if not spoil(spoilt, table, column, VALUES[kind]):
                continue
            os.replace(spoilt, database)
            for address in addresses if whole else addresses[turn % len(addresses) :: len(addresses)]:
                page = site.get(address)
                raw = [text for text in page.text.split("\n") if not text.isprintable()]
                if page.status_code not in (200, 303, 404, 503) or raw:
                    wrong.append((f"{table}.{column}", kind, address, page.status_code, raw[:1]))
    return wrong


@pytest.mark.parametrize("table", TABLES)
def test_damaged_column_causes_no_error_of_a_page(full, database, table):
    assert spoilt_pages(full, database, table, some_cells(sampled(full[1], table)), whole=False) == []


@pytest.mark.campaign
@pytest.mark.parametrize("table", TABLES)
def test_damaged_column_causes_no_error_of_any_page_with_every_value(full, database, table):
    every = [(column, kind) for column in columns(full[1], table) for kind in VALUES]

    assert spoilt_pages(full, database, table, every, whole=True) == []
