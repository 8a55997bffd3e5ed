"""The pages of triggers, dead letters and operator actions."""

from __future__ import annotations

import html
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from craftcore.audit.model import Actor
from craftcore.audit.store import audit
from craftcore.clock import SystemClock
from craftcore.triggers.backoff import RetryPolicy
from craftcore.triggers.settlement import Failed, Outcome, Succeeded
from tests.support.attempts import begin, end
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.populated_database import World
from tests.support.trigger_steps import emit
from tests.support.web_site import SETTINGS, Site, forms, in_process

ONCE = RetryPolicy(max_attempts=1)
LATE = Failed(code="AGENT_TIMEOUT", message="it took too long", retryable=True)
BROKEN = Failed(code="AGENT_ERROR", message="it broke", retryable=True)


def words_of(text: str) -> str:
    """Return the text of a page without its markup."""
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", text)).split())


def links_of(text: str, word: str) -> list[str]:
    """Return the addresses of the links with this text."""
    return [html.unescape(address) for address in re.findall(rf'<a href="([^"]*)">{word}</a>', text)]


def a_core(path: Path, *, seed: int = 4) -> VirtualCore:
    return VirtualCore(path, VirtualClock(now=SystemClock().now(), seed=seed))


def end_attempt(core: VirtualCore, outcome: Outcome, **spec: object) -> str:
    """Run a single attempt of a new trigger to this outcome, and return the id of the trigger."""
    running = begin(core, **spec)
    end(core, running, outcome, ONCE)
    return running.claim.id


@pytest.fixture(scope="module")
def dead_letters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a database with sixty dead letters of one error and two of another."""
    path = tmp_path_factory.mktemp("dead_letters") / "agent.db"
    core = a_core(path)
    for _ in range(60):
        end_attempt(core, LATE)
    for _ in range(2):
        end_attempt(core, BROKEN)
    core.close()
    return path


@pytest.fixture
def site_of_dead_letters(dead_letters: Path, tmp_path: Path) -> Iterator[tuple[Site, VirtualCore]]:
    """Serve a copy of the database for one test."""
    shutil.copy(dead_letters, tmp_path / "agent.db")
    with in_process(tmp_path / "agent.db") as site:
        core = a_core(tmp_path / "agent.db", seed=5)
        yield site, core
        core.close()


def count_dead(core: VirtualCore) -> int:
    [row] = core.rows("SELECT count(*) AS dead FROM triggers WHERE status = 'DEAD'")
    core.close()
    return int(row["dead"])


def test_dead_letters_are_shown_by_error_and_then_each(site_of_dead_letters):
    site, _ = site_of_dead_letters

    text = site.get("/dead").text

    words = words_of(text)
    assert "AGENT_TIMEOUT 60" in words
    assert "AGENT_ERROR 2" in words
    assert words.index("AGENT_TIMEOUT 60") < words.index("AGENT_ERROR 2")
    shown, address = [], "/dead"
    while address:
        page = site.get(address).text
        shown.append(page.count('data-label="Buried"'))
        [address] = links_of(page, "older") or [""]
    assert shown == [25, 25, 12]
    [of_error] = links_of(text, "AGENT_ERROR")
    assert site.get(of_error).text.count('data-label="Buried"') == 2


@pytest.mark.parametrize(("verb", "left"), [("requeue", "PENDING"), ("discard", "FAILED")])
def test_dead_letters_of_an_error_are_changed_after_a_confirmation(site_of_dead_letters, verb, left):
    site, core = site_of_dead_letters
    address = f"/dead/{verb}"
    [form] = [form for form in forms(site.get("/dead").text) if form.action == address][:1]

    asked = site.post(address, {**form.hidden, "error": "AGENT_TIMEOUT"})
    before = count_dead(core)
    [again] = [form for form in forms(asked.text) if form.action == address]
    sent = site.post(address, {**again.hidden, "error": "AGENT_TIMEOUT"})

    assert (asked.status_code, before, sent.status_code) == (200, 62, 303)
    assert "60 dead letters" in site.get(sent.headers["location"]).text
    assert count_dead(core) == 2
    [changed] = core.rows("SELECT count(*) AS changed FROM triggers WHERE status = :left", left=left)
    assert changed["changed"] == 60
    rows = core.rows("SELECT DISTINCT action FROM audit_log")
    core.close()
    assert [row["action"] for row in rows] == [f"dead {verb} --all"]


def test_single_dead_letter_is_requeued(site_of_dead_letters):
    site, core = site_of_dead_letters
    address = next(form.action for form in forms(site.get("/dead").text) if form.action.startswith("/triggers/"))

    assert site.send("/dead", address).status_code == 303

    assert count_dead(core) == 61


def test_empty_database_has_its_empty_states(tmp_path):
    a_core(tmp_path / "agent.db").close()
    with in_process(tmp_path / "agent.db") as site:
        assert "No dead letters." in site.get("/dead").text
        assert "No triggers." in site.get("/triggers").text
        assert "No operator actions." in site.get("/audit").text


def test_corrupt_dead_letter_can_only_be_discarded(site_of_dead_letters):
    site, core = site_of_dead_letters
    [id] = (row["id"] for row in core.rows("SELECT id FROM triggers WHERE status = 'DEAD' LIMIT 1"))
    with core.transaction() as tx:
        tx.run(
            """
            UPDATE triggers
               SET error_code = NULL,
                   reason     = 'corrupt row',
                   settled_at = :now + 8
             WHERE id = :id
            """,
            id=id,
        )
    core.close()

    text = site.get("/dead").text

    assert f"/triggers/{id}/discard" in text
    assert f"/triggers/{id}/requeue" not in text


def test_person_without_permission_changes_no_dead_letter(site_of_dead_letters):
    site, core = site_of_dead_letters

    text = site.get("/dead", "bob").text

    assert [form.action for form in forms(text)] == ["/logout"]
    refused = site.post("/dead/discard", {"error": "AGENT_ERROR", "once": "x", "confirmed": "1"}, "bob")
    assert refused.status_code == 403
    assert count_dead(core) == 62


@pytest.fixture(scope="module")
def sixty_triggers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a database with sixty triggers, one of them in the session `lobby`."""
    path = tmp_path_factory.mktemp("sixty") / "agent.db"
    core = a_core(path)
    for number in range(60):
        emit(core, workflow="sweep", session_id="lobby" if number == 3 else None, payload={"token": "s3cret", "x": 1})
    core.close()
    return path


