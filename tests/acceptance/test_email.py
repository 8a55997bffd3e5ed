"""`email.send` from the command line through real daemons: delivery, and recovery after a daemon is killed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal

from tests.support.dovecot import USER, a_dovecot
from tests.support.processes import DaemonProcess, a_daemon, craftcore, until
from tests.support.smtp_peers import Conversation, Reply, Scripted, a_server, hangs, says_in_turn

EXAMPLES = Path(__file__).parents[2] / "examples"
PASSWORD = "correct/horse+battery=staple"
MAIL = {"to": ["Ada <ada@example.net>"], "subject": "Hello", "body": "Hello Ada"}


@contextmanager
def a_provider(**replies: Reply) -> Iterator[Scripted]:
    """Run a mail server beside the daemons; its `messages` are the accepted ones."""
    with start_blocking_portal() as portal:
        with portal.wrap_async_context_manager(a_server(None, None, **replies)) as server:
            yield server


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "app.py").write_text("from craftcore import App\napp = App()\n")
    return tmp_path


def configure(folder: Path, port: int, **settings: Any) -> None:
    values = {
        "host": "127.0.0.1",
        "port": port,
        "security": "none",
        "username": "house",
        "password": "env:SMTP_PASSWORD",
        "sender": "house@example.org",
        **settings,
    }
    lines = [f"{name} = {json.dumps(value)}" for name, value in values.items()]
    (folder / "craftcore.toml").write_text("\n".join(["[retry]", "base_seconds = 0", "[email]", *lines, ""]))


@contextmanager
def running_daemon(folder: Path, **more: str) -> Iterator[DaemonProcess]:
    env = {"CRAFTCORE_CONFIG": "craftcore.toml", "SMTP_PASSWORD": PASSWORD, **more}
    with a_daemon(folder, "app:app", **env) as daemon:
        yield daemon.ready()


def emit(folder: Path, **payload: Any) -> str:
    emitted = craftcore(folder, "--json", "emit", "email.send", "--payload", json.dumps({**MAIL, **payload}))
    assert emitted.code == 0, emitted.err
    task_id: str = emitted.json["id"]
    return task_id


def show_task(folder: Path, task_id: str) -> dict[str, Any]:
    shown = craftcore(folder, "--json", "task", "show", task_id)
    if shown.code:
        return {"status": "not begun"}
    found: dict[str, Any] = shown.json
    return found


def wait_for_end(folder: Path, task_id: str) -> dict[str, Any]:
    over = ("DONE", "FAILED", "CANCELLED")
    until(lambda: show_task(folder, task_id)["status"] in over, f"task {task_id} to end")
    return show_task(folder, task_id)


def wait_for_question(folder: Path) -> Any:
    """Wait for an open question, and return the only one."""
    [question] = until(lambda: craftcore(folder, "--json", "inbox", "list").json, "a question")
    return question


@pytest.mark.acceptance
def test_email_from_the_command_line_is_sent_and_the_password_is_not_stored(folder):
    with a_provider() as provider:
        configure(folder, provider.port)
        with running_daemon(folder) as daemon:
            done = wait_for_end(folder, emit(folder))
            log = daemon.log

    assert done["status"] == "DONE"
    result = done["result"]
    assert result["reply"] == "250 taken"
    assert result["message_id"] == result["provider_ref"]
    [message] = provider.messages
    assert f"Message-ID: {result['message_id']}".encode() in message
    stored = b"".join(path.read_bytes() for path in folder.iterdir() if path.name != "app.py" and path.is_file())
    assert b"Hello Ada" in stored
    assert PASSWORD.encode() not in stored
    assert PASSWORD not in log


@pytest.mark.acceptance
def test_busy_server_gets_the_email_once_when_ready(folder):
    with a_provider(MAIL=says_in_turn("451 busy", "250 go on")) as provider:
        configure(folder, provider.port)
        with running_daemon(folder):
            assert wait_for_end(folder, emit(folder))["status"] == "DONE"

    assert len(provider.messages) == 1


def test_invalid_email_payload_is_refused_before_anything_is_sent(folder):
    with a_provider() as provider:
        configure(folder, provider.port)
        with running_daemon(folder):
            failed = wait_for_end(folder, emit(folder, to="ada@example.net\r\nBcc: eve@example.net"))

    assert failed["status"] == "FAILED"
    assert provider.received == []


def test_email_of_a_killed_daemon_is_sent_once_and_a_person_is_asked(folder):
    with a_provider(dot=hangs) as provider:
        configure(folder, provider.port)
        with running_daemon(folder) as daemon:
            task_id = emit(folder)
            until(lambda: provider.messages, "the server to have the message")
            daemon.kill()
        with running_daemon(folder):
            question = wait_for_question(folder)
            assert question["task_id"] == task_id
            assert "email.send" in question["question"]
            [sent_as] = re.findall(r"^Message-ID: (<.*@)", provider.messages[0].decode(), re.M)
            assert f"mailed as  {sent_as}… " in craftcore(folder, "activity", "show", question["activity_key"]).out
            assert craftcore(folder, "inbox", "answer", question["id"], "happened").code == 0
            assert wait_for_end(folder, task_id)["status"] == "DONE"

    assert len(provider.messages) == 1


@pytest.mark.acceptance
@pytest.mark.parametrize("was_sent", [True, False])
def test_email_of_a_killed_daemon_is_reconciled_by_the_sent_folder(folder, was_sent):
    """One server stores the sent message in the folder; the other loses the message before it sends one."""
    with a_dovecot(PASSWORD) as dovecot:

        async def store_or_lose(conversation: Conversation) -> None:
            if was_sent:
                dovecot.put(provider.messages[-1])
            provider.replies["dot"] = "250 taken"
            filed.append(True)
            await hangs(conversation)

        filed: list[bool] = []
        with a_provider(dot=store_or_lose) as provider:
            (folder / "app.py").write_text((EXAMPLES / "email_sent_folder.py").read_text())
            server = {"IMAP_HOST": "127.0.0.1", "IMAP_PORT": str(dovecot.port), "IMAP_SECURITY": "none"}
            account = {"IMAP_USERNAME": USER, "IMAP_PASSWORD": PASSWORD}
            imap = {**server, **account, "IMAP_SETTLE": "0", "IMAP_IS_COMPLETE": "1"}
            configure(folder, provider.port)
            with running_daemon(folder, **imap) as daemon:
                task_id = emit(folder)
                until(lambda: filed, "the server to have the message")
                daemon.kill()
            with running_daemon(folder, **imap):
                done = wait_for_end(folder, task_id)

    assert done["status"] == "DONE"
    assert len(provider.messages) == (1 if was_sent else 2)
    [own_id] = {
        line.decode().partition(": ")[2]
        for message in provider.messages
        for line in message.splitlines()
        if line.startswith(b"Message-ID: ")
    }
    assert done["result"]["provider_ref"] == own_id
