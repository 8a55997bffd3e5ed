"""Text on a terminal: prose is folded between words, and commands to paste stay on one line."""

from __future__ import annotations

import io

import pytest

from craftcore.cli.folded_text import fold_text
from craftcore.cli.output import Output


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("short", ["short"]),
        ("the quick brown fox jumps", ["the quick brown fox", "    jumps"]),
        ("  due  12  later 471 claimed 9", ["  due  12  later 471", "    claimed 9"]),
        ("see it: craftcore --db 'a b' task show 7, or wait", ["see it:", "    craftcore --db 'a b' task show 7,"]),
        ("https://example.org/a-long-address end", ["https://example.org/a-long-address", "    end"]),
    ],
)
def test_long_line_is_folded_between_words(text, lines):
    assert fold_text(text, 20)[: len(lines)] == lines


def test_text_in_a_pipe_is_never_folded(capsys):
    Output(as_json=False).line("word " * 100)

    assert len(capsys.readouterr().out.splitlines()) == 1


def test_facts_continue_under_their_values(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setenv("COLUMNS", "20")

    Output(as_json=False).facts({"error": "no such file or directory", "id": 7})

    assert screen.getvalue().splitlines() == ["error  no such file", "       or directory", "id     7"]


def test_problem_on_a_terminal_is_folded(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("COLUMNS", "20")

    Output(as_json=True).print_problem("the disk is nearly full")

    assert screen.getvalue().splitlines() == ["craftcore: the disk", "    is nearly full"]