@pytest.fixture
def site_of_triggers(sixty_triggers: Path, tmp_path: Path) -> Iterator[tuple[Site, VirtualCore]]:
    """Serve a copy of the database for one test."""
    shutil.copy(sixty_triggers, tmp_path / "agent.db")
    with in_process(tmp_path / "agent.db") as site:
        core = a_core(tmp_path / "agent.db", seed=5)
        yield site, core
        core.close()


def test_triggers_are_paged_newest_first(site_of_triggers):
    site, core = site_of_triggers
    ids = [row["id"] for row in core.rows("SELECT id FROM triggers ORDER BY seq DESC")]
    core.close()

    first = site.get("/triggers").text
    [older] = links_of(first, "older")
    second = site.get(older).text

    found = re.findall(r'data-label="Trigger"><a href="/triggers/([^"]*)"', first + second)
    assert found == ids


def test_filter_of_triggers_states_the_end_of_its_search(site_of_triggers):
    site, _ = site_of_triggers

    found = words_of(site.get("/triggers?session=lobby").text)
    none = words_of(site.get("/triggers?workflow=none&status=pending").text)

    assert "1 among the newest 20,000 triggers, back to" in found
    assert "None among the newest 20,000 triggers, back to" in none
    assert "which are all" in none


def test_filter_continues_after_its_last_row(site_of_triggers):
    site, core = site_of_triggers
    with core.transaction() as tx:
        tx.run("UPDATE triggers SET seq = seq + 50000 WHERE seq > 30")
    core.close()

    first = site.get("/triggers?session=lobby").text
    [further] = links_of(first, "look further back")
    second = site.get(further).text

    assert 'data-label="Trigger"' not in first
    assert second.count('data-label="Trigger"') == 1
    assert "among the next 20,000 triggers" in second


def test_unknown_status_is_refused_with_the_valid_ones(site_of_triggers):
    site, _ = site_of_triggers

    answer = site.get("/triggers?status=lost")

    assert answer.status_code == 400
    assert "it must be one of PENDING, CLAIMED, DONE, FAILED, DEAD" in answer.text


def test_trigger_page_has_its_row_its_reason_and_a_masked_payload(site_of_triggers):
    site, core = site_of_triggers
    [row] = core.rows("SELECT id FROM triggers WHERE session_id = 'lobby'")
    core.close()

    text = site.get(f"/triggers/{row['id']}").text

    words = words_of(text)
    assert "no daemon runs" in words
    assert "SELECT" in words
    assert "Not started yet." in words
    assert "s3cret" not in text
    assert '"token": "***"' in words
    assert links_of(text, "operator actions on it") == [f"/audit?subject={row['id']}"]
    assert f"/triggers/{row['id']}/cancel" in text


def test_attempts_of_a_trigger_lead_to_their_records(site_of_dead_letters):
    site, core = site_of_dead_letters
    [row] = core.rows("SELECT id FROM triggers WHERE error_code = 'AGENT_ERROR' LIMIT 1")
    core.close()

    text = site.get(f"/triggers/{row['id']}").text

    assert f'href="/records/exec-{row["id"]}.1"' in text
    assert "AGENT_ERROR: it broke" in words_of(text)
    assert {f"/triggers/{row['id']}/requeue"} <= {form.action for form in forms(text)}


