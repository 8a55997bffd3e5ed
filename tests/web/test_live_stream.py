"""`/live` over the socket of a real page: permitted listeners, sent fragments, and the end of the stream."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from craftcore.triggers.model import TriggerSpec
from craftcore.web.live.topics import LISTENERS_MAX
from tests.support.processes import APP, a_daemon, open_files, until
from tests.support.web_site import serving


@contextmanager
def open_stream(site, topics: str, person: str = "ada") -> Iterator[Iterator[tuple[str, str]]]:
    """Open a stream, and yield its events as topic and fragment."""
    with site.client(person).stream("GET", f"/live?topic={topics}") as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        yield events(response.iter_lines())


def events(lines: Iterator[str]) -> Iterator[tuple[str, str]]:
    topic, fragment = "", ""
    for line in lines:
        if line.startswith("event: "):
            topic = line.removeprefix("event: ")
        elif line.startswith("data: "):
            fragment += line.removeprefix("data: ") + "\n"
        elif not line and topic:
            yield topic, fragment
            topic, fragment = "", ""


def emit(site, seconds=600):
    services = site.services
    with services.transaction() as tx:
        return services.triggers.emit(tx, TriggerSpec(workflow="sync", at=services.clock.now() + seconds)).id


def test_listener_gets_its_topics_at_once_and_again_after_a_commit(served):
    with open_stream(served, "coming,now,verdict") as found:
        first = dict([next(found), next(found), next(found)])
        assert set(first) == {"coming", "now", "verdict"}

        id = emit(served)

        coming = next(fragment for topic, fragment in found if topic == "coming" and id in fragment)
        assert "The next 24 hours" in coming


def test_trigger_due_at_once_is_not_among_the_coming_ones(served):
    with open_stream(served, "coming,now") as found:
        due, later = emit(served, seconds=0), None
        for topic, fragment in found:
            if topic == "now" and due in fragment and later is None:
                later = emit(served)
            if topic == "coming":
                assert due not in fragment
                if later is not None and later in fragment:
                    return


def test_fragment_has_no_form_and_nothing_of_a_person(served):
    for person in ("ada", "bob"):
        with open_stream(served, "now,verdict,inbox", person) as found:
            fragments = dict([next(found), next(found), next(found)])

        assert set(fragments) == {"now", "verdict", "inbox"}
        text = "".join(fragments.values())
        assert not re.search(r"<(form|input|button|script)|\bon\w+=|style=", text)
        assert not re.search(r"\b(ada|bob|cal)\b", text)


def test_fragment_is_equal_to_that_of_the_page(served):
    with open_stream(served, "verdict,inbox") as found:
        fragments = dict([next(found), next(found)])

    page = " ".join(served.get("/").text.split())
    for fragment in fragments.values():
        assert " ".join(fragment.split()) in page


@pytest.mark.parametrize("topics", ["", "nothing", "now,nothing", "now" * 500])
def test_unknown_topic_is_refused(site, topics):
    assert site.get(f"/live?topic={topics}").status_code == 400


def test_stream_needs_a_login_and_ends_with_that(served):
    assert served.get("/live?topic=now", "").status_code == 403

    with open_stream(served, "verdict", "cal") as found:
        next(found)
        assert served.post("/logout", {}, "cal").status_code == 303
        emit(served, seconds=0)  # the verdict includes the trigger
        assert all(topic == "verdict" for topic, _ in found)  # the stream ends without a request of the client


def test_stream_ends_with_the_page(served):
    with open_stream(served, "verdict") as found:
        next(found)
        served.process.terminate()
        assert list(found) == []

    assert served.process.wait() == 0


def test_page_opens_the_file_only_for_readers(served):
    assert open_files(served.process.pid, served.database) == []
    served.get("/now")
    until(lambda: open_files(served.process.pid, served.database) == [], "the file was closed again")

    with open_stream(served, "verdict") as found:
        next(found)
        assert open_files(served.process.pid, served.database)

    until(lambda: open_files(served.process.pid, served.database) == [], "the end of the watch")


def test_listeners_beyond_the_limit_are_refused_and_pages_still_answer(served):
    cookie = "; ".join(f"{name}={value}" for name, value in dict(served.client("ada").cookies or {}).items())
    if not cookie:
        served.get("/")
        cookie = "; ".join(f"{name}={value}" for name, value in dict(served.client("ada").cookies).items())
    request = f"GET /live?topic=verdict HTTP/1.1\r\nHost: localhost\r\nCookie: {cookie}\r\n\r\n".encode()
    sockets = []
    try:
        for _ in range(LISTENERS_MAX):
            caller = socket.socket(socket.AF_UNIX)
            caller.connect(str(served.socket))
            sockets.append(caller)
            caller.sendall(request)
            assert caller.recv(64).startswith(b"HTTP/1.1 200")

        assert served.get("/live?topic=verdict").status_code == 503
        assert served.get("/now").status_code == 200
    finally:
        for caller in sockets:
            caller.close()
    until(lambda: open_files(served.process.pid, served.database) == [], "the end of all")


def test_kill_of_the_daemon_changes_the_verdict_of_a_listener(database, tmp_path):
    (tmp_path / "app.py").write_text(APP)
    with serving(database) as site, a_daemon(tmp_path, "app:app") as daemon:
        daemon.ready()
        with open_stream(site, "verdict") as found:
            next(fragment for _, fragment in found if "no daemon runs" not in fragment)

            daemon.kill()

            assert "down: no daemon runs" in next(fragment for _, fragment in found if "no daemon" in fragment)


def test_stream_survives_a_file_that_disappears_and_returns(served, tmp_path):
    served.services.close()
    with open_stream(served, "verdict") as found:
        next(found)
        served.database.rename(tmp_path / "away")
        next(fragment for _, fragment in found if "no such database" in fragment)

        (tmp_path / "away").rename(served.database)

        next(fragment for _, fragment in found if "no such database" not in fragment)
