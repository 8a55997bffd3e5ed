"""Paths with bytes that are not UTF-8: SQLite cannot open them, so they are refused with a clear error."""

from __future__ import annotations

import os

import pytest

from craftcore import App, InvalidInput, Producer


@pytest.fixture
def folder(tmp_path):
    """Create a folder whose name is not UTF-8."""
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    return folder


REFUSAL = "SQLite opens only paths of UTF-8 text. Rename the folder or the file, or give another path"


def test_producer_refuses_a_path_that_is_not_utf8(folder):
    with pytest.raises(InvalidInput, match=REFUSAL), Producer(folder / "agent.db"):
        pass


@pytest.mark.anyio
async def test_engine_refuses_a_path_that_is_not_utf8(folder):
    with pytest.raises(InvalidInput, match=REFUSAL):
        async with App().running(folder / "agent.db"):
            pass
    assert not list(folder.iterdir())


def test_relative_path_in_a_folder_that_is_not_utf8_is_refused(folder, monkeypatch):
    monkeypatch.chdir(folder)

    with pytest.raises(InvalidInput, match=REFUSAL), Producer("agent.db"):
        pass
