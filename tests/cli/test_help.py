"""`--help`: every page has its sections, formats, exit codes and examples, and they match the code."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from craftcore import errors
from craftcore.cli import exit_codes, main
from craftcore.cli.base import Command, CommandGroup, summary
from craftcore.cli.help_format import FORMATS
from craftcore.cli.root import root
from tests.support.commands import BY_HAND, READS, SERVES, WORKS, commands
from tests.support.populated_database import World
from tests.support.processes import a_daemon, craftcore

ROOT = Path(__file__).parents[2]
COMMANDS = dict(commands())
CALLS = {**READS, **BY_HAND, **WORKS, **SERVES}

SUMMARY_MAX = 62
"""The width of a summary beside the longest name, without a line break."""


def groups(group: click.Group = root, name: str = "") -> Iterator[tuple[str, click.Group]]:
    yield name, group
    context = click.Context(group)
    for verb in group.list_commands(context):
        command = group.get_command(context, verb)
        if isinstance(command, click.Group) and verb != "temporal":
            yield from groups(command, f"{name} {verb}".lstrip())


GROUPS = dict(groups())


def documented(name: str) -> Command:
    command = COMMANDS[name]
    assert isinstance(command, Command), name
    return command


# the page


@pytest.mark.parametrize("name", [*GROUPS, *COMMANDS])
def test_help_page_fits_80_columns(cli, name):
    shown = cli(*name.split(), "--help")

    assert (shown.code, shown.err) == (0, "")
    lines = shown.out.splitlines()
    assert max(map(len, lines)) <= 80
    assert not [line for line in lines if line.endswith("-")], "a word is broken"


@pytest.mark.parametrize("name", [*list(GROUPS)[1:], *COMMANDS])
def test_command_summary_is_a_single_short_line_in_the_group_list(cli, name):
    command = GROUPS.get(name) or COMMANDS[name]
    group, _, verb = f"root {name}".rpartition(" ")

    line = summary(command)

    assert len(line) <= SUMMARY_MAX
    assert line[0].isupper()
    assert line.endswith((".", "…"))
    assert re.search(rf"^  {verb} +{re.escape(line)}$", cli(*group.split()[1:], "--help").out, re.M)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_page_has_every_section(cli, name):
    command, page = documented(name), cli(*name.split(), "--help").out

    assert command.help
    assert len(command.help.split("\n\n")) > 1 or name == "release", "the page has no description after the summary"
    assert command.touches.endswith(".")
    for part in ("Global options:", "Exit codes, beyond 0 and 64:", "See also:", "Examples:"):
        assert f"\n{part}\n" in page
    assert ("\nOptions:\n" in page) == any(
        isinstance(param, click.Option) for param in command.params if param not in command.common
    )


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if command.params])
def test_option_help_has_a_description_and_a_value_name(name):
    command = documented(name)
    for param in command.params:
        if not isinstance(param, click.Option):
            continue
        assert (param.help or "").endswith("."), param.opts
        assert param.is_flag or param.metavar or isinstance(param.type, click.Choice), (
            f"{param.opts}: what does it take?"
        )
        assert not re.search(r"ISO 8601|\b10s\b|\bIANA\b", param.help or ""), (
            "the formats section of the page explains this"
        )


@pytest.mark.parametrize("name", COMMANDS)
def test_help_page_explains_exactly_the_formats_in_use(cli, name):
    page = cli(*name.split(), "--help").out
    usage = page.partition("\n\n")[0]
    options = "\n".join(re.findall(r"^  (?:-\w, )?--\S+ (\S+)", page.partition("Global options")[0], re.M))
    formats = re.search(r"^Formats:\n((?:  .*\n)+)", page, re.M)

    for word in ("DURATION", "TIME", "ZONE", "JSON|@FILE|-", "ID"):
        argued = word in re.split(r"[\s\[\].|]+", usage) or f"[{word}]" in usage
        asked = argued or word in options.replace("[", "").replace("]", "").splitlines()
        assert asked == (formats is not None and f"  {word} " in formats[1]), word


def test_help_formats_are_each_used_by_a_command():
    used = {str(param.metavar) for command in COMMANDS.values() for param in command.params}

    for word in FORMATS:
        assert any(word in metavar for metavar in used), word


# the order


SECTION_11 = """
    run init check status top doctor hold release emit trigger dead schedule task inbox activity inspect replay verify
    invalidate export diff execution db systemd
