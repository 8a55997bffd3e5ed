"""The checks of `[web]`: problems that prevent the start of the page or a login."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from craftcore.config import Config
from craftcore.config.web_people import TOKEN_MIN, WebPerson
from craftcore.config.web_settings import WebSettings
from craftcore.diagnostics import web_access
from craftcore.diagnostics.finding import Level
from craftcore.diagnostics.web_access import address_findings, find_libraries, login_findings
from tests.support.populated_database import a_world
from tests.support.web_site import SETTINGS, TOKENS, serving

LONG = "x" * TOKEN_MIN
ADA, BOB = WebPerson(name="ada", token="env:WEB_ADA"), WebPerson(name="bob", token="credential:web-bob")


def levels_and_texts(findings) -> list[tuple[str, str]]:
    return [(finding.level, finding.text) for finding in findings]


def test_installed_library_gives_no_finding():
    assert levels_and_texts(find_libraries()) == []


def test_missing_library_is_named_with_the_extra(monkeypatch):
    monkeypatch.setattr(web_access, "LIBRARIES", ("json", "no_such_library"))

    assert levels_and_texts(find_libraries()) == [
        ("FAIL", "craftcore web needs no_such_library: pip install 'craftcore[web]'"),
    ]


@pytest.mark.parametrize(
    ("environ", "level", "words"),
    [
        ({}, "ok", "login: 2 people with a token; not looked up here: 2 of 2 secrets"),
        ({"WEB_ADA": LONG}, "ok", "not looked up here: 1 of 2 secrets"),
        ({"WEB_ADA": LONG, "CREDENTIALS_DIRECTORY": "{there}"}, "ok", "login: 2 people with a token"),
        ({"WEB_ADA": "hunter2"}, "FAIL", f"web.person ada: the token is shorter than {TOKEN_MIN} characters"),
        ({"WEB_ADA": ""}, "FAIL", "web.person ada: the secret env:WEB_ADA is empty"),
        ({"CREDENTIALS_DIRECTORY": "{empty}"}, "FAIL", "web.person bob: the secret credential:web-bob cannot be read"),
        ({"CREDENTIALS_DIRECTORY": "{short}"}, "FAIL", "web.person bob: the token is shorter than"),
    ],
)
def test_tokens_are_looked_up_in_this_environment(tmp_path: Path, environ, level, words):
    for name, token in (("there", LONG), ("short", "hunter2"), ("empty", None)):
        (tmp_path / name).mkdir()
        if token is not None:
            (tmp_path / name / "web-bob").write_text(token + "\n")
    environ = {key: value.format(**{path.name: path for path in tmp_path.iterdir()}) for key, value in environ.items()}

    [(found_level, text)] = levels_and_texts(login_findings(WebSettings(person=(ADA, BOB)), environ))

    assert found_level == level
    assert words in text
    assert "hunter2" not in text


def test_secret_of_the_proxy_is_looked_up_too():
    settings = WebSettings(trusted_header="Remote-User", trusted_secret="env:PROXY", person=(WebPerson(name="eve"),))

    assert levels_and_texts(login_findings(settings, {"PROXY": ""})) == [
        ("FAIL", "web.trusted_secret: the secret env:PROXY is empty: give it its text")
    ]
    assert levels_and_texts(login_findings(settings, {"PROXY": "short"})) == [
        ("FAIL", f"web.trusted_secret: the secret is shorter than {TOKEN_MIN} characters")
    ]
    assert levels_and_texts(login_findings(settings, {"PROXY": "p" * TOKEN_MIN})) == [
        ("ok", "login: 0 people with a token and users of the proxy")
    ]


@pytest.mark.parametrize("header", ["", "Remote-User"])
def test_page_without_a_way_to_log_in_is_a_warning(header):
    [(level, text)] = levels_and_texts(login_findings(WebSettings(hosts=("a.example",), trusted_header=header), {}))

    assert level == "warn"
    assert "no one can log in but by the link of a terminal" in text


@contextmanager
def foreign_server(
    family: socket.AddressFamily, where: tuple[str, int] | str, answer: bytes
) -> Iterator[socket.socket]:
    """Run a server that answers one caller, in the place of the page."""
    with closing(socket.socket(family, socket.SOCK_STREAM)) as server:
        server.bind(where)
        server.listen()

        def serve() -> None:
            with closing(server.accept()[0]) as caller:
                caller.recv(4096)
                caller.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server
        thread.join(5)


def test_free_address_passes(tmp_path: Path):
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    for listen in (f"127.0.0.1:{port}", "unix:web.sock", f"unix:{tmp_path}/other.sock"):
        assert levels_and_texts(address_findings(WebSettings(listen=listen), tmp_path / "agent.db")) == [
            ("ok", f"{listen} is free")
        ]
    assert levels_and_texts(address_findings(WebSettings(), tmp_path / "agent.db")) == []
    assert list(tmp_path.iterdir()) == []


def test_address_of_another_program_fails(tmp_path: Path):
    with foreign_server(socket.AF_INET, ("127.0.0.1", 0), b"HTTP/1.1 200 OK\r\n\r\nhello\n") as server:
        listen = f"127.0.0.1:{server.getsockname()[1]}"
        [(level, text)] = levels_and_texts(address_findings(WebSettings(listen=listen), tmp_path / "agent.db"))
    assert (level, listen in text) == ("FAIL", True)

    with foreign_server(socket.AF_UNIX, str(tmp_path / "web.sock"), b"") as server:
        [(level, text)] = levels_and_texts(address_findings(WebSettings(listen="unix:web.sock"), tmp_path / "agent.db"))
    assert level == "FAIL"
    assert "another process listens" in text


def test_file_in_the_place_of_the_socket_fails(tmp_path: Path):
    (tmp_path / "web.sock").write_text("mine")

    [(level, text)] = levels_and_texts(address_findings(WebSettings(listen="unix:web.sock"), tmp_path / "agent.db"))

    assert level == "FAIL"
    assert text.endswith("web.sock exists and is not a socket; name another file")
    assert (tmp_path / "web.sock").read_text() == "mine"


def test_socket_in_a_missing_directory_fails(tmp_path: Path):
    settings = WebSettings(listen=f"unix:{tmp_path}/none/web.sock")

    assert levels_and_texts(address_findings(settings, tmp_path / "agent.db")) == [
        ("FAIL", f"web.listen: there is no directory {tmp_path}/none")
    ]


def test_page_that_answers_at_its_address_passes(tmp_path: Path):
    a_world(tmp_path / "agent.db")
    with serving(tmp_path / "agent.db"):
        found = levels_and_texts(address_findings(WebSettings(listen="unix:web.sock"), tmp_path / "agent.db"))

    assert found == [(Level.OK, "a page answers at unix:web.sock")]


def test_settings_of_a_running_page_pass(tmp_path: Path):
    """The settings are those of the other tests of the page."""
    (tmp_path / "web.toml").write_text(SETTINGS)
    settings = Config.load(tmp_path / "web.toml").web
    environ = {f"WEB_{name.upper()}": token for name, token in TOKENS.items()}

    assert levels_and_texts(login_findings(settings, environ)) == [("ok", f"login: {len(TOKENS)} people with a token")]
