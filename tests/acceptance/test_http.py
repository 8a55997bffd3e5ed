"""`http.request` from the command line through real daemons: secrets, and recovery after a daemon is killed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.http_provider import Provider, a_provider, answers_too_late, done_and, once
from tests.support.processes import DaemonProcess, a_daemon, craftcore, until

SECRET = "sk-correct/horse+battery"
CHARGE = {"method": "POST", "target": "payments", "url": "charges", "json": {"amount": 500}}


@pytest.fixture
def provider() -> Iterator[Provider]:
    with a_provider() as provider:
        yield provider


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "app.py").write_text("from craftcore import App\napp = App()\n")
    return tmp_path


@contextmanager
def running_daemon(folder: Path, provider: Provider, *, dedupes: bool) -> Iterator[DaemonProcess]:
    (folder / "craftcore.toml").write_text(
        f"""
        [retry]
        base_seconds = 0
        [http.target.payments]
        base_url = "{provider.url}/v1"
        headers = {{ Authorization = {{ secret = "env:PAYMENTS_KEY", prefix = "Bearer " }} }}
        provider_dedupes = {json.dumps(dedupes)}
        allow_private = true
        """
    )
    with a_daemon(folder, "app:app", CRAFTCORE_CONFIG="craftcore.toml", PAYMENTS_KEY=SECRET) as daemon:
        yield daemon.ready()


def emit(folder: Path) -> str:
    emitted = craftcore(folder, "--json", "emit", "http.request", "--payload", json.dumps(CHARGE))
    assert emitted.code == 0, emitted.err
    task_id: str = emitted.json["id"]
    return task_id


def wait_for_end(folder: Path, task_id: str) -> Any:
    """Return the task after its end."""

    def has_ended() -> bool:
        shown = craftcore(folder, "--json", "task", "show", task_id)
        return shown.code == 0 and shown.json["status"] in ("DONE", "FAILED", "CANCELLED")

    until(has_ended, f"task {task_id} to end")
    return craftcore(folder, "--json", "task", "show", task_id).json


@pytest.mark.acceptance
def test_http_request_from_the_command_line_is_made_and_the_secret_is_not_stored(folder, provider):
    with running_daemon(folder, provider, dedupes=False) as daemon:
        done = wait_for_end(folder, emit(folder))
        log = daemon.log

    assert done["status"] == "DONE"
    assert done["result"]["provider_ref"] == "made-1"
    [request] = provider.asked
    assert (request.method, request.path) == ("POST", "/v1/charges")
    assert request.headers["authorization"] == f"Bearer {SECRET}"
    stored = b"".join(path.read_bytes() for path in folder.iterdir() if path.is_file())
    assert b'"amount":500' in stored
    assert SECRET.encode() not in stored
    assert SECRET not in log


def test_http_request_of_a_killed_daemon_is_put_to_a_person(folder, provider):
    provider.behaviour = once(done_and(answers_too_late))
    with running_daemon(folder, provider, dedupes=False) as daemon:
        task_id = emit(folder)
        until(provider.began.is_set, "the provider to have done it")
        daemon.kill()
    with running_daemon(folder, provider, dedupes=False):
        [question] = until(lambda: craftcore(folder, "--json", "inbox", "list").json, "a question")
        assert question["task_id"] == task_id
        assert craftcore(folder, "inbox", "answer", question["id"], "happened").code == 0
        assert wait_for_end(folder, task_id)["status"] == "DONE"

    assert len(provider.effects) == 1


@pytest.mark.acceptance
def test_http_request_of_a_killed_daemon_is_repeated_for_a_deduplicating_provider(folder, provider):
    provider.behaviour = once(done_and(answers_too_late))
    provider.honours_keys = True
    with running_daemon(folder, provider, dedupes=True) as daemon:
        task_id = emit(folder)
        until(provider.began.is_set, "the provider to have done it")
        daemon.kill()
    with running_daemon(folder, provider, dedupes=True):
        assert wait_for_end(folder, task_id)["result"]["provider_ref"] == "made-1"
        assert craftcore(folder, "--json", "inbox", "list").json == []

    assert len(provider.effects) == 1
    assert len({request.key for request in provider.asked}) == 1
