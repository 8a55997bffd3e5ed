"""The recipes of docs/how-to/answer-from-a-phone.md: Caddy and nginx accept them, and they match the settings."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from craftcore.config import Config
from craftcore.config.references import endpoint
from craftcore.web.request_rules import PROXY_HEADER
from tests.support.code_blocks import PAGES
from tests.support.populated_database import a_world
from tests.support.processes import PATIENCE
from tests.support.web_site import SAME_ORIGIN, TOKENS, in_process

PAGE = PAGES["docs/how-to/answer-from-a-phone.md"]
HOST = "agent.example.org"


def blocks(language: str) -> list[str]:
    """Return the blocks of a language: ```caddy, ```nginx, ```toml, ```sh."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S)


def nginx() -> str | None:
    return shutil.which("nginx", path="/usr/sbin:/usr/bin:/sbin:/bin")


def statements(text: str) -> list[list[str]]:
    """Return the words of each line of a Caddyfile, and require that its blocks are indented and closed."""
    depth, found = 0, []
    for line in text.splitlines():
        words = line.split()
        assert "{" not in words[:-1], line
        assert "}" not in words or words == ["}"], line
        assert line.startswith("\t" * (depth - (words == ["}"]))), "the line is not indented as `caddy fmt` does"
        depth += (words[-1] == "{") - (words == ["}"])
        assert depth >= 0, line
        found.append(words)
    assert depth == 0
    return found


@pytest.fixture
def settings(tmp_path: Path) -> list[Config]:
    found = []
    for number, text in enumerate(blocks("toml")):
        (tmp_path / f"{number}.toml").write_text(text)
        found.append(Config.load(tmp_path / f"{number}.toml"))
    return found


def test_settings_of_the_page_name_its_host_and_address(settings):
    people, proxy = settings

    for config in settings:
        where = endpoint(config.web.listen)
        assert (where is not None and where.port, config.web.hosts) == (8722, (HOST,))
    assert [(one.name, one.may, one.in_doubt) for one in people.web.person] == [
        ("ada", "act", False),
        ("bob", "look", True),
    ]
    assert len({one.token for one in people.web.person}) == 2, "two people share a token"
    assert proxy.web.trusted_header == "Remote-User"
    assert proxy.web.trusted_secret == "credential:proxy"
    assert people.web.link_question("ID") == f"https://{HOST}/q/ID"
    assert f"`https://{HOST}/q/ID`" in PAGE


def test_caddy_recipes_ask_the_address_of_the_settings(settings):
    plain, authenticating = [statements(text) for text in blocks("caddy")]

    for recipe in (plain, authenticating):
        assert recipe[0] == [HOST, "{"]
        assert ["reverse_proxy", settings[0].web.listen] in [line[:2] for line in recipe]
    words = [line[0] for line in authenticating]
    assert words.index("request_header") < words.index("forward_auth") < words.index("reverse_proxy")
    assert ["request_header", f"-{settings[1].web.trusted_header}"] in authenticating
    assert ["copy_headers", settings[1].web.trusted_header] in authenticating
    [sent] = [line for line in authenticating if line[0] == "header_up"]
    assert sent[1].lower() == PROXY_HEADER


@pytest.mark.parametrize("text", ["a {\n\tb {\n}\n", "a {\n}}\n", "a {\nb\n}\n"])
def test_wrong_caddy_recipe_is_found(text):
    with pytest.raises(AssertionError):
        statements(text)


def test_nginx_recipe_passes_the_host_and_closes_its_blocks(settings):
    [text] = blocks("nginx")

    assert text.count("{") == text.count("}") == 2
    assert all(re.search(r"[;{}]$", line) for line in text.splitlines() if line)
    assert f"proxy_pass http://{settings[0].web.listen};" in text
    assert "proxy_set_header Host $host;" in text
    assert "proxy_set_header X-Forwarded-Proto https;" in text
    assert f"server_name {HOST};" in text


@pytest.mark.skipif(nginx() is None, reason="nginx is not installed (Debian: the package nginx-light)")
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_nginx_accepts_the_recipe(tmp_path):
    [text] = blocks("nginx")
    key, certificate = tmp_path / "agent.key", tmp_path / "agent.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={HOST}"]
    subprocess.run([*made, "-keyout", key, "-out", certificate], check=True, capture_output=True, timeout=PATIENCE)
    text = text.replace("/etc/ssl/agent.pem", str(certificate)).replace("/etc/ssl/agent.key", str(key))
    config = tmp_path / "nginx.conf"
    config.write_text(
        f"pid {tmp_path}/pid;\nerror_log stderr;\nevents {{}}\nhttp {{\naccess_log off;\n"
        + "".join(f"{name}_temp_path {tmp_path}/{name};\n" for name in ("client_body", "proxy", "fastcgi"))
        + f"uwsgi_temp_path {tmp_path}/uwsgi;\nscgi_temp_path {tmp_path}/scgi;\n{text}}}\n"
    )

    tested = subprocess.run(
        [str(nginx()), "-t", "-q", "-c", config, "-p", tmp_path], capture_output=True, text=True, timeout=PATIENCE
    )

    assert tested.returncode == 0, tested.stderr


def test_ssh_and_tailscale_lines_lead_to_the_address_of_the_page():
    """ssh connects to the socket of the unit, and tailscale to the port of the settings."""
    lines = [line for block in blocks("sh") for line in block.splitlines() if line.startswith(("ssh ", "tailscale "))]

    unit = (Path(__file__).parents[1] / "systemd" / "craftcore-web.service").read_text()
    assert "StateDirectory=craftcore\n" in unit
    assert lines == [
        f"ssh -N -L 8722:/var/lib/craftcore/web.sock root@{HOST}",
        "tailscale serve --bg 8722",
    ]


def test_pip_line_names_the_extra():
    assert "pip install '/path/to/craftcore[web]'\ncraftcore web\n" in blocks("sh")


def test_page_behind_a_proxy_answers_by_its_host_and_sets_a_secure_cookie(tmp_path):
    """The requests have the headers that the recipes send."""
    a_world(tmp_path / "agent.db")
    with in_process(tmp_path / "agent.db") as site:
        headers = {"Host": "page.example", "X-Forwarded-Proto": "https", **SAME_ORIGIN}
        sent = {"name": "ada", "token": TOKENS["ada"]}

        entered = site.client().post("/login", data=sent, headers=headers)
        refused = site.client().get("/login", headers={"Host": "other.example"})

    assert entered.status_code == 303
    assert "secure" in entered.headers["set-cookie"].lower()
    assert refused.status_code == 421
