"""The code blocks of all documents: a test or a rule of this file runs, checks, loads or compares each."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import anyio
import pytest

import craftcore as public
from craftcore.actions.llm.model_router import LLMRouter
from craftcore.app import App
from craftcore.clock import SystemClock
from craftcore.config import Config
from craftcore.executions.record import header_of
from craftcore.executions.record_store import RecordStore
from craftcore.storage.database import Database
from tests.support.code_blocks import PAGES, ROOT, Block, all_blocks, blocks_of, mistake, typed
from tests.support.command_calls import call_command
from tests.support.engine_harness import lab, look, settings
from tests.support.populated_database import a_world
from tests.support.processes import PATIENCE, environment
from tests.support.warm_parent import start

BLOCKS = all_blocks()


def find_blocks(page: str, language: str, word: str = "") -> list[Block]:
    return [block for block in BLOCKS if (block.page, block.language) == (page, language) and word in block.text]


@cache
def read_other_tests() -> dict[str, str]:
    """Return the text of each test file except this one, by its path."""
    own_name = Path(__file__).name
    paths = [path for path in (ROOT / "tests").rglob("*.py") if path.name not in (own_name, "blocks.py")]
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}


def find_covering_test(*words: str) -> str | None:
    """Return a test file that contains all of these words, such as the name of the page that it reads."""
    return next((name for name, text in read_other_tests().items() if all(word in text for word in words)), None)


# The rules that cover a block


def is_named(block: Block) -> bool:
    """Return whether a comment names the block, and a test uses that name."""
    return block.name is not None and find_covering_test(*block.name.split(": ")) is not None


def is_a_program_of_a_test(block: Block) -> bool:
    """Return whether the first line names a file, and a test that reads the page runs that file."""
    named = re.fullmatch(r"# (\w+)\.py", block.first)
    return named is not None and find_covering_test(block.page, named[1]) is not None


def is_run_here(block: Block) -> bool:
    return any(block in blocks for blocks in (PROGRAMS, FRAGMENTS))


def is_typed(block: Block) -> bool:
    """Return whether each line is a valid craftcore command, or a command of a test that reads the page."""
    return all(
        mistake(words) is None if words[0] == "craftcore" else find_covering_test(block.page, words[0]) is not None
        for words in typed(block)
        if words[0] not in SHELL_COMMANDS
    )


def is_read_by_a_test(block: Block) -> bool:
    return find_covering_test(block.page, f"```{block.language}") is not None


RECORDS = "docs/explanation/records-and-integrity.md"
PROGRAMS = [
    *find_blocks("docs/tutorial/first-workflow.md", "python", "with Producer("),
    *find_blocks(RECORDS, "python"),
    *find_blocks("docs/reference/python-api.md", "python", "App("),
    *find_blocks("docs/reference/python-api.md", "python", "Producer("),
    *find_blocks("docs/how-to/get-notified.md", "python"),
    *find_blocks("docs/how-to/embed-in-a-program.md", "python"),
    *find_blocks("docs/how-to/schedule-work.md", "python"),
]
FRAGMENTS = find_blocks("docs/reference/python-api.md", "python", "send_invoice")
SHELL_COMMANDS = {"umask", "cd"}
PLAIN = {RECORDS: "events_hash", "docs/how-to/test-workflows.md": "crash at step.ran:1"}
"""The first words of the blocks that a test below compares."""

KNOWN: dict[str, tuple[Callable[[Block], bool], ...]] = {
    "python": (is_a_program_of_a_test, is_run_here),
    "sh": (is_named, is_typed),
    "": (lambda block: block.is_picture, lambda block: block.first.startswith(PLAIN.get(block.page, "\0")), is_typed),
    "toml": (lambda block: block in find_blocks(block.page, "toml"),),
    "json": (lambda block: block in find_blocks("docs/reference/error-codes.md", "json"),),
    "sql": (is_read_by_a_test,),
    "yaml": (is_read_by_a_test,),
    "ini": (is_named, is_read_by_a_test),
    "caddy": (is_read_by_a_test,),
    "nginx": (is_read_by_a_test,),
}


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_block_has_a_checker(block):
    checkers = KNOWN.get(block.language, ())
    assert any(covers(block) for covers in checkers), f"no test runs or checks this block:\n{block.text}"


def test_block_is_found():
    assert len(BLOCKS) == sum(text.count("\n```") for text in PAGES.values()) // 2 > 50


@pytest.mark.parametrize(
    "text",
    [
        "```sh\ncraftcore trigger shwo ID\n```\n",
        "```sh\ncraftcore --db a.db trigger show ID --events\n```\n",
        "```sh\nrm -rf /\n```\n",
        "```python\nprint(1)\n```\n",
        "<!-- unknown: no test has this name -->\n```sh\nmake it so\n```\n",
        "```yaml\na: 1\n```\n",
        "```haskell\nmain\n```\n",
        "```\ncraftcore fly\n```\n",
    ],
)
def test_unchecked_block_is_reported(text):
    [block] = blocks_of("docs/reference/schema.md", text)
    assert not any(covers(block) for covers in KNOWN.get(block.language, ()))


# Commands


def test_inline_command_exists_with_its_options():
    wrong = []
    count = 0
    for page, text in PAGES.items():
        for line in re.findall(r"`(craftcore [a-z-][^`]*)`", text):
            count += 1
            words = line.replace("\\|", "|").replace("…", "").split()
            if found := mistake(words):
                wrong.append(f"{page}: `{line}`: {found}")
    assert wrong == []
    assert count > 150


OPERATORS = (
    "docs/how-to/back-up-and-restore.md",
    "docs/how-to/deploy-with-systemd.md",
    "docs/how-to/monitor.md",
    "docs/how-to/replicate-with-litestream.md",
    "docs/how-to/resolve-unknown-activities.md",
    "docs/explanation/records-and-integrity.md",
)
OPERATOR_COMMANDS = [
    (page, words)
    for page in OPERATORS
    for block in (*find_blocks(page, "sh"), *find_blocks(page, ""))
    if block.name is None and not block.is_picture
    for words in typed(block)
    if words[0] == "craftcore"
]


def test_operator_pages_have_the_described_effect_line_by_line(tmp_path):
    """Each command runs on its own copy of a database, with the ids of its rows in place of the placeholders."""
    assert len(OPERATOR_COMMANDS) > 12
    first = tmp_path / "first"
    first.mkdir()
    world = a_world(first / "agent.db")
    assert call_command(first, "db", "backup", "-o", "kept.db").code == 0
    assert call_command(first, "verify", "--write-head", "head.json").code == 0
    for number, (page, words) in enumerate(OPERATOR_COMMANDS):
        folder = tmp_path / str(number)
        shutil.copytree(first, folder)
        ids = {"execution": world.died, "inspect": world.died, "replay": world.ended, "schedule": "nightly"}
        values = {
            "ID": ids.get(words[1], world.dead),
            "KEY": world.in_doubt,
            "/srv/backups/craftcore": str(folder / "backups"),
        }
        if words[1:3] == ["db", "restore"]:
            found = words.index(next(word for word in words if word.startswith("/")))
            source = "kept.db"
            if "--no-manifest" in words:
                shutil.copy(folder / "kept.db", folder / "plain.db")
                source = "plain.db"
            words = [*words[:found], source, *words[found + 1 :], "--yes"]
        (folder / "backups").mkdir()

        done = call_command(folder, *[values.get(word, word) for word in words[1:]])

        may_find_faults = {"doctor", "verify"} & set(words)
        assert done.code in ({0, 1} if may_find_faults else {0}), (page, words, done)


# Programs


@pytest.mark.parametrize("block", PROGRAMS, ids=str)
def test_program_of_a_page_runs_alone(tmp_path, block):
    with start(["-c", block.text], cwd=tmp_path, env=environment(), stderr=subprocess.PIPE) as process:
        _, printed = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, printed.decode()


def execute(block: Block, **variables: Any) -> dict[str, Any]:
    """Execute a Python block, and return its namespace."""
    names = {**vars(public), **{name: getattr(public, name) for name in public.__all__}, **variables}
    exec(compile(block.text, str(block), "exec"), names)
    return names


@pytest.mark.anyio
async def test_router_of_the_reference_sends_french_to_the_french_agent(tmp_path):
    [block] = find_blocks("docs/reference/python-api.md", "python", "ByLanguage")
    app = execute(block)["app"]

    @app.workflow("reply.french")
    async def french(text: str) -> str:
        return "salut"

    @app.workflow("reply")
    async def reply(text: str) -> str:
        return "hello"

    async with lab(app, tmp_path) as it:
        for text in ("bonjour", "good day"):
            await it.settled((await app.emit(None, {"text": text}, source="MESSAGE")).id)
        answers = it.rows("SELECT response_json FROM executions ORDER BY seq")
    assert [json.loads(row["response_json"])["payload"] for row in answers] == ["salut", "hello"]


def test_llm_router_of_the_reference_can_be_made():
    [block] = find_blocks("docs/reference/python-api.md", "python", "LLMRouter(")
    names = execute(block)
    assert isinstance(names["app"].router, LLMRouter)


@pytest.mark.anyio
@pytest.mark.parametrize("arrives", [True, False])
async def test_action_of_the_reference_is_reconciled_as_described(tmp_path, arrives):
    """The answer of the first call is lost. The provider's reply to the query decides, and one invoice exists."""
    action, reconcile = FRAGMENTS
    made: dict[str, str] = {}
    calls: list[str] = []

    async def post(url: str, *, json: dict[str, Any], headers: dict[str, str]) -> dict[str, str]:
        key = headers["Idempotency-Key"]
        calls.append(key)
        if arrives or len(calls) > 1:
            made[key] = f"invoice-{len(made) + 1}"
        if len(calls) == 1:
            raise ConnectionResetError("the answer was lost")
        return {"id": made[key]}

    async def get(url: str, *, params: dict[str, str]) -> dict[str, str] | None:
        return {"id": made[params["key"]]} if params["key"] in made else None

    app = App()
    text = action.text.replace("timeout=30", "timeout=30, settle_after=0")  # no request is still in transit
    fragment = Block(page=action.page, line=action.line, name=None, language="python", text=text + reconcile.text)
    execute(fragment, app=app, post=post, get=get, URL="http://provider.example")

    async with lab(app, tmp_path, settings()) as it:
        task_id = (await app.emit("bill", {"to": "ada", "amount": 7})).id
        row = await it.ended(task_id)
        assert (row["status"], json.loads(row["result_json"])) == ("DONE", "invoice-1")
        [kept] = it.rows("SELECT status, provider_ref FROM activity_log")
    assert kept == {"status": "DONE", "provider_ref": "invoice-1"}
    assert len(made) == 1
    assert calls == [f"activity:{task_id}:1.1"] * (1 if arrives else 2)