"""


SCHEDULE = """
    add list show why preview pause resume edit run-now skip-next backfill history remove trust-clock reanchor
"""


def test_command_sections_keep_the_specified_order(cli):
    page = cli("--help").out

    assert [
        name for name in root.list_commands(click.Context(root)) if name in SECTION_11.split()
    ] == SECTION_11.split()
    assert list(GROUPS["schedule"].list_commands(click.Context(root))) == SCHEDULE.split()
    assert isinstance(root, CommandGroup)
    for title, names in root.sections().items():
        section = page.partition(f"\n{title}:\n")[2].partition("\n\n")[0]
        assert re.findall(r"^  (\S+)", section, re.M) == list(names)


def test_ordered_command_group_names_each_verb_once():
    for name, group in GROUPS.items():
        if isinstance(group, CommandGroup) and group.verbs:
            assert sorted(group.verbs) == sorted(group.commands), name


# references


@pytest.mark.parametrize("name", COMMANDS)
def test_help_references_point_to_existing_pages_and_commands(name):
    see = documented(name).see

    assert any(".md" in word for word in see), "the page has no reference to a document"
    for word in see:
        if word.startswith("craftcore "):
            assert word.removeprefix("craftcore ") in COMMANDS, word
            assert word != f"craftcore {name}"
            continue
        file, _, anchor = word.partition("#")
        assert (ROOT / file).is_file(), word
        if anchor:
            heads = re.findall(r"^#+ (.*)", (ROOT / file).read_text(), re.M)
            assert anchor in {re.sub(r"[^a-z0-9 -]", "", head.lower()).replace(" ", "-") for head in heads}, word


# the exit codes


def test_exit_code_table_has_every_code():
    errors_ = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, errors.CraftcoreError)]
    ends = {main.USAGE, main.BUG, main.OUTPUT_FAILED, main.INTERRUPTED, main.PIPE_CLOSED}

    assert {error.exit_code for error in errors_} | ends | {0, 1, 4} == set(exit_codes.MEANINGS)


def test_exit_code_reference_matches_the_table():
    text = (ROOT / "docs" / "reference" / "cli.md").read_text()
    listed = re.search(r"^## Exit codes\n(.*?)^## ", text, re.M | re.S)
    assert listed

    shells = {exit_codes.INTERRUPTED, exit_codes.PIPE_CLOSED}

    assert {int(code) for code in re.findall(r"^\| (\d+) \|", listed[1], re.M)} == (set(exit_codes.MEANINGS) - shells)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_page_names_only_exit_codes_of_the_table(name):
    assert set(documented(name).exits) <= set(exit_codes.MEANINGS) - {0, exit_codes.USAGE}


# the examples

SAMPLE = re.compile(r"(?:exec-)?01a1fd[0-9a-f]+")
"""An id in the examples. The tests replace it with an id of the populated database."""

EXAMPLE_IDS: dict[str, Callable[[World], list[str]]] = {
    "dead requeue": lambda world: [world.dead],
    "activity list": lambda world: [world.in_doubt.split(":")[1]],
    "diff": lambda world: [world.ended, world.died],
    "verify": lambda world: [world.ended],
}
"""Commands whose ids differ from those of their call in `commands`."""

IN_A_PROJECT = {"run", "check", "emit", "reload"}
"""These commands need an app, and some of them a daemon: their tests follow."""

TESTED_ELSEWHERE = {
    "demo": "test_demo.py",
    "crashtest": "test_crashtest.py",
    "web": "test_web.py",
    "task stream": "test_task_stream.py",
}
"""Examples that take too long or need other rows, and the tests that run such ones."""

EXAMPLES = [(name, line) for name in COMMANDS for line in documented(name).examples]


def words_of(line: str) -> list[str]:
    """Return the words of the command in an example, without an `eval`, a comment or an output file."""
    inner = re.search(r"\$\((.*?)\)", line)
    return shlex.split((inner[1] if inner else line).partition(" > ")[0], comments=True)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_example_calls_the_documented_command(name):
    examples = documented(name).examples

    assert 1 <= len(examples) <= 3
    for line in examples:
        program, *words = words_of(line)
        given = [word for word in words if not word.startswith("-") and not word.endswith((".db", ".toml"))]
        assert (program, given[: len(name.split())]) == ("craftcore", name.split())


@pytest.mark.parametrize(
    ("name", "line"),
    [one for one in EXAMPLES if one[0] not in IN_A_PROJECT | TESTED_ELSEWHERE.keys()],
    ids=lambda text: text,
)
def test_help_example_runs(cli, here, database, tmp_path, monkeypatch, name, line):
    meant = EXAMPLE_IDS.get(name, CALLS[name].arguments)(here.world)
    words = words_of(SAMPLE.sub(lambda _: meant.pop(0), line))[1:]
    prepared(cli, here, database, tmp_path, name)
    monkeypatch.setenv("HOME", str(tmp_path))
    if name == "systemd install" and not {"--user", "--root"} & set(words):
        words += ["--root", "image"]  # keep the machine that runs the tests unchanged

    ran = cli(*words)

    assert ran.code == (1 if name == "diff" and "./record.json" not in words else 0), ran
    assert ran.out


def prepared(cli, here, database: Path, folder: Path, name: str) -> None:
    """Create the files and rows that an example names, where a populated database lacks them."""
    if name in ("replay", "diff"):
        assert cli("export", here.world.ended, "-o", "record.json").code == 0
    if name == "audit":
        assert cli("schedule", "pause", "nightly").code == 0
    if name == "schedule add":
        database.unlink()  # before the first daemon, any workflow name is accepted
    here.core.close()
    if name == "db restore":
        assert cli("db", "backup", "-o", "backup.db").code == 0
        (folder / "backups").mkdir()
        for end in ("", ".manifest.json"):
            shutil.copy(f"backup.db{end}", f"backups/craftcore-20261122T031500Z.db{end}")
        database.unlink()  # with a database, the command would ask for a confirmation


APP = """
from craftcore import App

