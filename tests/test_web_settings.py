"""The settings of `[web]`: each mistake is one line, and no line contains a secret."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from craftcore.config import Config
from craftcore.config.web_people import PEOPLE_MAX, WebPerson, is_person_name, read_people
from craftcore.config.web_settings import MASKED, WebSettings, relation_mistakes
from craftcore.errors import ConfigInvalid
from tests.test_config import SHIPPED, load, mistakes

__all__ = ["load", "mistakes"]

PERSON = '[[web.person]]\nname = "ada"\n'
SECRET = "hunter2-hunter2-hunter2"
PROXY = '[web]\nlisten = "unix:web.sock"\ntrusted_header = "Remote-User"\n'


def test_page_is_closed_by_default():
    assert WebSettings() == WebSettings(
        listen="", hosts=(), payloads="folded", mask=MASKED, trusted_header="", trusted_secret="", person=()
    )
    assert WebPerson(name="ada") == WebPerson(name="ada", token="", may="look", in_doubt=True)


def test_settings_of_the_page_are_loaded(load):
    web = load(
        '[web]\nlisten = "127.0.0.1:8722"\nhosts = ["agent.example.org"]\npayloads = "hidden"\nmask = ["pin"]\n'
        'trusted_header = "Remote-User"\ntrusted_secret = "credential:proxy"\nunknown_users = "look"\n'
        f'{PERSON}token = "credential:web-ada"\nmay = "act"\nin_doubt = false\n'
        '[[web.person]]\nname = "bob@example.org"\n'
    ).web

    assert web == WebSettings(
        listen="127.0.0.1:8722",
        hosts=("agent.example.org",),
        payloads="hidden",
        mask=("pin",),
        trusted_header="Remote-User",
        trusted_secret="credential:proxy",
        unknown_users="look",
        person=(
            WebPerson(name="ada", token="credential:web-ada", may="act", in_doubt=False),
            WebPerson(name="bob@example.org"),
        ),
    )


@pytest.mark.parametrize(
    ("may", "addressee", "is_allowed"),
    [
        ("look", None, False),
        ("look", "ada", False),
        ("answer", None, True),
        ("answer", "ada", True),
        ("answer", "finance", True),
        ("answer", "bob", False),
        ("act", "bob", True),
    ],
)
def test_role_and_groups_decide_about_answers(load, may, addressee, is_allowed):
    [person] = load(f'{PERSON}token = "env:A"\nmay = "{may}"\ngroups = ["finance", "staff"]\n').web.person

    assert person.groups == ("finance", "staff")
    assert person.may_answer(addressee) is is_allowed


def test_commented_person_of_the_shipped_file_is_valid(load):
    lines = SHIPPED.read_text().partition("# [[web.person]]")[2].partition("\n\n")[0].splitlines()
    shown = "\n".join(line.removeprefix("# ") for line in lines)

    [person] = load(f"[[web.person]]\n{shown}").web.person

    assert person == WebPerson(name="ada", token="credential:web-ada", may="act")


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("web = 3", "web is 3; allowed: a table"),
        ('[web]\nlisten = "0.0.0.0:8722"', "web.listen is '0.0.0.0:8722'; allowed: \"unix:PATH\", or a port"),
        ('[web]\nlisten = "8722"', "web.listen is '8722'; allowed: "),
        ('[web]\nlisten = "127.0.0.1:0"', "web.listen is '127.0.0.1:0'; allowed: "),
        ('[web]\nlisten = "unix:"', "web.listen is 'unix:'; allowed: "),
        ('[web]\nhosts = "a.example"', "web.hosts is 'a.example'; allowed: a list of names of hosts, without ports"),
        ('[web]\nhosts = ["a.example:443"]', "web.hosts is ['a.example:443']; allowed: a list of names of hosts"),
        ('[web]\nhosts = ["https://a.example"]', "web.hosts is ['https://a.example']; allowed: a list of names"),
        ('[web]\nhosts = ["*"]', "web.hosts is ['*']; allowed: a list of names"),
        ('[web]\npayloads = "open"', 'web.payloads is \'open\'; allowed: "folded" or "shown" or "hidden"'),
        ('[web]\nmask = ["two words"]', "web.mask is ['two words']; allowed: a list of words"),
        ('[web]\nmask = ["_"]', "web.mask is ['_']; allowed: a list of words"),
        ("[web]\nmask = [3]", "web.mask is [3]; allowed: a list of words"),
        (
            '[web]\ntrusted_header = "Remote User:"',
            "web.trusted_header is 'Remote User:'; allowed: the name of a header",
        ),
        ('[web]\nunknown_users = "act"', 'web.unknown_users is \'act\'; allowed: "refuse" or "look"'),
        ("[web]\nhost = 3", "web.host is unknown; "),
        ('[web]\nperson = "ada"', "web.person must be written as [[web.person]], once for each"),
        ('[web.person]\nname = "ada"', "web.person must be written as [[web.person]], once for each"),
        ("[[web.person]]\nmay = 'act'", "web.person 1: name is missing; give a name of letters, digits and ._@+-"),
        ('[[web.person]]\nname = "ada b"', "web.person 1: name is 'ada b'; allowed: a name of letters"),
        ('[[web.person]]\nname = ""', "web.person 1: name is ''; allowed: a name of letters"),
        (f"{PERSON}password = 'x'", "web.person 1: password is unknown; allowed: name, token, may, in_doubt, groups"),
        (f'{PERSON}token = "env:A"\nmay = "admin"', 'web.person 1: may is \'admin\'; allowed: "look", "answer" or'),
        (f'{PERSON}token = "env:A"\ngroups = "all"', "web.person 1: groups is 'all'; allowed: a list of names"),
        (f'{PERSON}token = "env:A"\ngroups = ["a b"]', "web.person 1: groups is ['a b']; allowed: a list of names"),
        (f'{PERSON}token = "env:A"\nin_doubt = 1', "web.person 1: in_doubt is 1; allowed: true or false"),
        (f'{PERSON}token = "env:A"\n{PERSON}token = "env:B"', "web.person 2: name ada is given twice"),
        (PERSON, "web.person ada has no token, and web.trusted_header is not set: nothing lets them in"),
        (
            '[web]\nlisten = "127.0.0.1:1"\ntrusted_header = "Remote-User"',
            "web.trusted_secret is not set; on a port web.trusted_header needs it",
        ),
        ('[web]\ntrusted_secret = "env:A"', "web.trusted_header is not set; web.trusted_secret is of no use"),
        ('[web]\nunknown_users = "look"', 'web.trusted_header is not set; web.unknown_users = "look" is of no use'),
    ],
)
def test_mistake_in_the_page_settings_is_a_line(mistakes, text, mistake):
    [line] = mistakes(text)
    assert line.startswith(mistake), line


@pytest.mark.parametrize(
    "text",
    [
        f'[web]\ntrusted_header = "Remote-User"\ntrusted_secret = "{SECRET}"',
        f'{PERSON}token = "{SECRET}"',
        f'{PERSON}token = ["{SECRET}"]',
        f'{PERSON}token = "env:{SECRET}"',
    ],
)
def test_secret_in_the_place_of_a_reference_is_not_shown(mistakes, text):
    lines = mistakes(text)
    assert len(lines) == 1
    assert SECRET not in lines[0]
    assert 'not shown; allowed: "env:NAME"' in lines[0]


def test_mistakes_of_several_people_are_all_reported(mistakes):
    lines = mistakes('[[web.person]]\nname = "a b"\nmay = "x"\n[[web.person]]\nname = 3\nin_doubt = "no"\n')

    assert [line.partition(";")[0] for line in lines] == [
        "web.person 1: name is 'a b'",
        "web.person 1: may is 'x'",
        "web.person 2: name is 3",
        "web.person 2: in_doubt is 'no'",
    ]


def test_number_of_people_is_limited():
    found: list[str] = []
    tables = [{"name": f"p{number}", "token": "env:A"} for number in range(PEOPLE_MAX + 1)]

    read_people("web.person", tables, found)

    assert found == [f"web.person: there are {PEOPLE_MAX + 1}; allowed: at most {PEOPLE_MAX}"]


@pytest.mark.parametrize(
    ("settings", "listen", "wrong"),
    [
        (WebSettings(trusted_header="Remote-User"), "127.0.0.1:8722", True),
        (WebSettings(trusted_header="Remote-User"), "unix:web.sock", False),
        (WebSettings(trusted_header="Remote-User", listen="unix:web.sock"), "[::1]:8722", True),
        (WebSettings(trusted_header="Remote-User", trusted_secret="env:A"), "127.0.0.1:8722", False),
        (WebSettings(trusted_header="Remote-User"), "", False),
    ],
)
def test_proxy_on_a_port_needs_a_secret(settings, listen, wrong):
    """The rule also holds when the command names another address than the settings."""
    assert bool(list(relation_mistakes(settings, listen))) == wrong


TEXTS = st.text(max_size=120)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(["name", "token", "may", "in_doubt"]) | TEXTS


@given(st.lists(st.dictionaries(KEYS, VALUES, max_size=5), max_size=4))
def test_any_tables_of_people_are_read_or_refused_in_single_lines(tables):
    found: list[str] = []

    people = read_people("web.person", tables, found)

    assert len(people) == len(tables) or found
    assert all(len(line.splitlines()) == 1 for line in found)
    assert len({person.name for person in people}) == len(people)
    assert all(is_person_name(person.name) and person.may in ("look", "answer", "act") for person in people)
    secrets = [table["token"] for table in tables if isinstance(table.get("token"), str) and len(table["token"]) > 40]
    assert not [line for line in found for secret in secrets if secret in line]


def test_mistakes_reach_the_person_with_the_name_of_the_file(tmp_path: Path):
    path = tmp_path / "craftcore.toml"
    path.write_text(PROXY + '[[web.person]]\nname = "x y"\n')

    with pytest.raises(ConfigInvalid, match=r"craftcore\.toml: web\.person 1: name is 'x y'"):
        Config.load(path)
