"""The rules of plain English that a machine can check, in docstrings, messages and pages."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.support import prose
from tests.test_names import VERBS

OPENERS = frozenset({"what", "who", "whoever", "whether", "of", "that", "nobody"})
"""Words with which only a question begins."""

PHRASES = (
    *("is none", "is no", "are no", "of ours", "of yours", "behind our back", "so many", "in passing", "anew"),
    *("foreign hand", "all the same", "by hand alone", "so long", "for so long"),
)
"""Phrases of translated English, each of which a plain verb can replace."""

STEMS = ("told", "stranger", "insist", "nobody", "somebody", "whoever", "stands", "heard")
"""Words that replace a term of the glossary, or describe code as a person."""

WORDS_MAX = 30
PAGE_WORDS_MAX = 25

BANNED = re.compile(rf"(?<!\bthere )\b(?:{'|'.join(map(re.escape, (*PHRASES, *STEMS)))})\b", re.IGNORECASE)
"""Each refused phrase or word. `there is none` is plain English."""

KEY_LENGTH = 90


def faults(sentence: str, *, limit: int | None = WORDS_MAX) -> Iterator[str]:
    """Yield the faults of one sentence."""
    words = prose.words(sentence)
    if words and words[0].lower() in OPENERS and not sentence.rstrip().endswith("?"):
        yield f"begins with {words[0]}"
    if limit is not None and len(words) > limit:
        yield f"has {len(words)} words"
    found_phrases = {match.group(0) for match in BANNED.finditer(prose.plain(sentence))} - {"is None"}
    for found in sorted(map(str.lower, found_phrases)):
        yield f"says {found!r}"


def docstring_faults(docstring: prose.Docstring) -> Iterator[tuple[str, str]]:
    """Yield (fault, sentence) for each fault of a docstring."""
    sentences = list(prose.sentences(docstring.text))
    for sentence in sentences:
        yield from ((fault, sentence) for fault in faults(sentence))
    for entry in prose.list_entries(docstring.text):
        yield from ((f"says {found.lower()!r}", entry) for found in BANNED.findall(entry))
    if sentences and docstring.kind == "function":
        first = prose.words(sentences[0])
        if first and first[0].lower() not in VERBS:
            yield f"a function's docstring begins with {first[0]!r}, not with a verb", sentences[0]


def docstrings() -> set[str]:
    """Return the violations in docstrings."""
    return {
        key(fault, sentence)
        for _, tree in prose.modules()
        for docstring in prose.docstrings(tree)
        for fault, sentence in docstring_faults(docstring)
    }


def joined_lists() -> set[str]:
    """Return the aligned lists of fields in which an entry does not begin its line."""
    return {
        f"{path.relative_to(prose.ROOT)}: {node.name}.{field.target.id}"
        for path, tree in prose.modules()
        for node in prose.nodes(tree)
        if isinstance(node, ast.ClassDef)
        for field in node.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if re.search(rf"[^\s,] +{field.target.id} {{2,}}", ast.get_docstring(node) or "")
    }


def messages() -> set[str]:
    """Return the violations in messages, help texts and other strings of the package."""
    return {
        key(fault, sentence)
        for _, tree in prose.modules()
        for text in prose.messages(tree)
        for sentence in prose.sentences(text)
        for fault in faults(sentence)
    }


def pages() -> set[str]:
    """Return the violations in the pages of the repository and of its documentation."""
    return {
        key(fault, sentence)
        for path in (*sorted(prose.ROOT.glob("*.md")), *sorted((prose.ROOT / "docs").rglob("*.md")))
        for sentence in prose.sentences(path.read_text(encoding="utf-8"))
        for fault in (*faults(sentence, limit=None), *length_faults(sentence))
    }


def length_faults(sentence: str) -> Iterator[str]:
    """Yield the fault of a page's sentence with too many words. Code does not count, because pages list names."""
    words = [word for word in prose.words(sentence) if word != "code"]
    if len(words) > PAGE_WORDS_MAX:
        yield f"has {len(words)} words"


def key(fault: str, sentence: str) -> str:
    """Return a violation in one line."""
    return f"{fault}: {' '.join(sentence.split())[:KEY_LENGTH]}"


@pytest.mark.parametrize("rule", [docstrings, joined_lists, messages, pages])
def test_prose_follows_the_rules_of_english(rule):
    assert sorted(rule()) == []


@pytest.mark.parametrize(
    ("sentence", "fault"),
    [
        ("What of the WAL is in use says it.", "begins with What"),
        ("That is done.", "begins with That"),
        ("It is no name.", "says 'is no'"),
        ("Begun anew, the daemon goes on.", "says 'anew'"),
        ("The producer is told.", "says 'told'"),
        (" ".join(["word"] * 31), "has 31 words"),
    ],
)
def test_prose_rule_refuses_a_bad_sentence(sentence, fault):
    assert list(faults(sentence)) == [fault]


@pytest.mark.parametrize(
    "sentence", ["What ran?", "Return the number of rows.", "The row says `is no`.", " ".join(["word"] * 30)]
)
def test_prose_rule_accepts_a_good_sentence(sentence):
    assert list(faults(sentence)) == []


def test_list_entry_with_a_refused_word_is_found():
    docstring = prose.Docstring("class", "A row.\n\nid     the one that nobody knows\nname   a text")
    assert [fault for fault, _ in docstring_faults(docstring)] == ["says 'nobody'"]


def test_page_rule_refuses_a_long_sentence_and_does_not_count_code():
    assert list(length_faults(" ".join(["word"] * 26))) == ["has 26 words"]
    assert list(length_faults(" ".join(["word"] * 25 + ["`code`"] * 9))) == []


def test_docstring_of_a_function_begins_with_a_verb():
    assert list(docstring_faults(prose.Docstring("function", "Return the row."))) == []
    assert list(docstring_faults(prose.Docstring("class", "The row."))) == []
    [(fault, _)] = docstring_faults(prose.Docstring("function", "The row."))
    assert fault == "a function's docstring begins with 'The', not with a verb"
