"""The pages of tasks and records, requested from a real page."""

from __future__ import annotations

import re

from craftcore.tasks.stream_chunks import Written
from craftcore.tasks.stream_store import StreamStore
from tests.support.record_steps import spoil, strip
from tests.support.web_site import forms


def write(site, sql, **params):
    """Change the file without the guards of its tables."""
    with site.services.transaction() as tx:
        tx.run(sql, **params)


def record_of(site, task):
    with site.services.reading() as reader:
        return reader.fetch_value("SELECT id FROM executions WHERE task_id = :id ORDER BY seq DESC LIMIT 1", id=task)


def test_tasks_are_listed_newest_first_with_status_and_reason(site, world):
    page = site.get("/tasks")

    assert page.status_code == 200
    places = [page.text.index(f'href="/tasks/{id}"') for id in (world.asks, world.failed, world.waits, world.nap)]
    assert places == sorted(places)
    assert "WAITING" in page.text
    assert "look further back" not in page.text


def test_task_filter_finds_matches_and_names_its_span(site, world):
    lobby = site.get("/tasks?session=lobby").text
    assert f'href="/tasks/{world.asks}"' in lobby
    assert f'href="/tasks/{world.nap}"' not in lobby

    failed = site.get("/tasks?status=failed").text
    assert f'href="/tasks/{world.failed}"' in failed
    assert f'href="/tasks/{world.asks}"' not in failed

    none = site.get("/tasks?workflow=nosuch").text
    assert "None among the newest 20,000 tasks" in none
    assert site.get("/tasks?status=nosuch").status_code == 400


def test_task_list_is_paged_by_the_number_of_the_row(site, world):
    columns = "id, workflow, session_id, status, turn, state_json, created_at, updated_at, ended_at"
    write(
        site,
        f"""WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 120)
        INSERT INTO tasks ({columns})
        SELECT 'many-' || n, 'many', NULL, 'DONE', 1, 'null', n, n, n FROM numbers""",
    )
    seen: list[str] = []
    address = "/tasks"
    while address:
        text = site.get(address).text
        found = re.findall(r'href="/tasks/([^"?]+)"', text)
        assert len(found) <= 50
        seen += found
        older = re.search(r'<p class="more"><a href="([^"]+)"', text)
        address = "" if older is None else older[1].replace("&amp;", "&")

    assert [id for id in seen if id.startswith("many-")] == [f"many-{n}" for n in range(120, 0, -1)]
    assert len(seen) == len(set(seen))
    assert world.asks in seen


def test_task_page_has_reason_picture_table_question_and_actions(site, world):
    text = site.get(f"/tasks/{world.asks}").text

    assert "waits for an answer" in text
    assert "<svg " in text
    assert "style=" not in text
    assert f'href="/q/{world.question}"' in text
    assert f'href="/records/{record_of(site, world.asks)}"' in text
    assert f'href="/tasks/{world.asks}/cancel"' in text
    svg = text[text.index("<svg ") : text.index("</svg>")]
    table = text[text.index('id="events"') : text.index("<h2>Questions")]
    assert svg.count("<g class=") == svg.count("<title>")
    assert svg.count("<g class=") - svg.count('<g class="fold">') == table.count("<tr><td"), "the table has each mark"


def test_task_page_without_permission_has_no_form_and_no_payload(site, world):
    write(site, "UPDATE tasks SET progress_json = :text WHERE id = :id", text='{"done":"quite"}', id=world.asks)
    assert "quite" in site.get(f"/tasks/{world.asks}").text

    text = site.get(f"/tasks/{world.asks}", "bob").text
    assert [form.action for form in forms(text)] == ["/logout"]
    assert "quite" not in text
    assert "(not shown)" in text


def test_payload_of_an_event_is_masked_by_the_name_of_its_key(site, world):
    spoil(
        site.services,
        """
        INSERT INTO event_rows (execution_seq, seq, type, at, payload_json, task_seq, turn)
        SELECT executions.seq, 1 + max(events.seq), 'NOTE', max(events.at), :text, tasks.seq, executions.turn
          FROM tasks
          JOIN executions ON task_id = tasks.id
          JOIN events ON events.execution_seq = executions.seq
         WHERE tasks.id = :id
        """,
        id=world.asks,
        text='{"data":{"password":"hunter2","city":"Rome"},"key":null,"name":"login"}',
    )
    for address in (f"/tasks/{world.asks}", f"/records/{record_of(site, world.asks)}", f"/q/{world.question}"):
        text = site.get(address).text
        assert "hunter2" not in text
        assert "Rome" in text
        assert "Rome" not in site.get(address, "bob").text


