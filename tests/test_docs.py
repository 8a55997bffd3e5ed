"""The documents: they name exactly the existing commands and settings, and their examples run."""

from __future__ import annotations

import re
import shlex
import signal
from pathlib import Path

import click
import pytest

import craftcore
from tests.support.code_blocks import COMMANDS
from tests.support.code_blocks import PAGES as DOCS
from tests.support.processes import craftcore as craftcore_command
from tests.support.processes import run_python

ROOT = Path(__file__).parents[1]
README = DOCS["README.md"]
INDEX = DOCS["docs/README.md"]
CLI = DOCS["docs/reference/cli.md"]


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.mark.parametrize("name", COMMANDS)
def test_command_is_in_the_reference_and_has_a_help_text(name):
    assert re.search(rf"`{name}( |`)", CLI), f"{name} is missing from docs/reference/cli.md"
    command = COMMANDS[name]
    assert command.help, name
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{name} {parameter.opts[0]}"


@pytest.mark.parametrize("name", COMMANDS)
def test_reference_names_exactly_the_options_of_each_command(name):
    """A row may instead say that its options are below the table."""
    command = COMMANDS[name]
    rows = re.findall(rf"^\| `{name}(?: [^`]*)?` \|.*$", CLI, re.M)
    named = set(re.findall(r"(?<=[`· ])--[a-z-]+|(?<=`)-o\b", " ".join(re.findall(r"`[^`]*`", " ".join(rows)))))
    options = [param for param in command.params if isinstance(param, click.Option)]
    own = [param for param in options if param.opts[0] not in GLOBAL]

    assert rows
    elsewhere = {"--json", "--force"} if name == "craftcore invalidate" else {"--json"}
    assert named - elsewhere <= {word for param in options for word in param.opts}
    below = set(re.findall(r"--[a-z-]+", CLI)) if "below" in " ".join(rows) else set()
    assert [param.opts for param in own if not (named | below) & set(param.opts)] == []


GLOBAL = {"--db", "--config", "--json", "--read-only", "--version"}


def test_documents_name_existing_commands_only():
    words = {name.split()[1] for name in COMMANDS}
    for document, text in DOCS.items():
        for word in re.findall(r"(?:`|^)craftcore (?:--\S+ \S+ )*([a-z]+)", text, re.M):
            assert word in words, f"{document} names `craftcore {word}`"


def test_public_name_is_in_the_reference():
    for name in craftcore.__all__:
        assert re.search(rf"`[^`]*\b{name}\b", DOCS["docs/reference/python-api.md"]), name


def test_readme_example_prints_the_same_line_after_its_crash(tmp_path):
    [example] = [block for block in blocks(README, "python") if block.startswith("# order.py")]
    [lines] = re.findall(r"<!-- crash-example -->\n```sh\n(.*?)```", README, re.DOTALL)
    assert len([line for line in example.splitlines() if line]) <= 15
    (tmp_path / "order.py").write_text(example, "utf-8")
    emit, crashes, continues = [shlex.split(line)[1:] for line in lines.splitlines() if line.startswith("craftcore")]

    assert craftcore_command(tmp_path, *emit).code == 0
    killed, ended = craftcore_command(tmp_path, *crashes), craftcore_command(tmp_path, *continues)

    assert (killed.code, ended.code) == (-signal.SIGKILL, 0)
    [before], [after] = [
        [line for line in run.out.splitlines() if line.startswith("lamp: order number")] for run in (killed, ended)
    ]
    assert before == after


def test_readme_has_at_most_120_lines():
    assert len(README.splitlines()) <= 120


def test_pages_name_only_tests_that_exist():
    for document, text in DOCS.items():
        for name in re.findall(r"`(tests/[\w/.]+)[:`]", text):
            assert (ROOT / name).exists(), f"{document} names {name}"


WATCH = """
import anyio
from watch import app

async def main():
    async with app.running("watch.db"):
        cheap = await app.emit("watch", {"item": "lamp", "limit": 50})
        while (task := await app.task(cheap.id)) is None or task.status.is_live:
            for asked in await app.questions():
                await app.answer(asked.id, "buy", answered_by="a test")
            await anyio.sleep(0.01)
        print(task.result_json.split(cheap.id))
        dear = await app.emit("watch", {"item": "lamp", "limit": 40})
        while (task := await app.task(dear.id)) is None or task.status != "WAITING":
            await anyio.sleep(0.01)
        print(task.turn, task.state_json)

anyio.run(main)
"""


def test_example_of_a_task_runs(tmp_path):
    page = DOCS["docs/tutorial/agent-with-approval.md"]
    [example] = [block for block in blocks(page, "python") if block.startswith("# watch.py")]
    (tmp_path / "watch.py").write_text(example, "utf-8")
    child = run_python(["-c", WATCH], tmp_path)
    assert child.out.splitlines() == ["['\"lamp is ordered: receipt activity:', ':1.1\"']", "2 42.0"], child.err


def test_index_lists_every_document_once():
    listed = re.findall(r"^\| \[[^]]+\]\(([^)]+)\) \|", INDEX, re.M)
    assert sorted(["docs/README.md", *(f"docs/{name}" for name in listed)]) == sorted(
        name for name in DOCS if name.startswith("docs/")
    )
    assert "](docs/README.md)" in README


def test_link_has_a_target():
    for document, text in DOCS.items():
        folder = (ROOT / document).parent
        for target, heading in re.findall(r"\]\((?!https://)([^)#]*)#?([^)]*)\)", text):
            assert (folder / target).exists(), f"{document} links to {target}"
            if heading:
                page = DOCS[str((folder / target).resolve().relative_to(ROOT))] if target else text
                assert heading in headings(page), f"{document} links to {target}#{heading}"


def test_pages_name_only_modules_that_exist():
    folders = {path.name for path in (ROOT / "craftcore").iterdir() if path.is_dir()}
    for document, text in DOCS.items():
        for name in re.findall(r"`(?:craftcore/)?((?:\w+/)+\w+\.py)`", text):
            if name.partition("/")[0] in folders:
                assert (ROOT / "craftcore" / name).exists(), f"{document} names {name}"


def test_layout_of_contributing_has_every_folder_of_the_package():
    listed = re.findall(r"`craftcore/(\w+)/`", DOCS["CONTRIBUTING.md"])
    assert sorted(listed) == sorted(path.parent.name for path in (ROOT / "craftcore").glob("*/__init__.py"))


def test_help_texts_name_pages_and_headings_that_exist():
    help_texts = (ROOT / "tests" / "surface" / "golden" / "commands.txt").read_text(encoding="utf-8")
    named = re.findall(r"\b(docs/[\w/-]+\.md)#?([\w-]*)", help_texts)
    assert len(named) > 50
    assert [target for target, _ in named if target not in DOCS] == []
    assert [one for one in named if one[1] and one[1] not in headings(DOCS[one[0]])] == []


def headings(text: str) -> set[str]:
    """Return the anchors of the headings: in lower case, without punctuation, with a dash for each space."""
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in titles}


def test_two_set_up_commands_differ_only_at_the_end():
    [demo] = re.findall(r"<!-- demo-command -->\n```sh\n(.*?)\n```", README)
    [test] = re.findall(r"<!-- test-command -->\n```sh\n(.*?)\n```", README)
    assert demo.removesuffix("craftcore demo") == test.removesuffix("pytest -n auto --dist worksteal")
