"""The suggested commands of pages: quoted, with their database, and linked to the page of their subject."""

from __future__ import annotations

import html
import re
import shlex
from pathlib import Path

import click
import pytest

from craftcore.cli.root import root
from craftcore.config.database_path import database_option
from craftcore.diagnostics.finding import Finding
from craftcore.executions.recovery import Recommendation, State
from craftcore.web.remedies import LISTS, SUBJECTS, find_page, format_remedies
from tests.support.web_site import in_process

PLACE = Path("/a place/agent.db")
HOME = {"HOME": "/home/ada", "XDG_STATE_HOME": "/home/ada/state"}
DEFAULT = "/home/ada/state/craftcore/craftcore.db"


def printed(*commands: tuple[str, ...], address: str = "") -> str:
    return str(format_remedies(Finding(code="x", text="it waits", remedies=commands), PLACE, address))


@pytest.mark.parametrize(("beginning", "pages"), SUBJECTS.items())
def test_command_with_an_id_leads_to_its_page(beginning, pages):
    words = beginning.split()

    assert find_page(("craftcore", *words, "a/b:c")) == f"/{pages}/a%2Fb%3Ac"
    assert find_page(("craftcore", *words, "id", "--reason", "TEXT")) == f"/{pages}/id"
    assert find_page(("craftcore", *words)) == LISTS.get(beginning)
    assert find_page(("craftcore", *words, "--all")) is None


@pytest.mark.parametrize(("command", "address"), LISTS.items())
def test_command_without_an_id_leads_to_the_page_of_its_subject(command, address):
    assert find_page(("craftcore", *command.split())) == address


@pytest.mark.parametrize("beginning", [*SUBJECTS, *LISTS])
def test_beginning_of_a_remedy_is_a_command(beginning):
    found: click.Command | None = root
    for word in beginning.partition(" --")[0].split():
        assert isinstance(found, click.Group)
        found = found.get_command(click.Context(found), word)

    assert found is not None
    assert not isinstance(found, click.Group)


@pytest.mark.parametrize(
    "command",
    [
        ("craftcore", "run", "MODULE:APP"),
        ("craftcore", "task", "list", "--held"),
        ("craftcore", "verify"),
        ("craftcore", "inspect", "--list", "--status", "incomplete"),
        ("chmod", "600", "show"),
        ("chmod", "task", "show", "id"),
    ],
)
def test_command_without_a_page_has_no_link(command):
    assert find_page(command) is None
    assert "<a" not in printed(command)


def test_printed_command_is_pasted_as_the_same_words():
    command = ("craftcore", "schedule", "show", "it's <b>, \x1b[31m")

    [(address, text)] = re.findall(r'<a href="([^"]*)"><code>(.*?)</code></a>', printed(command))

    assert html.unescape(address) == "/schedules/it%27s%20%3Cb%3E%2C%20%1B%5B31m"
    assert html.unescape(text) == r"craftcore --db '/a place/agent.db' schedule show $'it\'s <b>, \x1b[31m'"


def test_command_of_another_program_names_no_database():
    assert printed(("chmod", "600", "/a place/x")) == ": <code>chmod 600 &#39;/a place/x&#39;</code>"


def test_commands_end_their_sentence_and_link_to_other_pages():
    text = printed(("craftcore", "task", "retry", "t 1"), ("craftcore", "task", "show", "t2"), address="/tasks/t 1")

    shown = html.unescape(re.sub("<[^>]*>", "", text))
    assert shown == (
        ": craftcore --db '/a place/agent.db' task retry 't 1', craftcore --db '/a place/agent.db' task show t2"
    )
    assert re.findall('href="([^"]*)"', text) == ["/tasks/t2"]


def test_finding_without_remedies_prints_nothing():
    assert printed() == ""


def test_recommendation_is_printed_like_a_finding():
    advice = Recommendation(state=State.COMPLETE, text="it is done", commands=(("replay", "exec-1.1"),))

    assert str(format_remedies(advice, PLACE)) == (
        ': <a href="/records/exec-1.1"><code>craftcore --db &#39;/a place/agent.db&#39; replay exec-1.1</code></a>'
    )


@pytest.mark.parametrize(
    ("path", "environ", "option"),
    [
        ("/a/b.db", {}, ("--db", "/a/b.db")),
        ("/a/b.db", {"CRAFTCORE_DB": "/a/x/../b.db"}, ()),
        ("/a/b.db", {"CRAFTCORE_DB": "/other.db"}, ("--db", "/a/b.db")),
        (DEFAULT, {}, ()),
        (DEFAULT, {"CRAFTCORE_DB": "/other.db"}, ("--db", DEFAULT)),
        ("/var/lib/c/craftcore.db", {"STATE_DIRECTORY": "/var/lib/c"}, ("--db", "/var/lib/c/craftcore.db")),
        (None, {}, ()),
    ],
)
def test_option_names_a_database_that_a_shell_would_not_find(path, environ, option):
    assert database_option(path, {**HOME, **environ}) == option


def test_page_prints_commands_for_its_own_database(made, tmp_path):
    world, sound = made
    database = tmp_path / "a place" / "agent.db"
    database.parent.mkdir()
    database.write_bytes(sound.read_bytes())
    with in_process(database) as site:
        pages = ["/", "/now", "/health", "/schedules/paused", f"/tasks/{world.failed}", f"/records/{world.died}"]
        found = {address: re.findall("<code>(craftcore .*?)</code>", site.get(address).text) for address in pages}

    assert all(found.values()), found
    words = [shlex.split(html.unescape(one)) for commands in found.values() for one in commands]
    assert {tuple(one[:3]) for one in words} == {("craftcore", "--db", str(database))}
