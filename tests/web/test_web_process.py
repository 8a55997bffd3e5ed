"""The process of `craftcore web`: its exit, its refusals, and its address."""

from __future__ import annotations

import os
import shutil
import signal
import stat

import pytest

from craftcore.web.server import make_cookie_name
from tests.support.metrics_client import free_port
from tests.support.processes import PATIENCE, craftcore, open_files, until
from tests.support.web_site import SETTINGS, TOKENS, forms, in_process, serving


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_the_process_with_0_and_removes_the_socket(database, number):
    with serving(database) as site:
        assert stat.S_IMODE(os.stat(site.socket).st_mode) == 0o600
        assert site.get("/").status_code == 200
        site.process.send_signal(number)

        assert site.process.wait(PATIENCE) == 0
        assert not site.socket.exists()


def run_web(database, *arguments, settings=SETTINGS, **env):
    config = database.parent / "web.toml"
    config.write_text(settings)
    return craftcore(database.parent, "--config", str(config), "web", *arguments, **env)


SECRETS = {f"WEB_{name.upper()}": token for name, token in TOKENS.items()}


PROXY_SETTINGS = '[web]\ntrusted_header = "Remote-User"'
SECRET_PROXY = f'{PROXY_SETTINGS}\ntrusted_secret = "env:WEB_PROXY"\n[[web.person]]\nname = "eve"\n'


@pytest.mark.parametrize(
    ("settings", "arguments", "env", "code", "expected"),
    [
        ("", [], {}, 78, "no one can log in: give [[web.person]] a token"),
        (PROXY_SETTINGS, ["--listen", "unix:web.sock"], {}, 78, "no one can log in: give [[web.person]] a token"),
        (SETTINGS, [], {}, 78, "web.person ada: the secret env:WEB_ADA is not there"),
        (SETTINGS, [], {**SECRETS, "WEB_BOB": "short"}, 78, "web.person bob: the token is shorter than 16 characters"),
        (SETTINGS, ["--listen", "0.0.0.0:80"], SECRETS, 64, "nothing others can reach"),
        (PROXY_SETTINGS, ["--listen", "127.0.0.1:8722"], {}, 78, "web.trusted_secret is not set"),
        (SECRET_PROXY, [], {"WEB_PROXY": "short"}, 78, "web.trusted_secret: the secret is shorter than 16 characters"),
        (SETTINGS, ["--listen", "unix:agent.db"], SECRETS, 73, "exists and is not a socket"),
    ],
)  # fmt: skip
def test_wrong_start_is_refused_with_its_reason(database, settings, arguments, env, code, expected):
    ended = run_web(database, *arguments, settings=settings, **env)

    assert (ended.code, expected in ended.err) == (code, True), ended
    assert "Traceback" not in ended.err
    assert "short" not in ended.err.replace("shorter", "")


def test_address_in_use_is_refused(database):
    port = free_port()
    with serving(database, port=port):
        ended = run_web(database, "--listen", f"127.0.0.1:{port}", **SECRETS)

    assert (ended.code, "Address already in use; name another place with --listen" in ended.err) == (73, True)


def test_missing_database_is_named_on_the_page(tmp_path):
    with in_process(tmp_path / "agent.db") as site:
        found = site.get("/")
        assert found.status_code == 503 or "no such database" in found.text
        assert "no such database" in found.text
        assert site.get("/up").status_code == 503


def test_killed_daemon_is_down_within_seconds(site):
    until(lambda: "down: no daemon runs" in site.get("/doubt").text, "the verdict")
    assert site.get("/up", "").status_code == 503


@pytest.mark.parametrize(("arguments", "env"), [(["--read-only"], {}), ([], {"CRAFTCORE_READ_ONLY": "1"})])
def test_read_only_page_draws_no_form_and_refuses_each(database, world, arguments, env):
    with serving(database, *arguments, **env) as site:
        pages = [site.get(f"/q/{world.question}"), site.get(f"/activities/{world.in_doubt}"), site.get("/dead")]
        sent = site.post(f"/q/{world.question}/answer", {"option": "0", "once": "x", "seen": "OPEN"})

        assert [{form.action for form in forms(page.text)} for page in pages] == [{"/logout"}] * 3
        assert (sent.status_code, "may look here, and not act" in sent.text) == (403, True)
        until(lambda: not open_files(site.process.pid, site.database), "it is open only while it is read")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 303),
        ({"Remote-User": "ada"}, 403),
        ({"Remote-User": "ada", "X-Craftcore-Proxy": "wrong"}, 403),
        ({"Remote-User": "ada", "X-Craftcore-Proxy": "the-secret-of-the-proxy"}, 200),
        ({"Remote-User": "eve", "X-Craftcore-Proxy": "the-secret-of-the-proxy"}, 403),
    ],
)
def test_user_of_a_proxy_on_a_port_needs_its_secret(proxied, headers, status):
    assert proxied.get("/doubt", "", headers=headers).status_code == status


def test_user_of_a_proxy_keeps_the_live_stream_with_the_cookie_of_an_earlier_login(proxied):
    cookie = make_cookie_name(proxied.database)
    named = {"Remote-User": "ada", "X-Craftcore-Proxy": "the-secret-of-the-proxy", "Cookie": f"{cookie}=of-a-past-run"}

    with proxied.client("").stream("GET", "/live?topic=verdict", headers=named) as response:
        assert any(line.startswith("data: ") for line in response.iter_lines())


@pytest.fixture(scope="module")
def proxied(made, tmp_path_factory):
    """Serve a page on a port behind a proxy that names the user ada."""
    database = tmp_path_factory.mktemp("proxied") / "agent.db"
    shutil.copy(made[1], database)
    with serving(database, settings=PROXY, port=free_port(), WEB_PROXY="the-secret-of-the-proxy") as site:
        yield site


PROXY = """
[web]
trusted_header = "Remote-User"
trusted_secret = "env:WEB_PROXY"
[[web.person]]
name = "ada"
may = "act"
"""