app = App("examples")

@app.workflow("greet")
async def greet(name: str = "you") -> str:
    return f"Hello {name}"

@app.workflow("brief.daily")
async def brief() -> None: ...

@app.workflow("chat", sources=["MESSAGE"])
async def chat(text: str) -> None: ...
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    assert craftcore(tmp_path, "init").code == 0
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "message.json").write_text('{"text": "good morning"}')
    return tmp_path


@pytest.mark.parametrize(("name", "line"), [one for one in EXAMPLES if one[0] in ("run", "check")])
def test_help_example_with_an_app_runs(project, name, line):
    words = words_of(line)[1:]

    ran = craftcore(project, *words, *(["--until-idle"] if name == "run" and "--until-idle" not in words else []))

    assert ran.code == 0, ran


def test_help_examples_with_a_daemon_run(project):
    lines = [line for name, line in EXAMPLES if name in ("emit", "reload")]
    with a_daemon(project, "app:app") as daemon:
        daemon.ready()
        ran = [craftcore(project, *words_of(line)[1:]) for line in lines]

    assert {one.code for one in ran} == {0}, ran
    assert ran[lines.index(documented("emit").examples[0])].out == '"Hello Ada"\n'


def test_slow_help_examples_parse_and_are_tested_elsewhere():
    for name, file in TESTED_ELSEWHERE.items():
        assert ", ".join(f'"{word}"' for word in name.split()) in (Path(__file__).parent / file).read_text()
        for line in documented(name).examples:
            COMMANDS[name].make_context(name, words_of(line)[1 + len(name.split()) :], resilient_parsing=True)
