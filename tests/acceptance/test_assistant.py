"""The example assistant under SIGKILL: each message is answered once, and each mail is sent once."""

from __future__ import annotations

import json
import random
import re
import runpy
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.message import Message
from functools import partial
from http.client import IncompleteRead
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.handlers import Message as MessageHandler

from tests.support.metrics_client import free_port
from tests.support.processes import PATIENCE, environment, until
from tests.support.warm_parent import WarmProcess, start

ASSISTANT = Path(__file__).parents[2] / "examples" / "assistant"


class MailHandler(MessageHandler):
    """The handler of a mail server; it keeps the subjects of accepted messages."""

    def __init__(self) -> None:
        super().__init__()
        self.subjects: list[str] = []

    def handle_message(self, message: Message) -> None:
        self.subjects.append(str(message["subject"]))


class Assistant:
    """The web server of the example in a folder. A request that meets a killed server is sent again."""

    def __init__(self, folder: Path, model: str, mail_port: int) -> None:
        self.folder = folder
        self.port = free_port()
        settings = f'[email]\nhost = "127.0.0.1"\nport = {mail_port}\nsecurity = "none"\nsender = "a@example.org"\n'
        (folder / "craftcore.toml").write_text(settings)
        self._environment = environment(
            MODEL_URL=model, ASSISTANT_DB=str(folder / "agent.db"), ASSISTANT_CONFIG=str(folder / "craftcore.toml")
        )
        self._log = (folder / "web.log").open("ab")
        self.process = self.start()

    def start(self) -> WarmProcess:
        command = [str(ASSISTANT / "web.py"), str(self.port)]
        self.process = start(command, env=self._environment, stdout=self._log, stderr=self._log)
        return self.process

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.kill()
        self._log.close()

    def ask(self, path: str, body: Any = None, key: str | None = None) -> Any:
        """Send a request until it is answered."""
        headers = {} if key is None else {"Idempotency-Key": key}
        data = None if body is None else json.dumps(body).encode()

        def answer() -> Any:
            if self.process.poll() is not None:
                self.port = free_port()  # another test may have taken the former port
                self.start()
            request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, headers)
            try:
                with urllib.request.urlopen(request, timeout=PATIENCE) as response:
                    return [json.load(response)]
            except HTTPError as error:
                return [json.load(error)]
            except (URLError, ConnectionError):
                return None

        [found] = until(answer, f"an answer of {path}: {(self.folder / 'web.log').read_text()}")
        return found

    def messages(self, user: str) -> list[tuple[str, str]]:
        return [(one["role"], one["content"]) for one in self.ask(f"/chat/{user}")]


@contextmanager
def an_assistant(folder: Path) -> Iterator[tuple[Assistant, MailHandler]]:
    """Start the assistant with a model and a mail server, and stop all three at the end."""
    mail = MailHandler()
    post = Controller(mail, hostname="127.0.0.1", port=free_port(), ready_timeout=PATIENCE)
    post.start()
    model = [sys.executable, str(ASSISTANT / "model_stub.py"), "0"]
    with subprocess.Popen(model, stdout=subprocess.PIPE, text=True) as stub:
        assert stub.stdout is not None
        assistant = Assistant(folder, stub.stdout.readline().strip(), post.port)
        try:
            yield assistant, mail
        finally:
            assistant.close()
            stub.kill()
            post.stop()


def answer_questions(assistant: Assistant, mail: MailHandler) -> None:
    """Send each proposed mail. Answer each doubt by whether the mail server has the mail."""
    for question in assistant.ask("/questions"):
        if question["question"].startswith("Send to "):
            choice = "send"
        else:
            choice = "happened" if mail.subjects else "resend"
        assistant.ask(f"/questions/{question['id']}", {"choice": choice})


def has_answers(count: int, messages: list[tuple[str, str]]) -> bool:
    return len([role for role, _ in messages if role == "assistant"]) == count


def wait_for(assistant: Assistant, mail: MailHandler, condition: Callable[[list[tuple[str, str]]], bool]) -> None:
    def is_met() -> bool:
        answer_questions(assistant, mail)
        return condition(assistant.messages("ada"))

    until(is_met, "the answers")


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.acceptance)])
def test_killed_assistant_answers_each_message_once_and_sends_each_mail_once(tmp_path, seed):
    """Each message meets at most two kills, for the third would make its trigger dead."""
    chance = random.Random(seed)
    texts = [
        "remind me to water the plants every day at 6pm",
        "brief me at 7am",
        "mail bob@example.org about tea: come at five",
        "what is planned",
        "hello",
    ]
    with an_assistant(tmp_path) as (assistant, mail):
        for number, text in enumerate(texts):
            assert "id" in assistant.ask("/chat/ada", {"text": text}, key=str(number))
            time.sleep(chance.uniform(0, 0.4))
            assistant.kill()
            answer_questions(assistant, mail)
            time.sleep(chance.uniform(0, 0.2))
            assistant.kill()
            wait_for(assistant, mail, partial(has_answers, number + 1))
        for number, text in enumerate(texts):  # a client without the answers sends each text again
            assert assistant.ask("/chat/ada", {"text": text}, key=str(number))["created"] is False

        messages = assistant.messages("ada")
        assert has_answers(len(texts), messages)
        assert sorted(text for role, text in messages if role == "user") == sorted(texts)
        answers = [text for role, text in messages if role == "assistant"]
        assert "sent" in answers
        assert "You said: hello" in answers
        assert mail.subjects == ["tea"]
        assert assistant.ask("/questions") == []


