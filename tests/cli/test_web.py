"""`craftcore web` as a command, and the checks of `[web]` in `check` and `doctor`."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import shutil
from pathlib import Path
from subprocess import PIPE

import httpx2
import pytest

from tests.support.populated_database import World
from tests.support.processes import PATIENCE, craftcore, environment, until
from tests.support.warm_parent import WarmProcess, start
from tests.support.web_site import SAME_ORIGIN

TOKEN = "a-token-of-some-length"
PERSON = '[[web.person]]\nname = "ada"\ntoken = "env:WEB_ADA"\nmay = "act"\n'


@pytest.fixture
def agent(made: tuple[World, Path], tmp_path: Path) -> Path:
    """Create a database and settings with one person."""
    shutil.copy(made[1], tmp_path / "agent.db")
    (tmp_path / "craftcore.toml").write_text(f'[web]\nlisten = "unix:web.sock"\n{PERSON}')
    return tmp_path


def serve(folder: Path, *words: str, stdout: int = PIPE, **env: str) -> WarmProcess:
    command = ["-m", "craftcore", "--db", "agent.db", "--config", "craftcore.toml", *words]
    return start(command, cwd=folder, env=environment(WEB_ADA=TOKEN, **env), stdout=stdout, stderr=PIPE)


def ask(socket: Path, address: str) -> httpx2.Response:
    with httpx2.Client(transport=httpx2.HTTPTransport(uds=str(socket)), base_url="http://localhost") as client:
        return client.get(address)


def end(page: WarmProcess) -> tuple[int, str, str]:
    """Stop the page; return its exit code and its output."""
    with page:
        page.terminate()
        out, err = page.communicate(timeout=PATIENCE)
        return page.wait(), out.decode(), err.decode()


def test_web_with_json_prints_its_address_and_ends_at_sigterm(agent):
    page = serve(agent, "--json", "web")
    try:
        until((agent / "web.sock").exists, "the socket")
        assert ask(agent / "web.sock", "/up").status_code in (200, 503)
    finally:
        code, out, _ = end(page)

    assert code == 0
    assert json.loads(out) == {"listening": str(agent / "web.sock"), "link": None}
    assert not (agent / "web.sock").exists(), "the socket remains"


@pytest.mark.parametrize("line", ["craftcore web", "craftcore web --listen unix:web.sock", "craftcore web --read-only"])
def test_example_of_the_help_page_serves_the_page(agent, line):
    words = shlex.split(line)[1:]
    page = serve(agent, *words)
    try:
        until((agent / "web.sock").exists, "the socket")
        assert ask(agent / "web.sock", "/login").status_code == 200
    finally:
        code, out, _ = end(page)

    assert (code, out) == (0, "")


def test_link_of_a_terminal_logs_in_once(agent):
    """The settings contain no person."""
    (agent / "craftcore.toml").write_text('[web]\nlisten = "unix:web.sock"\n')
    terminal, other_end = pty.openpty()
    page = serve(agent, "web", stdout=other_end)
    os.close(other_end)
    try:
        output = ""
        while not output.endswith("\n"):
            output += os.read(terminal, 4096).decode()
        link = re.fullmatch(r"http://localhost:8722(/login\?link=(\S+))\r\n", output)
        assert link, output
        with httpx2.Client(
            transport=httpx2.HTTPTransport(uds=str(agent / "web.sock")), base_url="http://localhost"
        ) as client:
            assert client.get("/").headers["location"] == "/login?next=/"
            assert client.get(link[1]).status_code == 200, "a GET of the link does not log in"
            assert client.get("/").status_code == 303
            assert client.post("/login", data={"link": link[2]}, headers=SAME_ORIGIN).status_code == 303
            assert client.get("/").status_code == 200
            assert client.post("/login", data={"link": link[2]}, headers=SAME_ORIGIN).status_code == 403
    finally:
        os.close(terminal)
        _, _, err = end(page)

    assert link[2] not in err, "the link is in the log"


def test_page_at_an_address_in_use_exits_73(agent):
    page = serve(agent, "web")
    try:
        until((agent / "web.sock").exists, "the socket")
        second = craftcore(agent, "--config", "craftcore.toml", "web", WEB_ADA=TOKEN)
    finally:
        end(page)

    assert second.code == 73
    assert "another process listens at" in second.err


@pytest.mark.parametrize(
    ("settings", "token", "words"),
    [
        ("", "", "no one can log in"),
        (PERSON, "", "web.person ada: the secret env:WEB_ADA is empty"),
        (PERSON, "short", "web.person ada: the token is shorter than 16 characters"),
        ('[web]\ntrusted_header = "Remote-User"\n', "", "web.trusted_secret is not set"),
        ('[web]\nlisten = "0.0.0.0:80"\n', "", "web.listen is '0.0.0.0:80'"),
    ],
)
def test_page_with_wrong_settings_exits_78(agent, settings, token, words):
    (agent / "craftcore.toml").write_text(settings)

    refused = craftcore(agent, "--config", "craftcore.toml", "web", WEB_ADA=token)

    assert refused.code == 78
    assert words in refused.err
    assert "short" not in refused.err.replace("shorter", "")


@pytest.fixture
def settings(cli, here, tmp_path, monkeypatch):
    """Write the settings of this test, for the command line in this process."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr("craftcore.diagnostics.unit.SYSTEM_FOLDERS", ())
    monkeypatch.setenv("CRAFTCORE_CONFIG", str(tmp_path / "c.toml"))
    here.core.close()
    return (tmp_path / "c.toml").write_text


