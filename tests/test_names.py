"""The names of modules, classes and functions: nouns and verbs of the field, without old words."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from tests.support import prose


def words(name: str) -> frozenset[str]:
    """Return the words of a list beside this file."""
    return frozenset((Path(__file__).parent / name).read_text(encoding="utf-8").split())


VERBS = words("verbs.txt")
"""Verbs in the base form that may begin the name of a function, or its docstring."""

NOUNS, ADJECTIVES = words("nouns.txt"), words("adjectives.txt")
"""A function that only returns a value may have the name of that value: adjectives and a noun, as in `next_due`."""

PUBLIC = frozenset(
    re.findall(r"\w+", (Path(__file__).parent / "surface/golden/python_names.txt").read_text(encoding="utf-8"))
)
"""Names that users rely on; they do not change."""

SHOWN = {"DaemonRunning", "StillWaiting"}
"""Names of errors in the output of `--json`; they do not change either."""

OF_LIBRARIES = {"fileno", "shell_complete", "model_validate", "msg", "now", "data_received"}
"""Methods whose names a protocol of Python or of a library sets. Methods of an apsw VFS begin with a small x."""

STEMS = (
    *("hand", "hands", "told", "said", "heard", "stand", "standing", "stands", "room", "ride", "rides", "flight"),
    *("flights", "flown", "glance", "apart", "given", "insist", "recall", "doors", "stranger", "strangers"),
    *("solitude", "birth", "kin", "kinship", "manager", "helper", "helpers", "util", "utils"),
)
"""Words that no name of a module, class or function contains."""

NOUNS_IN_ING = {"finding", "firing", "logging", "routing", "timing", "string", "doorbell"}
"""Nouns that end like gerunds."""

ROLES = {
    *("__init__", "__main__", "model", "store", "service", "view", "commands", "command", "operate", "validation"),
    *("quarantine_store", "operator_store", "listing_store", "schema"),
    *("backup", "diff", "doctor", "emit", "export", "replay", "restore", "status", "verify"),
}
"""Names that modules of several folders may have: the roles within a noun, and commands of the same name."""

SHORT = {"id", "tx", "ctx", "fn", "_", "by", "to", "cc", "ok"}
"""Names of one or two letters that are allowed; the last four are an option and fields of documents."""

PREDICATES = ("is_", "has_", "can_", "may_", "must_", "should_", "was_", "are_")
"""Prefixes of functions that answer a question with yes or no."""

HOOKS_AND_CONVERSIONS = ("on_", "before_", "after_", "from_", "to_", "with_", "by_")
"""Prefixes of functions that are called at an event (`on_settled`), and of conversions (`from_text`)."""


TESTS = Path(__file__).parent

TEST_NAME_MAX = 80

PRONOUNS = {
    *("it", "one", "they", "them", "what", "who", "whoever", "whatever", "nobody", "somebody", "he", "she"),
    *("told", "said", "heard", "stands", "stranger", "strangers", "anew", "hand", "hands", "insist", "thing", "things"),
}
"""Words that no name of a test contains, because the name of a failed test must describe the fault."""

NO_SUBJECTS = {
    *("a", "an", "the", "after", "before", "with", "without", "when", "if", "while", "as", "by", "for", "from", "in"),
    *("is", "no", "not", "of", "on", "only", "each", "every", "some", "that", "this", "to", "and", "at", "both"),
    *("either", "even", "how", "where", "why", "whether", "other", "another", "there", "nothing", "never"),
}
"""Words with which no name of a test begins."""

PUBLIC_SUBJECTS = ("test_after_commit_", "test_before_answers_", "test_on_flushed_")
"""Names of functions that are subjects."""


def modules() -> set[str]:
    """Return the violations in the names of modules."""
    paths = [path.relative_to(prose.PACKAGE) for path, _ in prose.modules()]
    shared = Counter(path.stem for path in paths)
    return {f"{path}: {fault}" for path in map(PurePosixPath, paths) for fault in module_faults(path, shared)}


def module_faults(path: PurePosixPath, shared: Counter[str]) -> Iterator[str]:
    """Yield the faults of a module's name. `shared` counts the modules of each name."""
    words = path.stem.strip("_").split("_")
    if words[-1].endswith("ing") and words[-1] not in NOUNS_IN_ING:
        yield "is a gerund"
    if shared[path.stem] > 1 and path.stem not in ROLES:
        yield f"has the name of {shared[path.stem]} modules"
    yield from (f"says {stem!r}" for stem in STEMS if stem in words)


def identifiers() -> set[str]:
    """Return the violations in the names of classes, functions, parameters and variables."""
    return {fault for _, tree in prose.modules() for fault in identifier_faults(tree)}