def test_record_hashes_can_be_computed_with_the_program_of_the_page(tmp_path):
    [program] = find_blocks(RECORDS, "python")
    compute_hash = execute(program)["independently"]
    [layout] = [block for block in find_blocks(RECORDS, "") if block.first.startswith("events_hash")]
    [fields] = re.findall(r"^record_hash +\{(.*?)\}", layout.text, re.MULTILINE | re.DOTALL)
    a_world(tmp_path / "agent.db")

    database = Database(tmp_path / "agent.db", SystemClock())
    with database.reading() as reader:
        rows = reader.fetch_all("SELECT seq, record_hash, envelope_hash FROM executions WHERE record_hash IS NOT NULL")
        records = [(row, RecordStore().get_by_seq(reader, row["seq"])) for row in rows]
    assert len(records) > 3
    for row, record in records:
        assert record is not None
        header = header_of(record)._asdict()
        assert set(re.findall(r'"(\w+)"', fields)) == set(header)
        assert compute_hash({**header, "routing_json": json.loads(header["routing_json"])}) == row["record_hash"]


# Settings and outputs


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "toml"], ids=str)
def test_settings_of_a_page_are_settings(tmp_path, block):
    path = tmp_path / "craftcore.toml"
    path.write_text(block.text, encoding="utf-8")
    assert Config.load(path) != Config(), "the block changes no setting"


def test_failure_of_the_page_is_recorded_as_shown(tmp_path):
    [block] = find_blocks("docs/reference/error-codes.md", "json")
    app = App()

    @app.workflow("report", timeout=0.05, max_attempts=1)
    async def report() -> None:
        await anyio.sleep_forever()

    async def fail() -> None:
        async with lab(app, tmp_path) as it:
            await it.settled((await app.emit("report")).id)

    anyio.run(fail)
    [row] = look(tmp_path / "agent.db", "SELECT response_json FROM executions")
    recorded = (
        row["response_json"].replace("within 0.05 s", "within 30.0 s").replace('"timeout_ms":50', '"timeout_ms":30000')
    )
    assert json.loads(recorded) == json.loads(block.text)


def test_python_block_compiles():
    for block in BLOCKS:
        if block.language == "python":
            ast.parse(block.text)