def test_check_passes_settings_of_the_page(cli, settings, monkeypatch):
    settings(f'[web]\nlisten = "unix:web.sock"\n{PERSON}')
    monkeypatch.setenv("WEB_ADA", TOKEN)

    done = cli("check")

    assert done.code == 0
    assert "ok    web: login: 1 person with a token\nok    web: unix:web.sock is free\n" in done.out
    settings("")
    assert "ok    web: nothing is set\n" in cli("check").out


def test_check_with_wrong_settings_of_the_page_exits_78(cli, settings, monkeypatch):
    settings(f'{PERSON}[[web.person]]\nname = "bob"\ntoken = "env:WEB_BOB"\n')
    monkeypatch.setenv("WEB_ADA", "hunter2")
    monkeypatch.setenv("WEB_BOB", "")

    done = cli("check")

    assert done.code == 78
    assert "FAIL  web: web.person ada: the token is shorter than 16 characters\n" in done.out
    assert "FAIL  web: web.person bob: the secret env:WEB_BOB is empty" in done.out
    assert "ok    schedules: " in done.out, "the other checks do not run"
    assert "hunter2" not in done.out + done.err


def test_check_of_an_address_that_cannot_be_used_exits_1(cli, settings, tmp_path):
    settings(f'[web]\nlisten = "unix:web.sock"\n{PERSON}')
    (tmp_path / "web.sock").write_text("mine")

    done = cli("check")

    assert done.code == 1
    assert "web.sock exists and is not a socket" in done.out


def test_check_warns_of_a_page_without_people(cli, settings):
    settings('[web]\nhosts = ["page.example"]\n')

    done = cli("--json", "check").json

    assert done["ok"]
    assert done["warnings"] == ["web: no one can log in but by the link of a terminal: give [[web.person]] a token"]


def checks(cli, name: str) -> list[tuple[str, str, str | None]]:
    rows = cli("--json", "doctor").json["checks"]
    return [(one["level"], one["text"], one["do"]) for one in rows if one["check"] == name]


def test_doctor_checks_the_settings_of_the_page(cli, settings, monkeypatch):
    settings("")
    assert checks(cli, "web") == [], "without a page, there is no finding about one"

    settings(f'[web]\nlisten = "unix:web.sock"\n{PERSON}')
    monkeypatch.setenv("WEB_ADA", "hunter2")

    assert checks(cli, "web") == [
        ("FAIL", "web.person ada: the token is shorter than 16 characters", None),
        ("ok", "unix:web.sock is free", None),
    ]


@pytest.mark.parametrize(
    ("text", "enabled", "level", "words", "remedy"),
    [
        (None, False, None, "", None),
        ("ExecStart=/usr/bin/env craftcore web\nEnvironment=CRAFTCORE_DB={database}\n", True, "ok", "is ours", None),
        (
            "ExecStart=/usr/bin/env craftcore web\nEnvironment=CRAFTCORE_DB={database}\n",
            False,
            "warn",
            "is not enabled",
            "systemctl --user enable --now craftcore-web",
        ),
        ("ExecStart=/usr/bin/env craftcore web --db /other.db\n", True, "warn", "runs on /other.db, not on this", None),
        ("ExecStart=/usr/bin/env other serve\n", True, "warn", "does not run craftcore", None),
    ],
)
def test_doctor_checks_the_unit_of_the_page(cli, settings, database, tmp_path, text, enabled, level, words, remedy):
    settings("")
    folder = tmp_path / "config" / "systemd" / "user"
    (folder / "default.target.wants").mkdir(parents=True)
    if text is not None:
        (folder / "craftcore-web.service").write_text(f"[Service]\n{text.format(database=database)}")
    if enabled:
        (folder / "default.target.wants" / "craftcore-web.service").symlink_to(folder / "craftcore-web.service")

    found = checks(cli, "page unit")

    assert [found_level for found_level, _, _ in found] == ([] if level is None else [level]), found
    assert all(words in message and do == remedy for _, message, do in found)
    assert [level for level, _, _ in checks(cli, "unit")] == ["ok"], "the unit of the daemon is another check"


def test_doctor_ignores_the_page_of_the_system_beside_a_user_unit(cli, settings, database, tmp_path, monkeypatch):
    """A regression: on a booted machine the system's page served another database, and ada's doctor warned of it."""
    settings("")
    system, own = tmp_path / "system", tmp_path / "config" / "systemd" / "user"
    monkeypatch.setattr("craftcore.diagnostics.unit.SYSTEM_FOLDERS", (str(system),))
    for folder, name, command in (
        (own, "craftcore.service", f"run --db {database}"),
        (system, "craftcore.service", "run --db /other.db"),
        (system, "craftcore-web.service", "web --db /other.db"),
    ):
        (folder / "default.target.wants").mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"[Service]\nExecStart=/usr/bin/env craftcore {command}\n")
        (folder / "default.target.wants" / name).symlink_to(folder / name)

    assert [level for level, _, _ in checks(cli, "unit")] == ["ok"]
    assert checks(cli, "page unit") == []

    (own / "craftcore.service").unlink()

    assert [level for level, _, _ in checks(cli, "page unit")] == ["warn"], "the units of the system are checked"


def test_inbox_shows_the_link_of_a_question_only_with_hosts(cli, settings, here):
    settings("")
    assert "https://" not in cli("inbox", "list").out

    settings('[web]\nhosts = ["page.example"]\n')

    assert f"  https://page.example/q/{here.world.question}\n" in cli("inbox", "list").out
