"""`/find`: the beginning of any id, exact names, and the searched fields."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from craftcore.executions.model import Status
from craftcore.storage.transaction import Reader
from craftcore.web.pages.find_store import LOOKED, SHOWN, FindStore
from tests.executions.test_listing_plans import fill, plans_of
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.trigger_steps import emit
from tests.triggers.test_claim_plans import steps_of, undone


def test_find_without_a_text_explains_its_input(site):
    page = site.get("/find")

    assert page.status_code == 200
    assert "Type the beginning of an id" in page.text


@pytest.mark.parametrize(
    ("name", "pages"),
    [("dead", "tasks"), ("died", "records"), ("asks", "tasks"), ("question", "q"), ("in_doubt", "activities")],
)
def test_whole_id_leads_to_its_page(site, world, name, pages):
    id = getattr(world, name)

    found = site.get(f"/find?q={quote(id, safe='')}")

    assert (found.status_code, found.headers["location"]) == (303, f"/{pages}/{quote(id, safe='')}")


def test_schedule_is_found_by_its_name(site):
    assert site.get("/find?q=nightly").headers["location"] == "/schedules/nightly"


def test_beginning_of_an_id_lists_all_matches(site, world):
    page = site.get(f"/find?q={world.question[:-3]}").text

    assert f'href="/q/{world.question}"' in page
    assert "What was searched" in page


def test_exact_workflow_links_to_its_tasks_and_triggers(site):
    page = site.get("/find?q=greet").text

    assert 'href="/tasks?workflow=greet"' in page
    assert 'href="/triggers?workflow=greet"' in page
    assert "did not declare it" in page or "Workflow" in page


@pytest.mark.parametrize("given", ["nothing-like-this", "%", "'; DROP TABLE triggers; --", "\u202e", "x" * 3000, "ß∂ƒ"])
def test_text_without_a_match_gets_the_list_of_searched_rows(site, given):
    page = site.get("/find", params={"q": given})

    assert page.status_code == 200
    assert "No id begins so." in page.text
    assert f"{LOOKED:,}" in page.text
    assert len(page.text) < 20_000


def test_find_shows_a_session_of_the_newest_rows(site):
    with site.services.transaction() as tx:
        tx.run("UPDATE triggers SET session_id = 's:ada' WHERE seq = (SELECT max(seq) FROM triggers)")

    assert "Session" in site.get("/find?q=s:ada").text


@pytest.fixture(scope="module")
def crowded_core(tmp_path_factory):
    core = VirtualCore(tmp_path_factory.mktemp("crowded_core") / "agent.db", VirtualClock())
    emit(core)
    with core.transaction() as tx:
        fill(tx, "fine-", 60_000, Status.SUCCESS)
    yield core
    core.close()


def search(tx: Reader, given: str) -> None:
    store = FindStore()
    store.list_ids(tx, given)
    store.is_workflow(tx, given)
    store.count_uses(tx, given)
    store.list_oldest(tx)


def test_ids_are_found_by_ranges_on_their_unique_indexes(crowded_core):
    plan = plans_of(crowded_core, lambda tx: FindStore().list_ids(tx, "fine-7"))

    indexes = ("triggers_id", "tasks_id", "executions_id", "questions_id", "activity_log_key")
    assert all(any(f"{index} (id" in line or f"{index} (idem_key" in line for line in plan) for index in indexes)
    assert not any(line.startswith("SCAN") or "TEMP B-TREE" in line for line in plan)


def test_search_for_names_reads_a_bounded_number_of_rows(crowded_core):
    plan = plans_of(crowded_core, lambda tx: search(tx, "greet"))

    scans = {line for line in plan if line.startswith("SCAN")}
    assert scans <= {"SCAN tasks", "SCAN triggers", "SCAN executions", "SCAN (subquery-1)", "SCAN CONSTANT ROW"}
    with undone(crowded_core) as tx:
        assert steps_of(tx, lambda: search(tx, "fine")) < 5_000


def test_matches_of_a_kind_are_limited(crowded_core):
    with crowded_core.reading() as reader:
        found = FindStore().list_ids(reader, "fine-")

    assert len(found) == SHOWN
    assert {one.kind for one in found} == {"record"}
