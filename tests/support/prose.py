"""The texts that people read: docstrings, messages, and the pages of the documentation."""

from __future__ import annotations

import ast
import gc
import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "craftcore"

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef

_CODE = re.compile(r"``[^`]*``|`[^`]*`|\"[^\"]*\"")
_END = re.compile(r"(?<=[.!?])[)'\"*]*\s+(?=[A-Z`(\"'*])")
_COLUMNS = re.compile(r"\S {2,}\S")
_SQL = re.compile(
    r"[`x\s]*(SELECT|INSERT|UPDATE|DELETE|WITH|CREATE|DROP|ALTER|PRAGMA|FROM|WHERE|AND|ORDER|UNION|JOIN)\b"
)


class Docstring(NamedTuple):
    """One docstring and the kind of its owner: module, class, function, property or attribute."""

    kind: str
    text: str


@cache
def modules() -> tuple[tuple[Path, ast.Module], ...]:
    """Return every module of the package with its tree, parsed once for all rules.

    The garbage collector is off, because a scan of the half million nodes takes twice the time of the parser.
    """
    gc.disable()
    trees = tuple((path, ast.parse(path.read_text(encoding="utf-8"))) for path in sorted(PACKAGE.rglob("*.py")))
    gc.freeze()
    gc.enable()
    return trees


@cache
def nodes(tree: ast.Module) -> tuple[ast.AST, ...]:
    """Return the nodes of a module's tree, cached for all rules."""
    return tuple(ast.walk(tree))


def docstrings(tree: ast.Module) -> Iterator[Docstring]:
    """Yield the docstrings of a module, those of its attributes included."""
    for node in nodes(tree):
        if isinstance(node, Documented) and (text := ast.get_docstring(node)):
            yield Docstring(_kind(node), text)
        body = getattr(node, "body", None)
        for before, after in pairwise(body) if isinstance(body, list) else ():
            if isinstance(before, ast.Assign | ast.AnnAssign) and (attribute := _text_statement(after)) is not None:
                yield Docstring("attribute", attribute)


def messages(tree: ast.Module) -> Iterator[str]:
    """Yield each text of three words or more that is neither a docstring nor SQL. `x` replaces a value in it."""
    hidden = {id(node) for owner in nodes(tree) for node in _hidden(owner)}
    for node in nodes(tree):
        if id(node) in hidden:
            continue
        match node:
            case ast.JoinedStr(values=parts):
                text = "".join(part.value if isinstance(part, ast.Constant) else "`x`" for part in parts)  # type: ignore[misc]
            case ast.Constant(value=str(text)):
                pass
            case _:
                continue
        if len(text.split()) >= 3 and not _SQL.match(text):
            yield text


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text, paragraph by paragraph. Tables, code blocks and aligned lists are left out."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[-*|#>]|\d+\. ))", text):
        lines = [line.strip() for line in paragraph.splitlines() if not line.startswith(("    ", "|"))]
        if lines and _COLUMNS.search(lines[0]):
            continue
        prose = re.sub(r"^(?:[-*>#]+|\d+\.)\s+", "", " ".join(lines).strip())
        if not prose or " " not in prose or prose.startswith(("|", "<!--", "![")):
            continue
        yield from (sentence.strip() for sentence in _END.split(prose) if sentence.strip())


def list_entries(text: str) -> Iterator[str]:
    """Yield the explanations of an aligned list: the text after the first gap of each line with a gap."""
    for line in text.splitlines():
        if entry := re.match(r"\s*\S.*? {2,}(\S.*)$", line):
            yield plain(entry[1])


def words(sentence: str) -> list[str]:
    """Return the words of a sentence. Code and quoted text count as one word each."""
    return re.findall(r"[A-Za-z0-9][\w'’-]*", plain(sentence))


def plain(sentence: str) -> str:
    """Return the sentence with the word `code` for each piece of code or quoted text."""
    return _CODE.sub("code", sentence)


def _kind(node: Documented) -> str:
    match node:
        case ast.Module():
            return "module"
        case ast.ClassDef():
            return "class"
        case _:
            decorators = (one.func if isinstance(one, ast.Call) else one for one in node.decorator_list)
            names = {getattr(one, "id", getattr(one, "attr", "")) for one in decorators}
            if "group" in names:  # a group of commands is a noun
                return "class"
            return "property" if names & {"property", "cached_property"} else "function"


def _text_statement(node: ast.stmt) -> str | None:
    match node:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return text
        case _:
            return None


def _hidden(owner: ast.AST) -> Iterator[ast.AST]:
    """Yield the child nodes whose text is not a message: docstrings, and the parts of an f-string."""
    match owner:
        case ast.Expr(value=ast.Constant() as constant):
            yield constant
        case ast.JoinedStr(values=parts):
            yield from parts