def test_all_events_of_a_long_task_are_reached_from_its_page(site, world):
    """The picture has the newest events; links lead to the earlier ones, over all records of the task."""
    with site.services.reading() as reader:
        newest = reader.fetch_value(
            "SELECT max(events.seq) FROM executions JOIN events ON events.execution_seq = executions.seq "
            "WHERE executions.id = :id",
            id=record_of(site, world.asks),
        )
    added = 750
    spoil(
        site.services,
        """
        WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :added)
        INSERT INTO event_rows (execution_seq, seq, type, at, payload_json, task_seq, turn)
        SELECT executions.seq, :newest + n, 'NOTE', tasks.created_at + n, '{"data":null,"key":"'||n||'","name":"far"}',
               tasks.seq, executions.turn
          FROM tasks
          JOIN executions ON task_id = tasks.id
          JOIN numbers
         WHERE tasks.id = :id
        """,
        id=world.asks,
        newest=newest,
        added=added,
    )
    seen: set[str] = set()
    address = f"/tasks/{world.asks}"
    first = site.get(address).text
    for text in (first, site.get(f"{address}?events=500").text, site.get(f"{address}?events=9999").text):
        assert f"The newest {100 if text is first else 500} events; there are more" in text
    [address] = re.findall(r'<a href="([^"]+)">Events before these', first)
    pages = 0
    while address:
        text = site.get(address.replace("&amp;", "&")).text
        seen |= set(re.findall(r"far/\d+", text))
        [address] = re.findall(r'<p class="more"><a href="([^"]+)"', text) or [""]
        pages += 1
    assert seen == {f"far/{n}" for n in range(1, added - 100 + 1)}
    assert pages <= 9


def test_task_with_large_payloads_has_no_link_to_more_events(site, world):
    spoil(
        site.services,
        """
        INSERT INTO event_rows (execution_seq, seq, type, at, payload_json, task_seq, turn)
        SELECT executions.seq, 1000 + value, 'NOTE', tasks.created_at + value,
               json_object('data', printf('%.*c', 2000000, 'x'), 'key', value, 'name', 'large'), tasks.seq,
               executions.turn
          FROM tasks
          JOIN executions ON task_id = tasks.id
          JOIN json_each('[1, 2, 3]')
         WHERE tasks.id = :id
        """,
        id=world.asks,
    )

    text = site.get(f"/tasks/{world.asks}").text

    assert "The newest 2 events; there are more." in text
    assert "Events before these" in text
    assert "Show the newest" not in text


def test_record_links_to_the_previous_attempt(site, world):
    with site.services.reading() as reader:
        ids = [
            id
            for (id,) in reader.fetch_tuples(
                "SELECT id FROM executions WHERE task_id = ?1 ORDER BY seq DESC", (world.failed,)
            )
        ]
    links = [
        re.findall(r'<a href="/records/([^"]+)">the previous attempt', site.get(f"/records/{id}").text) for id in ids
    ]
    assert links == [*([before] for before in ids[1:]), []]


def test_unknown_task_and_record_are_not_found(site):
    assert site.get("/tasks/nosuch").status_code == 404
    assert site.get("/records/nosuch").status_code == 404


def test_failed_task_offers_a_retry_which_is_logged(site, world):
    page = f"/tasks/{world.failed}"

    sent = site.send(page, f"/tasks/{world.failed}/retry")

    assert sent.status_code == 303
    text = site.get(sent.headers["location"]).text
    assert "the task goes on" in text
    assert "task retry" in text[text.index("<h2>Operator actions") :]


def test_record_page_verifies_the_seal_and_reports_a_broken_seal(site, world):
    assert "as it was written: place" in site.get(f"/records/{world.ended}").text

    spoil(site.services, "UPDATE executions SET response_json = '{}' WHERE id = :id", id=world.ended)

    text = site.get(f"/records/{world.ended}").text
    assert "its response is not the one that its hash was made of" in text
    assert "as it was written: place" not in text


def test_record_page_of_a_dead_letter_offers_its_retry(site, world):
    text = site.get(f"/records/{world.died}").text

    assert f"execution retry {world.died} --reason TEXT</code>" in text
    assert f'href="/records/{world.died}/retry"' in text
    assert [form.action for form in forms(site.get(f"/records/{world.died}", "bob").text)] == ["/logout"]


def test_stripped_record_is_marked_and_keeps_its_seal(site, world):
    strip(site.services, world.ended)

    text = site.get(f"/records/{world.ended}").text

    assert "Retention stripped its bodies" in text
    assert 'class="failed">' not in text


def test_task_page_shows_the_conversation_of_its_session_masked(site, world):
    write(
        site, "UPDATE session_messages SET message_json = :text WHERE number = 2", text='{"password":"§x","text":"ho"}'
    )

    text = site.get(f"/tasks/{world.asks}").text
    shown = text[text.index('id="conversation"') : text.index("<h2>Attempts")]
    assert "session lobby" in shown
    assert shown.index("hello") < shown.index("***")
    assert "§x" not in text

    assert "hello" not in site.get(f"/tasks/{world.asks}", "bob").text
    assert 'id="conversation"' not in site.get(f"/tasks/{world.nap}").text


def test_task_page_shows_the_end_of_each_stream_as_text(site, world):
    with site.services.transaction() as tx:
        seq = tx.fetch_value("SELECT seq FROM tasks WHERE id = :id", id=world.asks)
        opened = StreamStore().open(tx, seq, 1, "answer")
        StreamStore().add_all(tx, [Written(opened.seq, 1, "", ["x" * 5_000, "<script>the end"])])

    text = site.get(f"/tasks/{world.asks}").text

    assert "<h2>Streams</h2>" in text
    assert "&lt;script&gt;the end" in text
    assert "x" * 4_001 not in text
    write(site, "UPDATE stream_chunks SET texts_json = CAST(x'5bff' AS TEXT)")
    assert "some chunks are damaged" in site.get(f"/tasks/{world.asks}").text