def read_stream(assistant: Assistant, work: str, last: int) -> Iterator[tuple[int, str, list[list[int]]] | None]:
    """Yield the pieces of an answer, behind the last one that the reader has; None at its end. It may break off."""
    path = f"http://127.0.0.1:{assistant.port}/messages/{work}/stream"
    with urllib.request.urlopen(urllib.request.Request(path, headers={"Last-Event-ID": str(last)})) as response:
        number = 0
        for line in map(bytes.decode, response):
            if line.startswith("id: "):
                number = int(line[4:])
            elif line.startswith("event: end"):
                yield None
            elif line.startswith("data: ") and line != "data: \n":
                data = json.loads(line[6:])
                yield number, data["text"], data["cut"]


def test_reader_that_reconnects_to_a_killed_assistant_has_the_whole_answer(tmp_path):
    """The server is killed twice while it answers, and the browser comes back with the last number it has."""
    words = " ".join(f"word{number}" for number in range(60))
    shown: dict[int, str] = {}
    numbers, kills, is_over = [0], 2, False
    with an_assistant(tmp_path) as (assistant, _mail):
        work = assistant.ask("/chat/ada", {"text": words})["id"]
        while not is_over:
            assistant.ask("/questions")  # the server runs
            try:
                for piece in read_stream(assistant, work, numbers[-1]):
                    if piece is None:
                        is_over = True
                        break
                    number, text, cut = piece
                    numbers.append(number)
                    for first, last in cut:
                        for withdrawn in range(first, last + 1):
                            shown.pop(withdrawn, None)
                    shown[number] = text
                    if kills and len(shown) > 5:
                        kills -= 1
                        assistant.kill()
                        break
            except (URLError, ConnectionError, IncompleteRead):
                pass

        assert kills == 0
        assert numbers == sorted(set(numbers))
        assert "".join(shown.values()) == f"You said: {words}"


@pytest.mark.acceptance
def test_assistant_edits_and_cancels_its_reminders_and_limits_a_user(tmp_path):
    with an_assistant(tmp_path) as (assistant, mail):

        def ask_and_wait(text: str) -> str:
            before = len(assistant.messages("ada"))
            work = assistant.ask("/chat/ada", {"text": text})["id"]
            with urllib.request.urlopen(f"http://127.0.0.1:{assistant.port}/messages/{work}/events") as events:
                stream = events.read().decode()
            assert "event: answer" in stream
            wait_for(assistant, mail, lambda messages: len(messages) == before + 2)
            return assistant.messages("ada")[-1][1]

        first = ask_and_wait("remind me to water the plants in 3h").removeprefix("set as ")
        assert ask_and_wait("brief me at 7am") == "ada.brief: every day at 7am"
        assert ask_and_wait("brief me at 8am") == "ada.brief: every day at 8am"
        planned = ask_and_wait("what is planned").split("; ")
        assert sorted(planned) == sorted([f"{first}: in 3h", "ada.brief: every day at 8am"]), (
            "the order follows the ids, which are generated"
        )
        assert ask_and_wait(f"forget {first}") == "removed"
        assert ask_and_wait("forget nothing").startswith("that did not work: no schedule nothing")
        assert ask_and_wait("what is planned") == "ada.brief: every day at 8am"
        answers = [assistant.ask("/chat/bob", {"text": "hello"}) for _ in range(21)]
        assert answers[-1] == {"error": "more than 20 messages a minute"}
        assert assistant.ask("/questions/unknown", {"choice": "send"})["error"].startswith("no question unknown")


@pytest.mark.acceptance
def test_answer_is_stopped_and_the_conversation_continues(tmp_path):
    with an_assistant(tmp_path) as (assistant, mail):
        work = assistant.ask("/chat/ada", {"text": "mail bob@example.org about tea: come at five"})["id"]
        until(lambda: assistant.ask("/questions"), "the question of the approval")

        stop = urllib.request.Request(f"http://127.0.0.1:{assistant.port}/messages/{work}", method="DELETE")
        with urllib.request.urlopen(stop, timeout=PATIENCE) as response:
            assert json.load(response) == {"stopped": work}

        assert assistant.ask("/questions") == []
        assistant.ask("/chat/ada", {"text": "hello"})
        until(lambda: assistant.messages("ada")[-1:] == [("assistant", "You said: hello")], "the next answer")
        assert mail.subjects == []


def test_texts_of_the_page_are_understood_by_the_model():
    """The programs of docs/tutorial/personal-assistant.md exist, and the stub has a reply to each text."""
    page = (ASSISTANT.parents[1] / "docs/tutorial/personal-assistant.md").read_text("utf-8")
    stub = runpy.run_path(str(ASSISTANT / "model_stub.py"))

    programs = re.findall(r"^python (examples/\S+)$", page, re.M)
    assert programs == ["examples/assistant/model_stub.py", "examples/assistant/web.py"]
    assert all((ASSISTANT.parents[1] / program).is_file() for program in programs)
    texts = [json.loads(body)["text"] for body in re.findall(r"^curl -d '(\{.*\})' localhost", page, re.M)]
    assert len(texts) == 3
    assert all("tool_calls" in stub["reply"]([{"role": "user", "content": text}]) for text in texts)