def identifier_faults(tree: ast.Module) -> Iterator[str]:
    """Yield the faults of the names that a module defines."""
    for node in prose.nodes(tree):
        match node:
            case ast.ClassDef(name=name):
                yield from (f"class {name}: says {word!r}" for word in parts(name) if word in STEMS)
                if name not in SHOWN and parts(name)[-1].endswith("ing") and parts(name)[-1] not in NOUNS_IN_ING:
                    yield f"class {name}: is a gerund"
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield from (f"def {name}: says {word!r}" for word in parts(name) if word in STEMS)
                if name not in PUBLIC and not is_noun(node) and not is_verb_or_noun_phrase(name):
                    yield f"def {name}: is neither a verb phrase nor a noun phrase"
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                if len(name) < 3 and name not in SHORT | PUBLIC and not name.isupper():
                    yield f"name {name}: is too short"


def names_of_tests() -> set[str]:
    """Return the violations in the names of tests."""
    return {
        f"{path.relative_to(TESTS)}: {name}: {fault}"
        for path in sorted(TESTS.rglob("test_*.py"))
        for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        for fault in faults_of_test_name(name)
    }


def faults_of_test_name(name: str) -> Iterator[str]:
    """Yield the faults of a test's name, which has the subject first, then a condition and the result."""
    _, *words = name.replace("one_time", "once").split("_")
    if len(name) > TEST_NAME_MAX:
        yield f"has {len(name)} characters"
    if len(words) < 3:
        yield "has fewer than three words"
    if words[0] in NO_SUBJECTS and not name.startswith(PUBLIC_SUBJECTS):
        yield f"begins with {words[0]!r}"
    yield from (f"says {word!r}" for word in words if word in PRONOUNS)


def is_verb_or_noun_phrase(name: str) -> bool:
    """Return whether a function's name is a verb phrase, a question, or the name of the returned value."""
    bare = name.lstrip("_")
    if name.startswith("__") or bare.startswith(PREDICATES + HOOKS_AND_CONVERSIONS):
        return True
    if bare in OF_LIBRARIES or re.match(r"x[A-Z]", bare):
        return True
    words = parts(bare)
    while words[1:] and words[0] in ADJECTIVES - VERBS:
        del words[0]
    return words[0] in VERBS or words[0] in NOUNS


def is_noun(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a decorator turns this function into a value, a command or an overload."""
    for one in node.decorator_list:
        name = ast.unparse(one.func if isinstance(one, ast.Call) else one)
        if name.rpartition(".")[2] in {"property", "cached_property", "setter", "command", "group", "contextmanager"}:
            return True
        if "contextmanager" in name or name.endswith(("overload", "fixture")):
            return True
    return False


def parts(name: str) -> list[str]:
    """Return the words of a name in lower case."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)] or [name]


@pytest.mark.parametrize("rule", [modules, identifiers, names_of_tests])
def test_names_follow_the_rules(rule):
    assert sorted(rule()) == []


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("storage/rides.py", "says 'rides'"),
        ("tasks/entering.py", "is a gerund"),
        ("tasks/words.py", "has the name of 2 modules"),
    ],
)
def test_module_name_is_refused(path, fault):
    assert list(module_faults(PurePosixPath(path), Counter(words=2))) == [fault]


def test_module_name_is_accepted():
    for path in ("storage/group_commit.py", "cli/finding.py", "tasks/store.py"):
        assert list(module_faults(PurePosixPath(path), Counter(store=5))) == []


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("class Doors: ...", "class Doors: says 'doors'"),
        ("class Waiting: ...", "class Waiting: is a gerund"),
        ("def in_words(): ...", "def in_words: is neither a verb phrase nor a noun phrase"),
        ("def thereupon(): ...", "def thereupon: is neither a verb phrase nor a noun phrase"),
        ("def what_comes(): ...", "def what_comes: is neither a verb phrase nor a noun phrase"),
        ("def stand_up(): ...", "def stand_up: says 'stand'"),
        ("xs = 1", "name xs: is too short"),
        ("def read(fd): ...", "name fd: is too short"),
    ],
)
def test_identifier_is_refused(source, fault):
    assert fault in list(identifier_faults(ast.parse(source)))


@pytest.mark.parametrize(
    "source",
    [
        "class Batch: ...",
        "def read_row(tx): ...",
        "def is_due(id): ...",
        "def next_token(id): ...",
        "def on_settled(id): ...",
        "class A:\n    @property\n    def size(self): ...",
        "@root.command()\ndef status(ctx): ...",
    ],
)
def test_identifier_is_accepted(source):
    assert list(identifier_faults(ast.parse(source))) == []


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("test_it_waits", "has fewer than three words"),
        ("test_what_is_claimed_is_kept", "says 'what'"),
        ("test_the_claim_is_kept", "begins with 'the'"),
        ("test_" + "claim_" * 13, "has 83 characters"),
    ],
)
def test_name_of_a_test_is_refused(name, fault):
    assert fault in list(faults_of_test_name(name))


def test_name_of_a_test_with_subject_and_result_is_accepted():
    assert list(faults_of_test_name("test_question_without_by_message_ignores_messages")) == []