def test_deleted_trigger_leads_to_its_record(tmp_path):
    core = a_core(tmp_path / "agent.db")
    gone = end_attempt(core, Succeeded())
    with core.transaction() as tx:
        tx.run("DELETE FROM triggers WHERE id = :id", id=gone)
    core.close()
    with in_process(tmp_path / "agent.db") as site:
        answer = site.get(f"/triggers/{gone}")
        unknown = site.get("/triggers/0192")

    assert answer.status_code == 404
    assert "Deleted by retention; see its record." in answer.text
    assert f'href="/records/exec-{gone}.1"' in answer.text
    assert unknown.status_code == 404
    assert "no trigger has the id" in unknown.text


def test_audit_names_person_and_channel(site, world):
    site.send("/schedules/nightly", "/schedules/nightly/run")
    site.post("/schedules/nightly/pause", {**pause_fields(site), "reason": "disk swap"})

    text = site.get("/audit").text

    words = words_of(text)
    assert "ada, by the page (" in words
    assert "web schedule pause" in words
    assert "disk swap" in words
    assert words.index("schedule pause") < words.index("schedule run-now")


def pause_fields(site: Site) -> dict[str, str]:
    """Return the hidden fields of the form that pauses `nightly`."""
    [form] = [form for form in forms(site.get("/schedules/nightly/pause").text) if form.action.endswith("/pause")]
    return dict(form.hidden)


@pytest.fixture(scope="module")
def audit_site(made: tuple[World, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Serve a database in which Ada has run and paused a schedule. The tests only read."""
    path = tmp_path_factory.mktemp("audited") / "agent.db"
    shutil.copy(made[1], path)
    with in_process(path) as site:
        site.send("/schedules/nightly", "/schedules/nightly/run")
        site.post("/schedules/nightly/pause", {**pause_fields(site), "reason": "disk swap"})
        yield site


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("action=schedule", 2),
        ("action=schedule+pause", 1),
        ("action=task", 0),
        ("by=ada", 2),
        ("by=eve", 0),
        ("subject=nightly", 2),
        ("subject=nightly&action=schedule+run-now", 1),
        ("subject=none", 0),
    ],
)
def test_audit_filters_find_matching_rows(audit_site, query, count):
    text = audit_site.get(f"/audit?{query}").text

    assert text.count('data-label="Action"') == count


def test_audit_is_paged_and_refuses_an_impossible_user(site):
    with site.services.transaction() as tx:
        for number in range(51):
            audit(tx, Actor(uid=1000, name="ada"), "schedule run-now", "nightly", reason=f"run {number}")

    first = site.get("/audit").text
    [older] = links_of(first, "older")

    assert first.count('data-label="Action"') == 50
    assert site.get(older).text.count('data-label="Action"') == 1
    assert site.get("/audit?by=99999999999").status_code == 400


@pytest.mark.parametrize(
    ("payloads", "person", "shown"),
    [("folded", "ada", True), ("folded", "bob", False), ("hidden", "ada", False), ("shown", "bob", True)],
)
def test_changed_payload_in_the_audit_follows_the_setting(tmp_path, payloads, person, shown):
    core = a_core(tmp_path / "agent.db")

    changed = {"before": {"city": "Ulm"}, "after": {"city": "Bonn", "token": "s3cret"}}
    core.do(audit, Actor(uid=1000, name="ada"), "schedule edit", "nightly", details={"payload": changed, "change": "x"})
    core.close()
    settings = SETTINGS.replace("[web]\n", f'[web]\npayloads = "{payloads}"\n', 1)
    with in_process(tmp_path / "agent.db", settings=settings) as site:
        text = site.get("/audit", person).text

    assert ("Bonn" in text) is shown
    assert "s3cret" not in text
    assert "change" in text


def test_cut_payload_of_an_older_audit_row_shows_no_secret(tmp_path):
    """A row of an earlier version keeps both ends of a long payload; the key of the last value may be cut off."""
    core = a_core(tmp_path / "agent.db")
    sides = [
        '{"city":"Ulm","token":"s3cret',
        '{"city":"Bonn","pass[... 90 characters cut ...]word":"s3cret"}',
        '{"city":"Rome","note":"x[... 90 characters cut ...]s3cret"}',
    ]
    for side in sides:
        details = {"payload": {"before": side, "after": {}}, "was": side}
        core.do(audit, Actor(uid=1000, name="ada"), "schedule edit", "nightly", details=details)
    core.close()
    with in_process(tmp_path / "agent.db") as site:
        text = site.get("/audit").text

    assert "s3cret" not in text
    assert all(city in text for city in ("Ulm", "Bonn", "Rome"))


@pytest.fixture(scope="module")
def site_of_long_messages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Serve sixty dead letters with long messages. The tests only read."""
    path = tmp_path_factory.mktemp("verbose") / "agent.db"
    core = a_core(path)
    for _ in range(60):
        end_attempt(core, Failed(code="AGENT_ERROR", message="it <broke> " * 1_000, retryable=True))
    core.close()
    with in_process(path) as site:
        yield site


@pytest.mark.parametrize("address", ["/dead", "/triggers", "/triggers?status=dead"])
def test_list_of_long_messages_stays_small(site_of_long_messages, address):
    answer = site_of_long_messages.get(address)

    assert "it &lt;broke&gt;" in answer.text
    assert len(answer.content) < 100_000
