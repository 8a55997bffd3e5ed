"""Pages of an unreadable, restored, damaged, full or locked database: an explanation, and no stack trace."""

from __future__ import annotations

import os
import resource
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import apsw
import pytest

from tests.support.processes import APP, a_daemon, until
from tests.support.web_site import forms, serving

ADDRESSES = ("/", "/tasks", "/schedules", "/doubt", "/health", "/dead", "/audit", "/triggers", "/now")


def change(database, statement, *bindings):
    connection = apsw.Connection(str(database))
    for (guard,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
        connection.execute(f"DROP TRIGGER {guard}")
    connection.execute(statement, bindings)
    connection.close()


def remove(database):
    for end in ("", "-wal", "-shm"):
        if os.path.exists(f"{database}{end}"):
            os.unlink(f"{database}{end}")


def write_garbage(database):
    remove(database)
    database.write_bytes(b"this is no database, and it is longer than one page of one" * 200)


STATES = {
    "newer": (
        lambda path: change(path, "UPDATE schema_migrations SET name = '9999_future' WHERE rowid = 1"),
        "a newer craftcore",
    ),
    "older": (
        lambda path: change(
            path, "DELETE FROM schema_migrations WHERE rowid = (SELECT max(rowid) FROM schema_migrations)"
        ),
        "db migrate",
    ),
    "missing": (remove, "no such database"),
    "no database": (write_garbage, "not an SQLite database"),
}


@pytest.mark.parametrize("state", STATES)
def test_unreadable_database_has_a_page_with_the_reason(site, state):
    make, expected = STATES[state]
    assert site.get("/").status_code == 200

    make(site.database)

    for address in ADDRESSES:
        found = site.get(address)
        assert found.status_code in (404, 503) or expected in found.text, address
        assert expected in found.text, address
        assert "Traceback" not in found.text
    assert site.get("/up").status_code == 503


def test_restored_database_is_shown_and_changed_without_a_new_start(site, world, tmp_path):
    shutil.copy(site.database, tmp_path / "restored.db")
    [form] = [form for form in forms(site.get("/schedules/nightly/pause").text) if form.action.endswith("/pause")]
    site.post(form.action, form.hidden)
    assert "PAUSED" in site.get("/schedules/nightly").text

    remove(site.database)
    os.replace(tmp_path / "restored.db", site.database)

    assert "ACTIVE" in site.get("/schedules/nightly").text
    sent = site.send(f"/q/{world.question}", f"/q/{world.question}/answer", option="0")
    assert sent.status_code == 303
    assert "answered" in site.get(sent.headers["location"]).text


def test_full_disk_refuses_an_action_with_the_reason(database, world):
    """A limit of the file size acts as the full disk: the process can write no more bytes."""
    with serving(database) as site:
        [form] = [one for one in forms(site.get(f"/q/{world.question}").text) if one.action.endswith("/answer")]
        resource.prlimit(site.process.pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))

        refused = site.post(form.action, {**form.hidden, "option": "0"})

        assert refused.status_code == 503
        assert "nothing was written" in refused.text
        resource.prlimit(site.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert site.post(form.action, {**form.hidden, "option": "0"}).status_code == 303


def test_forms_that_wait_for_the_write_lock_keep_no_page_from_being_read(site):
    pages = [site.get("/schedules/nightly").text for _ in range(6)]
    sent = [next(form for form in forms(page) if form.action.endswith("/run")) for page in pages]

    with ThreadPoolExecutor(len(sent)) as pool, closing(apsw.Connection(str(site.database))) as other:
        other.execute("BEGIN IMMEDIATE")
        answers = [pool.submit(site.post, form.action, form.hidden) for form in sent]
        read = [site.get(address).status_code for address in ("/up", "/now", "/schedules/nightly")]
        waiting = sum(not answer.done() for answer in answers)
        other.execute("ROLLBACK")

    assert read[1:] == [200, 200]
    assert waiting > len(sent) // 2
    statuses = [answer.result().status_code for answer in answers]
    assert {*statuses} <= {303, 503}, statuses
    account = site.get("/schedules/nightly").text.partition("All occurrences")[2]
    assert account.count("(run-now)") == statuses.count(303) > 0


def test_killed_daemon_is_down_and_a_killed_page_does_not_affect_the_daemon(tmp_path):
    (tmp_path / "app.py").write_text(APP)
    with a_daemon(tmp_path, "app:app") as daemon:
        daemon.ready()
        with serving(tmp_path / "agent.db") as site:
            until(lambda: site.get("/up", "").status_code == 200, "the daemon on the page")
            site.process.send_signal(signal.SIGKILL)
            site.process.wait()
        assert daemon.process.poll() is None
        with serving(tmp_path / "agent.db") as site:
            assert site.get("/up", "").status_code == 200
            daemon.kill()
            until(lambda: site.get("/up", "").status_code == 503, "the end of the daemon on the page", timeout=12)
            assert "down" in site.get("/doubt").text
